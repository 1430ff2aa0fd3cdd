"""Decoupled cross-attention in one pass over the queries, as a Triton kernel for CUDA.

There are only 77 + 4 keys: both softmaxes of a block of queries fit into registers at once, so the queries are read
once and the sum of both attentions is written once. Two calls of torch's attention and their weighted sum move five
times as much memory.
"""

from __future__ import annotations

import math
from functools import cache
from importlib import import_module
from typing import Any

import torch

MOST_KEYS, WIDEST_HEAD = 128, 128  # beyond them the registers of one multiprocessor are not enough
_QUERIES, _BLOCKS = 64, 8  # of one step, and steps of one program: keys and values are read once for all of them

constexpr = int  # Triton knows by this name which arguments it may compile in


def takes(q: torch.Tensor, heads: int, keys: int) -> bool:
    """Whether the kernel is for such queries (B, places, heads·d) and so many keys in all."""
    half = q.dtype in (torch.bfloat16, torch.float16)
    return q.is_cuda and half and q.shape[-1] // heads <= WIDEST_HEAD and keys <= MOST_KEYS


@torch.library.custom_op("onesdaug::decoupled", mutates_args=())
def attend(q: torch.Tensor, kv: torch.Tensor, image_scale: torch.Tensor, heads: int, text_tokens: int) -> torch.Tensor:
    """q (B, places, heads·d), kv (B, text and image tokens, keys then values of 2·heads·d) → (B, places, heads·d)."""
    batch, places, channels = q.shape
    width, keys = channels // heads, kv.shape[1]
    q, kv = q.contiguous(), kv.contiguous()
    out = torch.empty_like(q)
    grid = (heads, -(-places // (_QUERIES * _BLOCKS)), batch)  # heads of one place lie together: so do their programs
    with torch.cuda.device(q.device):
        _kernel()[grid](
            q, kv, image_scale.float(), out, places, width**-0.5 * math.log2(math.e), heads,
            text_tokens, keys, width, _power_of_two(width), _power_of_two(keys), _QUERIES, _BLOCKS,
            num_warps=4, num_stages=2,
        )  # fmt: skip
    return out


@attend.register_fake
def _(q: torch.Tensor, kv: torch.Tensor, image_scale: torch.Tensor, heads: int, text_tokens: int) -> torch.Tensor:
    return torch.empty(q.shape, dtype=q.dtype, device=q.device)


def _power_of_two(n: int) -> int:
    return max(16, 1 << (n - 1).bit_length())


@cache
def _kernel() -> Any:
    """Made at the first call: torch for a CPU comes without Triton."""
    triton, tl = import_module("triton"), import_module("triton.language")

    @triton.jit  # type: ignore[untyped-decorator]
    def kernel(  # type: ignore[no-untyped-def]
        q, kv, scale, out, places, log2_scale, heads,
        TEXT: constexpr, KEYS: constexpr, WIDTH: constexpr, W: constexpr, K: constexpr,
        QUERIES: constexpr, BLOCKS: constexpr,
    ):  # fmt: skip
        head, first, row = tl.program_id(0), tl.program_id(1) * QUERIES * BLOCKS, tl.program_id(2).to(tl.int64)
        d, key, m = tl.arange(0, W), tl.arange(0, K), tl.arange(0, QUERIES)
        inside = (key[:, None] < KEYS) & (d[None, :] < WIDTH)
        at = kv + (row * KEYS * 2 * heads + head) * WIDTH + key[:, None] * (2 * heads * WIDTH) + d[None, :]
        keys = tl.load(at, mask=inside, other=0.0)
        values = tl.load(at + heads * WIDTH, mask=inside, other=0.0)
        strength = tl.load(scale + row)
        text, image = key < TEXT, (key >= TEXT) & (key < KEYS)
        for block in range(BLOCKS):
            place = first + block * QUERIES + m
            mine = (place[:, None] < places) & (d[None, :] < WIDTH)
            here = (row * places * heads + head) * WIDTH + place[:, None] * (heads * WIDTH) + d[None, :]
            score = tl.dot(tl.load(q + here, mask=mine, other=0.0), tl.trans(keys)) * log2_scale
            words = tl.where(text[None, :], score, -float("inf"))
            words = tl.exp2(words - tl.max(words, 1)[:, None])
            look = tl.where(image[None, :], score, -float("inf"))
            look = tl.exp2(look - tl.max(look, 1)[:, None])
            weight = words / tl.sum(words, 1)[:, None] + strength * look / tl.sum(look, 1)[:, None]
            tl.store(out + here, tl.dot(weight.to(values.dtype), values).to(out.dtype.element_ty), mask=mine)

    return kernel
