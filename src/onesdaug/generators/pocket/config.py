"""The sizes of a pocket generator, as its card holds them."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from onesdaug.errors import ConfigError

LARGEST = 4096  # of any size: beyond that a number is a mistake


@dataclass(frozen=True)
class PocketConfig:
    """The sizes of a pocket generator; the defaults are the released one's."""

    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}  # a card must not say more than is understood

    size: int = 96  # side of the images
    channels: int = 4  # of the latent
    down: int = 4  # pixels along one side of a place of the latent: 4, or 8 for a deeper autoencoder
    ae_width: int = 64
    width: int = 96  # of the convolutions around the transformer
    dim: int = 256
    depth: int = 7
    heads: int = 4
    local: int = 25  # condition tokens that say what is where, beside the one global token
    global_dim: int = 352  # what the condition encoder gives
    local_dim: int = 352
    told: int = 0  # numbers that the denoiser is told beside the timestep: resolution and guidance
    deep: bool = False  # the deep autoencoder at 4 times, too; at 8 times there is no other

    def __post_init__(self) -> None:
        sizes = asdict(self)
        if wrong := [
            f"{name} {value}"
            for name, value in sizes.items()
            if not (0 if name in ("told", "deep") else 1) <= value <= LARGEST
        ]:
            raise ConfigError(f"sizes of a pocket generator lie between 1 and {LARGEST}, not {', '.join(wrong)}")
        if self.told not in (0, 2):
            raise ConfigError(
                f"a denoiser is told nothing (0), or resolution and guidance (2), not {self.told} numbers"
            )
        if self.down not in (4, 8):
            raise ConfigError(f"a latent is 4 or 8 times smaller than its image, not {self.down} times")
        if self.size % self.place or self.dim % self.heads:
            raise ConfigError(
                f"size {self.size} must be a multiple of {self.place}, dim {self.dim} one of {self.heads} heads"
            )

    @property
    def side(self) -> int:
        return self.size // self.down

    @property
    def place(self) -> int:
        """Pixels along one side of a place of the transformer."""
        return 2 * self.down

    @property
    def places(self) -> int:
        """Side of the transformer's grid."""
        return self.size // self.place

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)
