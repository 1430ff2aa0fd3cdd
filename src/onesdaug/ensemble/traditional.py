"""Traditional test-time augmentation, the baselines: crop and flip, and the edits that the paper compares itself with.

Both read each view off the image with one affine map and one bilinear interpolation; a view is (image, k), as with
generated ones, so the same view comes out of any batch.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import affine_grid, grid_sample

from onesdaug.augment.seeds import row_seeds, stream
from onesdaug.augment.source import ViewSource
from onesdaug.errors import ConfigError


@dataclass(frozen=True)
class _Edits(ViewSource):
    """Views that a stream of random numbers each decides."""

    def describe(self) -> dict[str, Any]:
        return asdict(self)

    def tensors(self, batch: Tensor, k: int, seeds: Sequence[int | str] | None = None, seed: int = 0) -> Tensor:
        """(B, 3, H, W) → (B, K, 3, H, W); view (image, k) is the same in any batch."""
        return self._views(batch, _streams(batch, range(1, k + 1), seeds, seed))

    def nth(self, batch: Tensor, number: int, seeds: Sequence[int | str] | None = None) -> Tensor:
        return self._views(batch, _streams(batch, range(number, number + 1), seeds))[:, 0]

    @abstractmethod
    def _views(self, batch: Tensor, streams: list[np.random.Generator]) -> Tensor:
        """One view for each stream, those of an image after each other: (B, K, 3, H, W)."""


@dataclass(frozen=True)
class CropFlip(_Edits):
    """A random resized crop, flipped half of the time.

    `scale` bounds the part of the area that is kept, `ratio` the crop's aspect relative to the image's.
    """

    scale: tuple[float, float] = (0.6, 1.0)
    ratio: tuple[float, float] = (3 / 4, 4 / 3)
    flip: bool = True

    def __post_init__(self) -> None:
        if not 0 < self.scale[0] <= self.scale[1] <= 1:
            raise ConfigError(f"CropFlip scale={self.scale}: parts of the area, 0 < low <= high <= 1")
        if not 0 < self.ratio[0] <= self.ratio[1]:
            raise ConfigError(f"CropFlip ratio={self.ratio}: aspect ratios, 0 < low <= high")

    def _views(self, batch: Tensor, streams: list[np.random.Generator]) -> Tensor:
        # a crop only ever grows: no antialiasing needed
        made = _sampled(batch, [self._theta(rng) for rng in streams], "border")
        return made.clamp(0, 1).reshape(len(batch), -1, *batch.shape[1:])

    def _theta(self, rng: np.random.Generator) -> list[list[float]]:
        area = rng.uniform(*self.scale)
        aspect = np.exp(rng.uniform(*np.log(self.ratio)))
        # side lengths as fractions of the image's; an aspect that does not fit is narrowed until it does
        aspect = float(np.clip(aspect, area, 1 / area))
        width, height = np.sqrt(area * aspect), np.sqrt(area / aspect)
        x, y = rng.uniform(-1, 1, 2) * (1 - width, 1 - height)
        mirror = -1.0 if self.flip and rng.random() < 0.5 else 1.0
        return [[mirror * width, 0.0, x], [0.0, height, y]]


@dataclass(frozen=True)
class Traditional(_Edits):
    """The paper's traditional edits: a random rotation, a random affine warp, colour jitter.

    The paper names these three and no numbers. Here rotation is as strong as in its shape tweak, the rest is what
    people usually take; beyond the edge the image is reflected, as in the shape tweak: a black border would cost the
    baseline accuracy that ours does not pay. Colours change as in PIL and torchvision, in a fixed order.
    """

    rotate: float = 20.0  # degrees, ±
    translate: float = 0.1  # of the side, ±
    scale: float = 0.1  # 1 ±
    shear: float = 10.0  # degrees, ±
    jitter: float = 0.4  # brightness, contrast and saturation, 1 ±

    def __post_init__(self) -> None:
        if not (0 <= self.scale < 1 and 0 <= self.jitter <= 1 and 0 <= self.shear < 90 and self.translate >= 0):
            raise ConfigError(f"{self}: scale in [0, 1), jitter in [0, 1], shear in [0, 90), translate not negative")

    def _views(self, batch: Tensor, streams: list[np.random.Generator]) -> Tensor:
        aspect = batch.shape[-1] / batch.shape[-2]
        drawn = [rng.uniform(-1, 1, 8).tolist() for rng in streams]
        made = _sampled(batch, [self._theta(row[:5], aspect) for row in drawn], "reflection")
        factors = 1 + self.jitter * torch.tensor([row[5:] for row in drawn], device=made.device).reshape(-1, 3)
        return _coloured(made.clamp(0, 1), factors).reshape(len(batch), -1, *batch.shape[1:])

    def _theta(self, draws: list[float], aspect: float) -> list[list[float]]:
        """From output to input places, about the centre, in coordinates whose pixels are square."""
        angle, shear = math.radians(self.rotate * draws[0]), math.radians(self.shear * draws[1])
        zoom = 1 + self.scale * draws[2]
        cos, sin, slant = math.cos(angle) / zoom, math.sin(angle) / zoom, math.tan(shear)
        a, b = cos, cos * slant + sin
        c, d = -sin, cos - sin * slant
        shift = 2 * self.translate
        return [[a, b / aspect, shift * draws[3]], [c * aspect, d, shift * draws[4]]]


def _streams(
    batch: Tensor, numbers: range, seeds: Sequence[int | str] | None, seed: int = 0
) -> list[np.random.Generator]:
    """One for each view of these numbers, image by image."""
    seeds = row_seeds(batch, seed) if seeds is None else seeds
    if len(seeds) != len(batch):
        raise ConfigError(f"{len(seeds)} seeds for {len(batch)} images: give one per row")
    return [stream(row, view, "shape") for row in seeds for view in numbers]


def _sampled(batch: Tensor, thetas: list[list[list[float]]], border: str) -> Tensor:
    """An affine view for each map, as many of each row, (B·k, 3, H, W)."""
    theta = torch.from_numpy(np.array(thetas, dtype=np.float32).reshape(-1, 2, 3)).to(batch.device)
    rows = batch.float().repeat_interleave(len(thetas) // max(1, len(batch)), dim=0)
    grid = affine_grid(theta, list(rows.shape), align_corners=False)
    return grid_sample(rows, grid, mode="bilinear", padding_mode=border, align_corners=False)


def _coloured(x: Tensor, factors: Tensor) -> Tensor:
    """Brightness, contrast and saturation of each row times its three factors."""
    from kornia import enhance

    x = enhance.adjust_brightness_accumulative(x, factors[:, 0])
    x = enhance.adjust_contrast_with_mean_subtraction(x, factors[:, 1])
    coloured: Tensor = enhance.adjust_saturation_with_gray_subtraction(x, factors[:, 2])
    return coloured.clamp(0, 1)
