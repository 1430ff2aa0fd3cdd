"""The base class of everything that draws views. One row per sample, always."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, ClassVar, Self, SupportsIndex

import torch
from torch import nn

from onesdaug.common.devices import pick_device
from onesdaug.common.own import code_mark
from onesdaug.common.registry import check_complete, is_from_file
from onesdaug.errors import ConfigError
from onesdaug.generators.schedule import Schedule
from onesdaug.generators.speed import Compile, set_switches, to_compile


class Generator(ABC):
    """An image-conditioned diffusion model, latent or not. Images are (B, 3, size, size) in [0, 1].

    A subclass implements the five abstract methods; what else it can do it declares in the attributes below, whose
    defaults say "nothing". It is found by its registered name, by `package.module:Class`, or in what it `recognises`.
    """

    # what it works on
    size: int = 64  # side of the square images
    schedule: Schedule = Schedule.scaled_linear()  # the one it was trained with; this is Stable Diffusion's
    device: torch.device = torch.device("cpu")
    dtype: torch.dtype = torch.float32
    batch_size: int = 16  # views at a time on a GPU
    # names the weights and settings in the keys of stored views; empty: the class's name stands for them
    fingerprint: str = ""

    # what it can do
    prompts: ClassVar[bool] = False  # `image_tokens` and `null_tokens` take prompt=
    modes: ClassVar[tuple[str, ...]] = ()  # `image_tokens` takes mode=, one of these kinds of condition
    attentions: ClassVar[tuple[str, ...]] = ("decoupled",)  # beyond this one `predict` takes attention=
    options: ClassVar[tuple[str, ...]] = ()  # of `from_pretrained`, beyond source and device
    default_preset: ClassVar[str] = "paper"  # the operator's settings where accuracy is measured and none are named
    faithful_preset: ClassVar[str] = ""  # those that draw what the picture shows, to look at; empty: the same
    weights: ClassVar[Path | None] = None  # where a package brings them along, for `onesdaug doctor`
    told_guidance: float = 1.0  # up to this scale `predict` takes guidance= and guides itself, in one row
    compiled: Compile = "off"
    origin: tuple[str, dict[str, Any]] | None = None  # what `load_generator` was given, where that has made it

    @abstractmethod
    def encode(self, x: torch.Tensor) -> torch.Tensor:
        """Enc: images → latents (deterministic: the posterior's mean)."""

    @abstractmethod
    def decode(self, z: torch.Tensor) -> torch.Tensor:
        """Dec: latents → images in [0, 1]."""

    @abstractmethod
    def image_tokens(self, x: torch.Tensor) -> torch.Tensor:
        """Condition tokens (B, L, d), row i from image i."""

    @abstractmethod
    def null_tokens(self, n: int) -> torch.Tensor:
        """n rows of the tokens that stand for "no image": the negative side of guidance."""

    @abstractmethod
    def predict(
        self, z: torch.Tensor, t: torch.Tensor, tokens: torch.Tensor, image_scale: torch.Tensor
    ) -> torch.Tensor:
        """eps_phi(z_t, t, c): t and image_scale are (B,) tensors; image_scale 0 switches the image off."""

    @property
    def shares_rows(self) -> bool:
        """Whether `predict` takes more rows of tokens than of z, and computes once what they have in common."""
        return False

    def prepared(self, tokens: torch.Tensor) -> torch.Tensor:
        """What `predict` makes of tokens at every step alike; it takes this in their place."""
        return tokens

    def accelerate(self, mode: Compile) -> None:
        """Make the networks fast without changing what they compute; once, before the first view."""
        if to_compile(self.compiled, mode, self.device):
            set_switches(mode, self.device)
            self.compile_networks(mode)
            self.compiled = mode

    def compile_networks(self, mode: Compile) -> None:
        """The generator's part of `accelerate`."""
        raise ConfigError(f"{type(self).__name__} cannot be compiled with {mode!r}; leave compile off")

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        """Pickled with its weights; where that cannot be, as what it was loaded from.

        Compiled code belongs to one process, and a class of `file.py` is found through its file alone.
        """
        if self.compiled == "off" and not is_from_file(type(self)):
            return super().__reduce_ex__(protocol)
        if self.origin is None:
            raise ConfigError(
                f"this {type(self).__name__} cannot be pickled: it is compiled, or of a file, and was not loaded by "
                "its name; use onesdaug.generators.load.load_generator, or pickle it first and compile it then"
            )
        return _load_again, self.origin

    @property
    def identity(self) -> str:
        """What cache keys call it; without a fingerprint, one that is not ours changes with the file it is in."""
        named = f"{type(self).__module__}.{type(self).__qualname__}"
        return self.fingerprint or "-".join(filter(None, (named, code_mark(self))))

    @classmethod
    def recognises(cls, source: str) -> bool:
        """Whether this folder or hub id, which is no registered name, is one of this class's models."""
        return False

    @classmethod
    def kind_of(cls, source: str) -> type[Generator]:
        """The class of a source it recognises: itself, or one of its own kinds."""
        return cls

    @classmethod
    def from_pretrained(cls, *source: Any, **options: Any) -> Self | None:
        """The generator behind its name or a source it recognises, on `device`; with options that it declares."""
        check_complete("generator", cls)
        device = pick_device(options.pop("device", "auto"))
        return cls(**options).to_device(device)

    def to_device(self, device: torch.device) -> Self:
        """Move everything among the attributes that can lie on a device."""
        self.device = device
        for name, value in vars(self).items():
            if isinstance(value, nn.Module | torch.Tensor):
                setattr(self, name, value.to(device))
        return self


def _load_again(source: str, options: dict[str, Any]) -> Any:
    from onesdaug.generators.load import load_generator

    return load_generator(source, **options)


class ShapeOnly(Generator):
    """No generator at all: the operator stops after the shape tweak. Its `from_pretrained` gives None."""

    @classmethod
    def from_pretrained(cls, *source: Any, **options: Any) -> None:
        return None
