"""A linear layer into values and gates, and values · gelu(gates), in one Triton kernel for Hopper and newer GPUs.

Half of what the layer puts out only decides about the other half: it is never written down here, where cuBLAS's
product and a compiled pass over it write and read both.
"""

from __future__ import annotations

import torch
from torch import nn

_ROWS, _COLUMNS, _DEPTH = 128, 64, 64  # small enough for two programs at once: one multiplies while one writes
_OPTIONS = {"num_warps": 4, "num_stages": 3}


def takes(layer: nn.Linear) -> bool:
    """Whether the kernel is for this layer into values and gates, on its device and in its precision."""
    weight = layer.weight
    if not weight.is_cuda or weight.dtype not in (torch.bfloat16, torch.float16) or layer.bias is None:
        return False
    whole = weight.shape[0] % (2 * _COLUMNS) == 0 and weight.shape[1] % 8 == 0  # of columns, and of 16 bytes
    return whole and torch.cuda.get_device_capability(weight.device)[0] >= 9  # which fetches tiles by itself


@torch.library.custom_op("onesdaug::geglu", mutates_args=())
def geglu(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """x (…, K), weight (2·N, K), bias (2·N) → (…, N)."""
    from triton.tools.tensor_descriptor import TensorDescriptor

    from onesdaug.generators.sd.fast.geglu_kernel import kernel

    rows = x.reshape(-1, x.shape[-1]).contiguous()
    weight, n = weight.contiguous(), weight.shape[0] // 2
    out = torch.empty(len(rows), n, dtype=x.dtype, device=x.device)
    tiles = ((rows, _ROWS, _DEPTH), (weight, _COLUMNS, _DEPTH), (out, _ROWS, _COLUMNS))
    from_x, from_weight, into = (TensorDescriptor.from_tensor(table, [high, wide]) for table, high, wide in tiles)
    grid = (-(-len(rows) // _ROWS) * (n // _COLUMNS),)
    with torch.cuda.device(x.device):
        kernel[grid](from_x, from_weight, bias, into, n, rows.shape[1], _ROWS, _COLUMNS, _DEPTH, **_OPTIONS)
    return out.reshape(*x.shape[:-1], n)


@geglu.register_fake
def _(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return x.new_empty(*x.shape[:-1], weight.shape[0] // 2)
