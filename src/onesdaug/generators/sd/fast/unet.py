"""The UNet's forward in our own words: colours last throughout, and what guidance's two sides share computed once.

Up to the first look at the tokens both sides see the same picture at the same time: those layers run on its rows, not
on the doubled batch. Modules and weights are diffusers'; `supported` says for which UNets this is the whole story.
"""

from __future__ import annotations

from itertools import zip_longest
from typing import Any

import torch
from torch import nn
from torch.nn.functional import silu

from onesdaug.generators.sd.attention import Attention, ImageAttention, joined
from onesdaug.generators.sd.fast.layers import per_place

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
    adds_time = config.resnet_time_scale_shift == "default" and not config.resnet_skip_time_act
    usual = usual and adds_time and not config.center_input_sample
    return bool(blocks and plain and usual and middle and unet.conv_norm_out)


class FastUNet(nn.Module):
    """eps or v of z's rows for each row of `prepared` tokens, of which there are one or more times as many."""

    def __init__(self, unet: Any) -> None:
        super().__init__()
        self.unet = unet
        # what every residual block makes of the time, from one product instead of 22 small ones
        blocks = (*unet.down_blocks, unet.mid_block, *unet.up_blocks)
        resnets = [resnet for block in blocks for resnet in block.resnets]
        self.times = joined(*(resnet.time_emb_proj for resnet in resnets))
        self.widths = [resnet.time_emb_proj.out_features for resnet in resnets]
        for resnet in resnets:
            resnet.time_emb_proj, resnet.skip_time_act = nn.Identity(), True
        # and the keys and values of all cross-attentions with an image side
        looks = [m.attn2 for m in unet.modules() if type(m).__name__ == "BasicTransformerBlock"]
        self.joint = all(isinstance(look.processor, ImageAttention) for look in looks)
        if self.joint:
            self.words, self.image = joined(*(a.to_kv for a in looks)), joined(*(a.processor.to_kv for a in looks))
            self.text_tokens, first = looks[0].processor.text_tokens, 0
            for look in looks:
                look.processor.span = slice(first, first := first + look.to_kv.out_features)

    def prepared(self, tokens: torch.Tensor) -> torch.Tensor:
        """Keys and values of the tokens in every layer, side by side; they are the same at every step."""
        if not self.joint:
            return tokens
        words, image = tokens[:, : self.text_tokens], tokens[:, self.text_tokens :]
        return torch.cat([self.words(words), self.image(image)], dim=1)

    def forward(
        self, z: torch.Tensor, t: torch.Tensor, tokens: torch.Tensor, image_scale: torch.Tensor, attention: Attention
    ) -> torch.Tensor:
        unet = self.unet
        emb = silu(unet.time_embedding(unet.time_proj(t).to(z.dtype)))
        shifts = iter(self.times(emb).split(self.widths, dim=1))  # in the order of the blocks below
        how = {"encoder_hidden_states": tokens, "image_scale": image_scale, "attention": attention}
        h = unet.conv_in(z)
        skips = [h]
        for block in unet.down_blocks:
            for resnet, look in zip_longest(block.resnets, getattr(block, "attentions", ())):
                h = _look(look, resnet(h, _rows(next(shifts), h)), how)
                skips.append(h)
            for shrink in block.downsamplers or ():
                h = shrink(h)
                skips.append(h)
        middle = unet.mid_block
        h = middle.resnets[0](h, _rows(next(shifts), h))
        for resnet, look in zip(middle.resnets[1:], middle.attentions, strict=True):
            h = _look(look, h, how)
            h = resnet(h, _rows(next(shifts), h))
        for block in unet.up_blocks:
            for resnet, look in zip_longest(block.resnets, getattr(block, "attentions", ())):
                h = resnet(torch.cat([h, _rows(skips.pop(), h)], dim=1), _rows(next(shifts), h))
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
    x = per_place(layer.proj_in, layer.norm(h).permute(0, 2, 3, 1).flatten(1, 2))
    for block in layer.transformer_blocks:
        x = x + block.attn1(block.norm1(x))
        x = _rows(x, tokens)
        x = x + block.attn2(block.norm2(x), **how)
        x = x + block.ff(block.norm3(x))
    x = per_place(layer.proj_out, x)
    return _rows(h, tokens) + x.reshape(x.shape[0], *side, -1).permute(0, 3, 1, 2)


def _rows(x: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """x as often as there are rows to go with."""
    times = like.shape[0] // x.shape[0]
    return x if times == 1 else x.repeat(times, *[1] * (x.ndim - 1))
