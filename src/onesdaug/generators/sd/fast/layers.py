"""Layers of diffusers' networks in forms that a compiler and a GPU run faster; each computes the same function.

They are for pictures with colours last in memory (channels_last), and to be compiled: eager, some are slower.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn.functional import conv_transpose2d, linear

from onesdaug.generators.sd.fast import geglu

LONGEST_HELD = 1024  # numbers of a row that inductor keeps in registers
WIDEST_FUSED = 256  # numbers per head that torch's flash and cuDNN attention take
# linear layers, of diffusers and of CLIP, whose output is added to something or goes into a gelu
_ADDED = {
    "Attention": ("to_out.0",),
    "FeedForward": ("net.2",),
    "CLIPAttention": ("out_proj",),
    "CLIPMLP": ("fc1", "fc2"),
}


class ChannelNorm(nn.Module):
    """Group normalisation from the moments of single channels.

    torch's own copies a picture to colours first and back again; sums over places, with neighbouring channels side by
    side in memory, need no copy, and what comes before and after is compiled into the same two passes.
    """

    @staticmethod
    def fits(layer: nn.Module) -> bool:
        return type(layer) is nn.GroupNorm

    def __init__(self, norm: Any) -> None:
        super().__init__()
        self.groups, self.eps = norm.num_groups, norm.eps
        self.weight, self.bias = norm.weight, norm.bias

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        wide, (n, c), places = x.float(), x.shape[:2], tuple(range(2, x.ndim))
        # one pass for both moments; in float32 the difference of squares is exact enough for half-precision inputs
        mean, square = (m.mean(places).reshape(n, self.groups, -1).mean(-1) for m in (wide, wide.square()))
        rstd = (square - mean.square()).clamp_min(0).add(self.eps).rsqrt()
        mean, rstd = (m[:, :, None].expand(n, self.groups, c // self.groups).reshape(n, c) for m in (mean, rstd))
        scale = _written(rstd * self.weight.float())
        shift = _written(self.bias.float() - mean * scale)
        scale, shift = (m.reshape(n, c, *[1] * len(places)) for m in (scale, shift))
        out: torch.Tensor = (wide * scale + shift).to(x.dtype)
        return out


def _written(table: torch.Tensor) -> torch.Tensor:
    """The same; but the compiler stores it, instead of working it out again for every pixel."""
    return table.as_strided(table.shape, table.stride())


class RowNorm(nn.Module):
    """Layer normalisation from two sums.

    Rows too long for the compiler to hold are normalised by it in one running formula with a division per number.
    """

    @staticmethod
    def fits(layer: Any) -> bool:
        if type(layer) is not nn.LayerNorm or layer.bias is None:
            return False
        return len(layer.normalized_shape) == 1 and layer.normalized_shape[0] > LONGEST_HELD

    def __init__(self, norm: Any) -> None:
        super().__init__()
        self.eps, self.weight, self.bias = norm.eps, norm.weight, norm.bias

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        wide = x.float()
        mean, square = wide.mean(-1, keepdim=True), wide.square().mean(-1, keepdim=True)
        rstd = (square - mean.square()).clamp_min(0).add(self.eps).rsqrt()
        out: torch.Tensor = ((wide - mean) * rstd * self.weight.float() + self.bias.float()).to(x.dtype)
        return out


class Grow(nn.Module):
    """Twice the side by repeated pixels, then a 3×3 convolution, as one transposed convolution.

    Of the nine products at a pixel only four are of different pixels: their weights are added up beforehand. 4/9 of
    the operations, and the large picture is never written down before the convolution.
    """

    @staticmethod
    def fits(layer: Any) -> bool:
        if type(layer).__name__ != "Upsample2D" or not layer.use_conv or layer.use_conv_transpose:
            return False
        conv = None if layer.norm is not None else getattr(layer, "conv", None)
        square = isinstance(conv, nn.Conv2d) and conv.kernel_size == (3, 3) and conv.padding == (1, 1)
        return bool(layer.interpolate and square)

    def __init__(self, upsample: Any) -> None:
        super().__init__()
        conv = upsample.conv
        # the transposed kernel is the flipped one spread by a 2×2 box of ones
        weight = conv.weight.detach().float().flip(2, 3).transpose(0, 1)
        spread = sum(nn.functional.pad(weight, (i, 1 - i, j, 1 - j)) for i in (0, 1) for j in (0, 1))
        self.weight = nn.Parameter(torch.as_tensor(spread).to(conv.weight.dtype), requires_grad=False)
        self.bias = conv.bias

    def forward(self, hidden_states: torch.Tensor, output_size: Any = None) -> torch.Tensor:
        return conv_transpose2d(hidden_states, self.weight, self.bias, stride=2, padding=1)


def per_place(layer: Any, x: torch.Tensor) -> torch.Tensor:
    """A linear layer, or the 1×1 convolution that is one, over the last dimension; its bias apart.

    The pass after it adds something anyway, and in float32 too; cuBLAS, asked to add the bias, takes slower kernels at
    some of these sizes.
    """
    out: torch.Tensor = linear(x, layer.weight.flatten(1)) + layer.bias
    return out


class BiasApart(nn.Module):
    """A linear layer as `per_place`."""

    def __init__(self, layer: Any) -> None:
        super().__init__()
        self.weight, self.bias = layer.weight, layer.bias

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return per_place(self, x)


class PlaceConv(BiasApart):
    """A 1×1 convolution as `per_place`."""

    @staticmethod
    def fits(layer: Any) -> bool:
        if type(layer) is not nn.Conv2d or layer.bias is None:
            return False
        return layer.kernel_size == (1, 1) and layer.stride == (1, 1) and layer.padding == (0, 0) and layer.groups == 1

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return per_place(self, x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class Gated(nn.Module):
    """Values times the gelu of their gates, both from one linear layer (diffusers' GEGLU), as one kernel."""

    @staticmethod
    def fits(layer: Any) -> bool:
        return type(layer).__name__ == "GEGLU" and geglu.takes(layer.proj)

    def __init__(self, layer: Any) -> None:
        super().__init__()
        self.proj = layer.proj

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = geglu.geglu(hidden_states, self.proj.weight, self.proj.bias)
        return out


class WideAttention(nn.Module):
    """Self-attention of one head over a picture's places (the VAE's), by plain matrix products.

    Heads of 512 numbers are too wide for torch's fast attention kernels, and its slow one takes twice as long.
    """

    @staticmethod
    def fits(layer: Any) -> bool:
        if type(layer).__name__ != "Attention" or layer.heads != 1 or layer.group_norm is None:
            return False
        usual = layer.residual_connection and layer.rescale_output_factor == 1 and layer.spatial_norm is None
        return bool(usual and layer.to_q.out_features > WIDEST_FUSED)

    def __init__(self, attention: Any) -> None:
        super().__init__()
        self.inner = attention

    def forward(self, hidden_states: torch.Tensor, temb: torch.Tensor | None = None) -> torch.Tensor:
        attn = self.inner
        x = attn.group_norm(hidden_states).flatten(2).transpose(1, 2)
        q, k, v = attn.to_q(x), attn.to_k(x).transpose(1, 2), attn.to_v(x)
        # scores in float32, as fused kernels keep them; only CUDA has such products of half-precision numbers
        half = q.is_cuda and q.dtype != torch.float32
        scores = torch.bmm(q, k, out_dtype=torch.float32) if half else torch.bmm(q, k).float()
        x = torch.bmm(torch.softmax(scores * attn.scale, dim=-1).to(v.dtype), v)
        for layer in attn.to_out:
            x = layer(x)
        out: torch.Tensor = hidden_states + x.transpose(1, 2).reshape(hidden_states.shape)
        return out


def rewrite(network: nn.Module) -> None:
    """Put these layers in place of those of diffusers that they can stand for."""
    for kind in (WideAttention, ChannelNorm, RowNorm, Grow, Gated, PlaceConv):
        for parent in list(network.modules()):
            for name, child in list(parent.named_children()):
                if kind.fits(child):
                    setattr(parent, name, kind(child))
    for parent in network.modules():
        for path in _ADDED.get(type(parent).__name__, ()):
            owner, _, name = path.rpartition(".")
            layer = parent.get_submodule(path)
            if type(layer) is nn.Linear and layer.bias is not None:
                parent.get_submodule(owner).add_module(name, BiasApart(layer))
