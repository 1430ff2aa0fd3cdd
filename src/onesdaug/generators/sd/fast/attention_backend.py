"""Which of torch's attention kernels is fastest here: measured on the spot, because it depends on card and size."""

from __future__ import annotations

import time

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from onesdaug.common.progress import log

_EXACT = ("CUDNN_ATTENTION", "FLASH_ATTENTION", "EFFICIENT_ATTENTION")
_RUNS = 10


def fastest_first(rows: int, heads: int, tokens: int, width: int, dtype: torch.dtype) -> list[SDPBackend]:
    """The kernels that take self-attention of this size on the GPU, fastest first; `MATH` last, for all else."""
    q = torch.randn(rows, heads, tokens, width, device="cuda", dtype=dtype)
    taken: dict[SDPBackend, float] = {}
    for name in _EXACT:
        backend = getattr(SDPBackend, name, None)
        if backend is None:
            continue
        try:
            with sdpa_kernel(backend):
                for run in range(_RUNS + 3):
                    if run == 3:  # the first ones choose and load kernels
                        torch.cuda.synchronize()
                        began = time.perf_counter()
                    scaled_dot_product_attention(q, q, q)
                torch.cuda.synchronize()
                taken[backend] = time.perf_counter() - began
        except RuntimeError:  # this one does not take such heads
            continue
    order = sorted(taken, key=lambda backend: taken[backend])
    shown = ", ".join(f"{backend.name} {1e3 * taken[backend] / _RUNS:.2f} ms" for backend in order)
    log.info("attention over %d rows of %d tokens: %s", rows, tokens, shown or "no fused kernel")
    return [*order, SDPBackend.MATH]
