"""CUDA graphs: a function of tensors is recorded once and replayed with one launch instead of thousands.

At batch 1 the host cannot launch kernels as fast as an H100 runs them; a recorded graph takes it out of the way. What
is recorded must be the same every time: fixed shapes, no number fetched from the device, nothing copied from the host.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import torch

from onesdaug.augment.memory import is_out_of_memory

log = logging.getLogger("onesdaug")
Function = Callable[..., torch.Tensor]
Recorded = tuple[Any, list[torch.Tensor], torch.Tensor]  # the graph, its inputs, its output
_WARM_UPS = 2  # compilation, choice of kernels and workspaces must lie before the recording


class Graphed:
    """`function` of tensors only, recorded for each set of shapes it meets."""

    def __init__(self, function: Function) -> None:
        self.function = function
        self._recorded: dict[Any, Recorded | None] = {}

    def __call__(self, *inputs: torch.Tensor) -> torch.Tensor:
        key = tuple((x.shape, x.dtype) for x in inputs)
        if key not in self._recorded:
            self._recorded[key] = self._try(inputs)
        recorded = self._recorded[key]
        if recorded is None:
            return self.function(*inputs)
        graph, static, out = recorded
        for place, x in zip(static, inputs, strict=True):
            place.copy_(x)
        graph.replay()
        return out.clone()  # the next replay writes into the same memory

    def _try(self, inputs: tuple[torch.Tensor, ...]) -> Recorded | None:
        try:
            return self.record([x.clone() for x in inputs])
        except RuntimeError as error:
            if is_out_of_memory(error):
                raise
            log.warning("no CUDA graph could be recorded, going on without: %s", str(error).partition("\n")[0])
            return None

    def record(self, static: list[torch.Tensor]) -> Recorded:
        """Warm up on a stream of its own, as torch asks for, then record."""
        with torch.cuda.device(static[0].device):  # streams and graphs belong to the current device
            side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                for _ in range(_WARM_UPS):
                    self.function(*static)
            torch.cuda.current_stream().wait_stream(side)
            graph = torch.cuda.CUDAGraph()
            # other threads may go on decoding pictures and copying them meanwhile
            with torch.cuda.graph(graph, capture_error_mode="thread_local"):
                out = self.function(*static)
        return graph, static, out
