"""Preprocessing belongs to the backbone: short side, centre crop, normalisation, all on tensors.

The rule never depends on the size an image happens to have: an 84×84 original and its 512×512 generated view
show the same part of the scene to the network.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from onesdaug.errors import ConfigError

IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
# FEAT gives Res12, and only Res12, the statistics of its own miniImageNet images
RES12_MEAN = (120.39586422 / 255, 115.59361427 / 255, 104.54012653 / 255)
RES12_STD = (70.68188272 / 255, 68.27635443 / 255, 72.54505529 / 255)

LARGEST = 8192  # pixels of a side: beyond that a number is a mistake

Triple = tuple[float, float, float]


@functools.cache
def channels(values: Triple, device: torch.device) -> Tensor:
    """Three numbers as (1,3,1,1) on the device, copied there once: every copy would make the host wait."""
    with torch.inference_mode(False):
        return torch.tensor(values, device=device).view(1, 3, 1, 1)


@dataclass(frozen=True)
class Preprocess:
    """Resize the short side to `resize`, cut the central `crop`×`crop`, normalise."""

    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}  # a card must not say more than is understood

    resize: int = 92
    crop: int = 84
    mean: Triple = IMAGENET_MEAN
    std: Triple = IMAGENET_STD
    squash: bool = False  # resize to resize×resize, ignoring the aspect ratio (what ViT's processors do)
    interpolation: str = "bilinear"

    def __post_init__(self) -> None:
        if not 1 <= self.crop <= self.resize <= LARGEST:
            raise ConfigError(f"resize {self.resize} and crop {self.crop}: want 1 <= crop <= resize <= {LARGEST}")
        if not all(map(math.isfinite, (*self.mean, *self.std))) or min(self.std) <= 0:
            raise ConfigError(f"mean {self.mean} and std {self.std} must be finite, and std above 0")
        if self.interpolation not in ("bilinear", "bicubic"):
            raise ConfigError(f"interpolation {self.interpolation!r} is not known; use bilinear or bicubic")

    def __call__(self, images: Tensor) -> Tensor:
        """(B,3,H,W), uint8 or float in [0,1] → (B,3,crop,crop) float32, normalised."""
        return self.normalise(self.frame(images))

    def frame(self, images: Tensor) -> Tensor:
        """The part of the image the network sees, in [0,1]."""
        if images.ndim != 4 or images.shape[1] != 3:
            raise ConfigError(f"images must be (B,3,H,W); got {tuple(images.shape)}")
        x = images.float().div(255) if images.dtype == torch.uint8 else images.float()
        height, width = x.shape[-2:]
        if self.squash:
            target = (self.resize, self.resize)
        elif width <= height:
            target = (max(self.resize, int(self.resize * height / width)), self.resize)
        else:
            target = (self.resize, max(self.resize, int(self.resize * width / height)))
        if target != (height, width):
            x = F.interpolate(x, target, mode=self.interpolation, align_corners=False, antialias=True).clamp(0, 1)
        top, left = round((target[0] - self.crop) / 2), round((target[1] - self.crop) / 2)
        return x[..., top : top + self.crop, left : left + self.crop]

    def normalise(self, x: Tensor) -> Tensor:
        return (x - channels(self.mean, x.device)) / channels(self.std, x.device)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Preprocess:
        values = dict(data)
        for key in ("mean", "std"):
            if key in values:
                a, b, c = (float(v) for v in values[key])
                values[key] = (a, b, c)
        return cls(**values)
