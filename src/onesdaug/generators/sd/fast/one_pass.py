"""Decoupled cross-attention in one pass over the queries, as a Triton kernel for CUDA.

There are only 77 + 4 keys: both softmaxes of a block of queries fit into registers at once, so the queries are read
once and the sum of both attentions is written once. Two calls of torch's attention and their weighted sum read and
write seven such tensors instead of two.
"""

from __future__ import annotations

import math

import torch

MOST_KEYS, WIDEST_HEAD = 128, 128  # beyond them the registers of one multiprocessor are not enough
_QUERIES, _BLOCKS = 64, 16  # of one step, and steps of one program: keys and values are read once for all of them


def takes(q: torch.Tensor, heads: int, keys: int) -> bool:
    """Whether the kernel is for such queries (B, places, heads·d) and so many keys in all."""
    half = q.dtype in (torch.bfloat16, torch.float16)
    return q.is_cuda and half and q.shape[-1] // heads <= WIDEST_HEAD and keys <= MOST_KEYS


@torch.library.custom_op("onesdaug::decoupled", mutates_args=())
def attend(q: torch.Tensor, kv: torch.Tensor, image_scale: torch.Tensor, heads: int, text_tokens: int) -> torch.Tensor:
    """q (B, places, heads·d), kv (B, text and image tokens, keys then values of 2·heads·d) → (B, places, heads·d)."""
    from onesdaug.generators.sd.fast.one_pass_kernel import kernel

    batch, places, channels = q.shape
    width, keys = channels // heads, kv.shape[1]
    q, kv = q.contiguous(), kv if kv.stride(-1) == 1 else kv.contiguous()  # other layers' may lie beside it
    out = torch.empty_like(q)
    grid = (heads, -(-places // (_QUERIES * _BLOCKS)), batch)  # heads of one place lie together: so do their programs
    with torch.cuda.device(q.device):
        kernel[grid](
            q, kv, image_scale.float(), out, places, width**-0.5 * math.log2(math.e), heads, *kv.stride()[:2],
            text_tokens, keys, width, **blocks(text_tokens, keys, width), QUERIES=_QUERIES, BLOCKS=_BLOCKS,
            num_warps=4, num_stages=2,
        )  # fmt: skip
    return out


@attend.register_fake
def _(q: torch.Tensor, kv: torch.Tensor, image_scale: torch.Tensor, heads: int, text_tokens: int) -> torch.Tensor:
    return torch.empty(q.shape, dtype=q.dtype, device=q.device)


def blocks(text: int, keys: int, width: int) -> dict[str, int]:
    """How the kernel cuts so many text tokens, keys in all and numbers per head into powers of two."""
    full = 1 << (text.bit_length() - 1)
    return {"W": _power_of_two(width), "FULL": full, "REST": _power_of_two(text - full),
            "IMAGE": _power_of_two(keys - text)}  # fmt: skip


def _power_of_two(n: int) -> int:
    """The next one, 16 at least: matrix units take no less."""
    return max(16, 1 << max(0, n - 1).bit_length())
