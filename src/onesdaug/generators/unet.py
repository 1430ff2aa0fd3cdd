"""The UNet's forward in our own words: colours last throughout, and what guidance's two sides share computed once.

Up to the first look at the tokens both sides see the same picture at the same time: those layers run on its rows, not
on the doubled batch. Modules and weights are diffusers'; `supported` says for which UNets this is the whole story.
"""

from __future__ import annotations

from itertools import zip_longest
from typing import Any

import torch
from torch import nn
from torch.nn.functional import linear

from onesdaug.generators.attention import Attention

_DOWN = {"DownBlock2D", "CrossAttnDownBlock2D"}
_UP = {"UpBlock2D", "CrossAttnUpBlock2D"}


def supported(unet: Any) -> bool:
    """Stable Diffusion 1.x and 2.x: plain blocks, and nothing but time and tokens as condition."""
    config = unet.config
    blocks = {type(b).__name__ for b in unet.down_blocks} <= _DOWN and {
        type(b).__name__ for b in unet.up_blocks
    } <= _UP
    plain = all(
        getattr(config, name, None) is None
        for name in ("class_embed_type", "addition_embed_type", "time_cond_proj_dim", "encoder_hid_dim_type",
                     "timestep_post_act", "num_class_embeds")
    )  # fmt: skip
    layers = [m for m in unet.modules() if type(m).__name__ == "BasicTransformerBlock"]
    usual = all(m.norm_type == "layer_norm" and not m.only_cross_attention and m.pos_embed is None for m in layers)
    middle = type(unet.mid_block).__name__ == "UNetMidBlock2DCrossAttn"
    return bool(blocks and plain and usual and middle and not config.center_input_sample and unet.conv_norm_out)


class FastUNet(nn.Module):
    """eps or v of z's rows for each row of tokens, of which there are one or more times as many."""

    def __init__(self, unet: Any) -> None:
        super().__init__()
        self.unet = unet

    def forward(
        self, z: torch.Tensor, t: torch.Tensor, tokens: torch.Tensor, image_scale: torch.Tensor, attention: Attention
    ) -> torch.Tensor:
        unet = self.unet
        emb = unet.time_embedding(unet.time_proj(t).to(z.dtype))
        how = {"encoder_hidden_states": tokens, "image_scale": image_scale, "attention": attention}
        h = unet.conv_in(z)
        skips = [h]
        for block in unet.down_blocks:
            for resnet, look in zip_longest(block.resnets, getattr(block, "attentions", ())):
                h = _look(look, resnet(h, _rows(emb, h)), how)
                skips.append(h)
            for shrink in block.downsamplers or ():
                h = shrink(h)
                skips.append(h)
        middle = unet.mid_block
        h = middle.resnets[0](h, _rows(emb, h))
        for resnet, look in zip(middle.resnets[1:], middle.attentions, strict=True):
            h = _look(look, h, how)
            h = resnet(h, _rows(emb, h))
        for block in unet.up_blocks:
            for resnet, look in zip_longest(block.resnets, getattr(block, "attentions", ())):
                h = resnet(torch.cat([h, _rows(skips.pop(), h)], dim=1), _rows(emb, h))
                h = _look(look, h, how)
            for grow in block.upsamplers or ():
                h = grow(h)
        out: torch.Tensor = unet.conv_out(unet.conv_act(unet.conv_norm_out(h)))
        return out


def _look(layer: Any, h: torch.Tensor, how: dict[str, Any]) -> torch.Tensor:
    """A transformer over the picture's places; the first of them spreads the rows to those of the tokens."""
    if layer is None:
        return h
    side, tokens = h.shape[-2:], how["encoder_hidden_states"]
    x = _per_place(layer.proj_in, layer.norm(h).permute(0, 2, 3, 1).flatten(1, 2))
    for block in layer.transformer_blocks:
        x = x + block.attn1(block.norm1(x))
        x = _rows(x, tokens)
        x = x + block.attn2(block.norm2(x), **how)
        x = x + block.ff(block.norm3(x))
    x = _per_place(layer.proj_out, x)
    return _rows(h, tokens) + x.reshape(x.shape[0], *side, -1).permute(0, 3, 1, 2)


def _per_place(projection: Any, x: torch.Tensor) -> torch.Tensor:
    """A linear layer, or the 1×1 convolution that is one."""
    return linear(x, projection.weight.flatten(1), projection.bias)


def _rows(x: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """x as often as there are rows to go with."""
    times = like.shape[0] // x.shape[0]
    return x if times == 1 else x.repeat(times, *[1] * (x.ndim - 1))
