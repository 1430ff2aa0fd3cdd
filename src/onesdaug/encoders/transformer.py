"""Transformers that can be trained here: ViT-Small and Swin-Tiny for small pictures, and whatever the hub has.

The networks are transformers' own (`ViTModel`, `SwinModel`), in the paper's sizes. What differs is what a hundred
thousand pictures of 84 pixels ask for, from which the usual forms learn much worse: fewer tokens, windows that fit
them, and in front small convolutions instead of one of 16×16 or 4×4 pixels (Xiao et al., 2021).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from onesdaug.common.hub import loading, needs_extra
from onesdaug.encoders.base import Backbone
from onesdaug.encoders.hub import Pooled, load_hub
from onesdaug.encoders.preprocess import Preprocess

HUB = "hf:"
DROP = 0.1  # of the last layer's branches, in training; fewer before it


class DropPath(nn.Module):
    """Leaves out a branch of some of the pictures (stochastic depth); the others make up for it."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or not self.rate:
            return x
        kept = torch.empty(len(x), *[1] * (x.ndim - 1), dtype=x.dtype, device=x.device).bernoulli_(1 - self.rate)
        return x * kept / (1 - self.rate)


class ViTSmall(Backbone):
    """12 layers of width 384 and 6 heads over 8×8 tokens of 16×16 pixels; the mean of the tokens is the feature."""

    dim = 384
    default_preprocess = Preprocess(resize=140, crop=128)

    def __init__(self, depth: int = 12) -> None:
        super().__init__()
        with _transformers("vit-small") as library:
            grid, widths = self.default_preprocess.crop // 16, [3, 48, 96, 192, 384]
            config = library.ViTConfig(
                hidden_size=self.dim, num_hidden_layers=depth, num_attention_heads=6, intermediate_size=4 * self.dim,
                image_size=grid, patch_size=1, num_channels=widths[-1],
            )  # fmt: skip
            self.model = library.ViTModel(config, add_pooling_layer=False)
        self.stem = nn.Sequential(*(layer for pair in pairwise(widths) for layer in _conv(*pair, 2)))
        # positions that are known from the start need not be learnt from few pictures
        self.model.embeddings.position_embeddings.data[:, 1:] = waves(grid, self.dim)
        nn.init.trunc_normal_(self.model.embeddings.cls_token, std=0.02)
        for place, layer in enumerate(self.model.layers):
            layer.dropout = DropPath(DROP * (place + 1) / depth)

    def forward(self, x: Tensor) -> Tensor:
        tokens: Tensor = self.model(pixel_values=self.stem(x)).last_hidden_state
        return tokens[:, 1:].mean(1)


class SwinTiny(Backbone):
    """2, 2, 6 and 2 layers over 24×24 tokens of 4×4 pixels and coarser; windows of 6×6, in the last layers of 3×3."""

    dim = 768
    default_preprocess = Preprocess(resize=105, crop=96)

    def __init__(self) -> None:
        super().__init__()
        width, grid = 96, self.default_preprocess.crop // 4
        with _transformers("swin-tiny") as library:
            config = library.SwinConfig(
                image_size=grid, patch_size=1, num_channels=width, embed_dim=width, depths=[2, 2, 6, 2],
                num_heads=[3, 6, 12, 24], window_size=6, drop_path_rate=DROP,
                attn_implementation="eager",  # windows are small, and a learnt bias is added to their scores
            )  # fmt: skip
            self.model = library.SwinModel(config)
            for block in self.model.encoder.layers[-1].blocks:  # 3×3 tokens are left: one window
                block.attention = type(block.attention)(config, self.dim, 24, window_size=grid // 8)
                block.attention.apply(self.model._init_weights)
        half = width // 2
        layers = [*_conv(3, half, 2), *_conv(half, half), *_conv(half, width, 2), *_conv(width, width)]
        self.stem = nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        pooled: Tensor = self.model(pixel_values=self.stem(x)).pooler_output
        return pooled.flatten(1)


class HubBackbone(Backbone):
    """A vision model of the hub or of a folder (`hf:ID`), to be trained on from its weights.

    Its checkpoint says how it is built (`architecture`): the folder it came from is not needed any more.
    """

    def __init__(self, model: nn.Module, preprocess: Preprocess, dim: int) -> None:
        super().__init__()
        self.pooled, self.default_preprocess, self.dim = Pooled(model), preprocess, dim
        # what differs from the library's own settings of such a model
        self.architecture = {**model.config.to_diff_dict(), "dim": dim}  # type: ignore[operator,union-attr]

    @classmethod
    def from_hub(cls, spec: str) -> HubBackbone:
        encoder = load_hub(spec.removeprefix(HUB))
        assert isinstance(encoder.preprocess, Preprocess)
        return cls(encoder.module.model.requires_grad_(True), encoder.preprocess, encoder.dim)

    @classmethod
    def from_architecture(cls, described: Mapping[str, Any], preprocess: Preprocess) -> HubBackbone:
        with _transformers(str(described.get("model_type"))) as library:
            settings = {k: v for k, v in described.items() if k not in ("model_type", "dim")}
            config = library.AutoConfig.for_model(described["model_type"], **settings)
            return cls(library.AutoModel.from_config(config), preprocess, described["dim"])

    def forward(self, x: Tensor) -> Tensor:
        features: Tensor = self.pooled(x)
        return features


def waves(grid: int, dim: int) -> Tensor:
    """Sines and cosines of row and column at `dim` / 4 frequencies: (1, grid², dim)."""
    frequencies = torch.exp(-math.log(10_000) * torch.arange(dim // 4) / (dim // 4))
    angles = torch.arange(grid)[:, None] * frequencies
    of_place = torch.cat([angles.sin(), angles.cos()], dim=1)
    rows, columns = of_place[:, None].expand(-1, grid, -1), of_place[None].expand(grid, -1, -1)
    return torch.cat([rows, columns], dim=2).reshape(1, grid * grid, dim)


def _conv(inputs: int, width: int, stride: int = 1) -> list[nn.Module]:
    return [nn.Conv2d(inputs, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True)]


@contextmanager
def _transformers(what: str) -> Iterator[Any]:
    try:
        import transformers
    except ImportError as error:
        raise needs_extra(f"the backbone {what}") from error
    with loading(what, "Another version of transformers may know it."):
        yield transformers
