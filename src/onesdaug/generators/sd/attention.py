"""Image tokens in cross-attention: decoupled (IP-Adapter) and concatenated (the paper's equation).

Both take `image_scale`, lambda_img, as a tensor with one value per row: rows of one batch may differ, and changing it
recompiles nothing. A row with scale 0 attends to the text alone. `fuse_projections` joins projections of the same
input into one matrix product: the same numbers, fewer and larger products.
"""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention

from onesdaug.generators.sd.fast import one_pass

Attention = Literal["decoupled", "concat"]
KeyValue = tuple[torch.Tensor, torch.Tensor]


def decoupled(q: torch.Tensor, text: KeyValue, image: KeyValue, image_scale: torch.Tensor) -> torch.Tensor:
    """softmax(Q Kᵀ_txt/√d)·V_txt + λ·softmax(Q Kᵀ_img/√d)·V_img; all (B, heads, tokens, d), scale (B,)."""
    return scaled_dot_product_attention(q, *text) + _per_row(image_scale, q) * scaled_dot_product_attention(q, *image)


def concatenated(q: torch.Tensor, text: KeyValue, image: KeyValue, image_scale: torch.Tensor) -> torch.Tensor:
    """One softmax over [K_txt; λ·K_img] with values [V_txt; λ·V_img] (the paper's eq. attn-concat).

    At λ = 0 the equation would leave zero keys that still draw attention away from the text; "no image" is what is
    meant there, so those keys are masked.
    """
    scale = _per_row(image_scale, q)
    k, v = torch.cat([text[0], scale * image[0]], dim=2), torch.cat([text[1], scale * image[1]], dim=2)
    off = (scale == 0).expand(-1, 1, 1, image[0].shape[2])
    mask = torch.cat([off.new_ones(off.shape[0], 1, 1, text[0].shape[2]), ~off], dim=3)
    return scaled_dot_product_attention(q, k, v, attn_mask=mask)


class PlainAttention:
    """Attention with no image branch: self-attention, and cross-attention to text alone."""

    # diffusers passes on only the keywords it finds named here, hence the two unused ones.
    def __call__(
        self,
        attn: Any,
        hidden_states: torch.Tensor,
        encoder_hidden_states: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        image_scale: torch.Tensor | None = None,
        attention: Attention = "decoupled",
    ) -> torch.Tensor:
        if encoder_hidden_states is None:
            parts = _joint(attn, "to_qkv", ("to_q", "to_k", "to_v"), hidden_states)
        else:
            parts = [attn.to_q(hidden_states), *_joint(attn, "to_kv", ("to_k", "to_v"), encoder_hidden_states)]
        q, k, v = (_heads(attn, part) for part in parts)
        return _merge(attn, scaled_dot_product_attention(q, k, v))


class ImageAttention(nn.Module):
    """Cross-attention to rows of [text tokens; image tokens], each kind with its own key and value projections."""

    to_kv: nn.Linear  # both in one, where `fuse_projections` made it
    span: slice | None = None  # where keys and values already lie in what it is given (`FastUNet.prepared`)

    def __init__(self, text_tokens: int, to_k: nn.Module, to_v: nn.Module) -> None:
        super().__init__()
        self.text_tokens = text_tokens
        self.to_k, self.to_v = to_k, to_v
        self.one_kernel = False

    # Overrides Module's __call__ because diffusers reads the signature to decide which keywords to pass.
    def __call__(
        self,
        attn: Any,
        hidden_states: torch.Tensor,
        encoder_hidden_states: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        image_scale: torch.Tensor | None = None,
        attention: Attention = "decoupled",
    ) -> torch.Tensor:
        assert image_scale is not None
        words, image = (
            encoder_hidden_states[:, : self.text_tokens],
            encoder_hidden_states[:, self.text_tokens :],
        )
        q, keys = attn.to_q(hidden_states), encoder_hidden_states.shape[1]
        if self.one_kernel and attention == "decoupled" and one_pass.takes(q, attn.heads, keys):
            if self.span is None:
                kv = torch.cat([attn.to_kv(words), self.to_kv(image)], dim=1)
            else:
                kv = encoder_hidden_states[..., self.span]
            return _out(attn, one_pass.attend(q, kv, image_scale, attn.heads, self.text_tokens))
        join = concatenated if attention == "concat" else decoupled
        sides = self._key_value(attn, attn, words), self._key_value(attn, self, image)
        return _merge(attn, join(_heads(attn, q), *sides, image_scale))

    def _key_value(self, attn: Any, layer: Any, x: torch.Tensor) -> KeyValue:
        done = self.span is not None
        parts = x[..., self.span].chunk(2, dim=-1) if done else _joint(layer, "to_kv", ("to_k", "to_v"), x)
        k, v = (_heads(attn, part) for part in parts)
        return k, v


def fuse_projections(unet: Any, one_kernel: bool = False) -> None:
    """Join q, k, v of self-attention and k, v of cross-attention (text and image side) throughout a UNet of ours.

    With `one_kernel` cross-attention to both sides is one kernel too, where `one_pass` has one.
    """
    for name, attn in unet.named_modules():
        if not hasattr(attn, "to_k") or isinstance(attn, ImageAttention):
            continue
        if name.endswith("attn1"):  # diffusers' name for self-attention: all three read the same input
            attn.to_qkv = joined(attn.to_q, attn.to_k, attn.to_v)
        else:
            attn.to_kv = joined(attn.to_k, attn.to_v)
        if isinstance(attn.processor, ImageAttention):
            attn.processor.to_kv = joined(attn.processor.to_k, attn.processor.to_v)
            attn.processor.one_kernel = one_kernel


@torch.no_grad()
def joined(*parts: Any) -> nn.Linear:
    """One linear layer whose output is those of the parts, side by side."""
    weight = torch.cat([part.weight for part in parts])
    bias = parts[0].bias is not None
    joined = nn.Linear(weight.shape[1], weight.shape[0], bias, device=weight.device, dtype=weight.dtype)
    joined.weight.copy_(weight)
    if bias:
        joined.bias.copy_(torch.cat([part.bias for part in parts]))
    return joined.requires_grad_(False)


def _joint(layer: Any, fused: str, parts: tuple[str, ...], x: torch.Tensor) -> list[torch.Tensor]:
    """The projections of x, through their joint layer where `fuse_projections` made one."""
    whole = getattr(layer, fused, None)
    return [getattr(layer, part)(x) for part in parts] if whole is None else list(whole(x).chunk(len(parts), dim=-1))


def _per_row(scale: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    return scale.to(like.dtype).reshape(-1, 1, 1, 1)


def _heads(attn: Any, x: torch.Tensor) -> torch.Tensor:
    """(B, tokens, heads·d) → (B, heads, tokens, d)."""
    return x.reshape(x.shape[0], x.shape[1], attn.heads, -1).transpose(1, 2)


def _merge(attn: Any, x: torch.Tensor) -> torch.Tensor:
    """Back to (B, tokens, heads·d), through the layer's output projection (its dropout included)."""
    return _out(attn, x.transpose(1, 2).flatten(2))


def _out(attn: Any, x: torch.Tensor) -> torch.Tensor:
    for layer in attn.to_out:
        x = layer(x)
    return x
