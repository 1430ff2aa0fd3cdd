"""How fast this machine multiplies matrices, and how many operations a view takes: together, the limit."""

from __future__ import annotations

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from onesdaug.augment.operator import Augmenter
from onesdaug.common.clock import repeat


def matmul_limit(device: torch.device, dtype: torch.dtype, seconds: float) -> tuple[float, float]:
    """Operations per second of one large matrix product in this precision: the best of what was seen, and sustained.

    A chip at its power limit slows down after a moment: what lasts for seconds is the sustained one.
    """
    side = 8192 if device.type == "cuda" else 1024
    a, b = (torch.randn(side, side, device=device, dtype=dtype) for _ in range(2))
    taken = repeat(lambda: a @ b, device, seconds, most=10**6)
    return 2 * side**3 / min(taken.each), 2 * side**3 / taken.sustained


@torch.no_grad()
def flops(augmenter: Augmenter) -> dict[str, float]:
    """Operations of one view by stage, counted on one row of networks that are not compiled yet."""
    generator, stages = augmenter.generator, augmenter.stages
    assert generator is not None and stages.table is not None
    x = torch.rand(1, 3, generator.size, generator.size, device=augmenter.device)
    z = generator.encode(x)
    tokens, scale = generator.image_tokens(x), torch.ones(1, device=augmenter.device)
    negative = [generator.null_tokens(1)] if any(stages.guided) else []
    step_noise = [torch.zeros_like(z)] * int((stages.table.s > 0).sum())

    def count(work: object) -> float:
        # plain attention: the counter knows matrix products everywhere, fused kernels only on some devices
        with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
            work()  # type: ignore[operator]
        return float(counter.get_total_flops())

    decode = count(lambda: generator.decode(z))
    return {
        "encode": count(lambda: generator.encode(x)),
        "tokens": count(lambda: generator.image_tokens(x)),
        "denoise": count(lambda: stages._denoised(z, tokens, scale, *negative, *step_noise)) - decode,
        "decode": decode,
    }
