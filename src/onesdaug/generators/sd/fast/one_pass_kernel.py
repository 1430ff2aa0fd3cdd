"""The Triton kernel of `one_pass`; imported at its first call, because torch for a CPU comes without Triton."""

import triton
import triton.language as tl


@triton.jit
def kernel(
    q, kv, scale, out, places, log2_scale, heads, kv_row, kv_key,
    TEXT: tl.constexpr, KEYS: tl.constexpr, WIDTH: tl.constexpr, W: tl.constexpr,
    FULL: tl.constexpr, REST: tl.constexpr, IMAGE: tl.constexpr, QUERIES: tl.constexpr, BLOCKS: tl.constexpr,
):  # fmt: skip
    """One program: one head of one row, BLOCKS times QUERIES places; W is WIDTH as a power of two.

    Blocks of keys are powers of two as well: FULL and REST of the text, IMAGE of the picture. 64 + 16 + 16 of them
    hold the usual 77 + 4, where one block would take 128.
    """
    head, first, row = tl.program_id(0), tl.program_id(1) * QUERIES * BLOCKS, tl.program_id(2).to(tl.int64)
    d, m = tl.arange(0, W), tl.arange(0, QUERIES)
    shift = heads * WIDTH  # from place to place, and from a key to its value
    base = kv + row * kv_row + head * WIDTH
    k_full, v_full = _pair(base, shift, kv_key, 0, FULL, FULL, WIDTH, W)
    k_rest, v_rest = _pair(base, shift, kv_key, FULL, TEXT - FULL, REST, WIDTH, W)
    k_image, v_image = _pair(base, shift, kv_key, TEXT, KEYS - TEXT, IMAGE, WIDTH, W)
    strength = tl.load(scale + row)
    start = (row * places * heads + head) * WIDTH
    q, out = q + start, out + start  # one long number each; from there on short ones do
    for block in range(BLOCKS):
        place = first + block * QUERIES + m
        mine = (place[:, None] < places) & (d[None, :] < WIDTH)
        here = place[:, None] * shift + d[None, :]
        x = tl.load(q + here, mask=mine, other=0.0)
        full, rest = tl.dot(x, tl.trans(k_full)), _masked(tl.dot(x, tl.trans(k_rest)), TEXT - FULL, REST)
        image = _masked(tl.dot(x, tl.trans(k_image)), KEYS - TEXT, IMAGE)
        most = tl.maximum(tl.max(full, 1), tl.max(rest, 1)) * log2_scale
        full = tl.exp2(full * log2_scale - most[:, None])
        rest = tl.exp2(rest * log2_scale - most[:, None])
        image = tl.exp2((image - tl.max(image, 1)[:, None]) * log2_scale)
        words, look = tl.sum(full, 1) + tl.sum(rest, 1), tl.sum(image, 1)
        # one sum of values for both softmaxes: the picture's share is put in the text's measure first
        image *= (strength * words / look)[:, None]
        total = tl.dot(full.to(v_full.dtype), v_full)
        total = tl.dot(rest.to(v_rest.dtype), v_rest, total)
        total = tl.dot(image.to(v_image.dtype), v_image, total)
        tl.store(out + here, (total / words[:, None]).to(out.dtype.element_ty), mask=mine)


@triton.jit
def _pair(base, shift, step, first, count, N: tl.constexpr, WIDTH: tl.constexpr, W: tl.constexpr):
    """Keys and values from `first` on, N rows of which `count` are there."""
    key, d = tl.arange(0, N), tl.arange(0, W)
    inside = (key[:, None] < count) & (d[None, :] < WIDTH)
    at = base + (first + key)[:, None] * step + d[None, :]
    return tl.load(at, mask=inside, other=0.0), tl.load(at + shift, mask=inside, other=0.0)


@triton.jit
def _masked(score, count, N: tl.constexpr):
    return tl.where(tl.arange(0, N)[None, :] < count, score, -float("inf"))
