"""A network's forward and backward as CUDA graphs: of thousands of small kernels a step the host launches two."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from onesdaug.common.progress import log
from onesdaug.training.stage import mixed_precision, own_randomness


class Apart(nn.Module):
    """Recording replaces the forward of the module it is given: the network, which others copy, keeps its own."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: Tensor) -> Any:
        return self.network(x)


def recorded(network: nn.Module, sample: Tensor) -> Callable[[Tensor], Any]:
    """The network in training, for batches like the sample; the network itself where nothing can be recorded.

    Weights and random numbers are those of the moment it is called, so a run that is resumed repeats itself; batch
    statistics and the caller's random numbers are left as they were.
    """
    if sample.device.type != "cuda":
        return network
    before = [buffer.clone() for buffer in network.buffers()]
    precision = mixed_precision(sample.device)
    try:
        with own_randomness(), torch.autocast("cuda", precision.fast_dtype, cache_enabled=False):
            made: Callable[[Tensor], Any] = torch.cuda.make_graphed_callables(
                Apart(network), (sample.clone(),), allow_unused_input=True
            )
    except RuntimeError as error:
        log.warning(f"steps are launched kernel by kernel: recording failed with {str(error).splitlines()[0]}")
        made = network
    with torch.no_grad():
        for buffer, value in zip(network.buffers(), before, strict=True):
            buffer.copy_(value)
    return made
