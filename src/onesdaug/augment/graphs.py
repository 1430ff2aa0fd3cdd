"""CUDA graphs: a function of tensors is recorded once and replayed with one launch instead of thousands.

At batch 1 the host cannot launch kernels as fast as an H100 runs them. At any size launching needs the interpreter
thousands of times, which the threads that decode and encode pictures want too. A recorded graph takes the host out of
the way. What is recorded must be the same every time: fixed shapes, no number fetched from the device, nothing copied
from the host.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import torch

log = logging.getLogger("onesdaug")
Function = Callable[..., torch.Tensor]
Recorded = tuple[Any, list[torch.Tensor], torch.Tensor]  # the graph, its inputs, its output


class Graphed:
    """`function` of tensors only, recorded for each set of shapes that it meets a second time.

    The first time it just runs, which compiles and chooses kernels: who wants one view waits for no recording.
    `pool` is memory that several recordings may share, because only one of them runs at a time.
    """

    def __init__(self, function: Function, pool: Any = None) -> None:
        self.function, self.pool = function, pool
        self.held = 0  # bytes that recordings keep, beyond what the allocator counts as allocated
        self._recorded: dict[Any, Recorded | None] = {}
        self._met: set[Any] = set()

    def __call__(self, *inputs: torch.Tensor) -> torch.Tensor:
        key = tuple((x.shape, x.dtype) for x in inputs)
        if key not in self._met:
            out = self.function(*inputs)
            self._met.add(key)  # unless it failed
            return out
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
        except RuntimeError as error:  # lack of memory too: without a recording there was enough
            log.warning("no CUDA graph could be recorded, going on without: %s", str(error).partition("\n")[0])
            return None

    def record(self, static: list[torch.Tensor]) -> Recorded:
        """Warm up once more on a stream of its own, as torch asks for, then record."""
        with torch.cuda.device(static[0].device):  # streams and graphs belong to the current device
            side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                self.function(*static)
            torch.cuda.current_stream().wait_stream(side)
            torch.cuda.synchronize()
            torch.cuda.empty_cache()
            before = torch.cuda.memory_reserved()
            graph = torch.cuda.CUDAGraph()
            # other threads may go on decoding pictures and copying them meanwhile
            with torch.cuda.graph(graph, pool=self.pool, capture_error_mode="thread_local"):
                out = self.function(*static)
            self.held += torch.cuda.memory_reserved() - before
        return graph, static, out
