"""The Triton kernel of `one_pass`; imported at its first call, because torch for a CPU comes without Triton."""

import triton
import triton.language as tl


@triton.jit
def kernel(
    q, kv, scale, out, places, log2_scale, heads,
    TEXT: tl.constexpr, KEYS: tl.constexpr, WIDTH: tl.constexpr, W: tl.constexpr, K: tl.constexpr,
    QUERIES: tl.constexpr, BLOCKS: tl.constexpr,
):  # fmt: skip
    """One program: one head of one row, BLOCKS times QUERIES places. W and K are WIDTH and KEYS as powers of two."""
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
        # both softmaxes with one exponential per score: each key is measured against the largest of its own kind
        most = tl.where(text[None, :], tl.max(tl.where(text[None, :], score, -float("inf")), 1)[:, None],
                        tl.max(tl.where(image[None, :], score, -float("inf")), 1)[:, None])  # fmt: skip
        power = tl.where(key[None, :] < KEYS, tl.exp2(score - most), 0.0)
        words = tl.sum(tl.where(text[None, :], power, 0.0), 1)[:, None]
        look = tl.sum(tl.where(image[None, :], power, 0.0), 1)[:, None]
        weight = power * tl.where(text[None, :], 1.0 / words, strength / look)
        tl.store(out + here, tl.dot(weight.to(values.dtype), values).to(out.dtype.element_ty), mask=mine)
