"""How a batch is run on the device: as it comes, or in one fixed shape and on CUDA from a CUDA graph.

Networks treat rows independently, so rows that only fill a batch up change no other row; they are dropped again.
A CUDA graph replays thousands of kernels with one launch: at batch 1 the host cannot launch them as fast as an H100
runs them, and at any size launching keeps the interpreter from the threads that decode and encode pictures. What is
captured must be the same every time: fixed shapes, no number fetched from the device, nothing copied from the host.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from threading import Lock
from typing import Any

import torch

from onesdaug.common.progress import log
from onesdaug.generators.base import Generator
from onesdaug.generators.speed import Compile

Function = Callable[..., torch.Tensor]
Captured = tuple[Any, list[torch.Tensor], torch.Tensor]  # the graph, its inputs, its output


class Graphed:
    """`function` of tensors only, captured for each set of shapes that it meets a second time.

    The first call runs eagerly (it also compiles and autotunes), so a single view never pays for a capture. `pool` is
    memory that several graphs may share, because only one of them runs at a time.
    """

    def __init__(self, function: Function, pool: Any = None) -> None:
        self.function, self.pool = function, pool
        self.held = 0  # bytes that recordings keep, beyond what the allocator counts as allocated
        self._recorded: dict[Any, Captured | None] = {}
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

    def _try(self, inputs: tuple[torch.Tensor, ...]) -> Captured | None:
        try:
            return self.record([x.clone() for x in inputs])
        except RuntimeError as error:  # lack of memory too: without a recording there was enough
            log.warning("no CUDA graph could be recorded, going on without: %s", str(error).partition("\n")[0])
            return None

    def record(self, static: list[torch.Tensor]) -> Captured:
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


class Engine:
    """Runs the parts of one `Stages`. Without compilation it does nothing but call them, unless told to use graphs."""

    def __init__(self, compiled: Compile = "off", device: torch.device | None = None, graphs: bool = False) -> None:
        self.compiled, self.device = compiled, device or torch.device("cpu")
        self.fixed = compiled != "off" or graphs
        self._graphs: dict[str, Graphed] = {}
        self._lock = Lock()

    @classmethod
    def of(cls, generator: Generator | None, device: torch.device) -> Engine:
        """The engine that fits how the generator's networks are compiled."""
        return cls("off" if generator is None else generator.compiled, device)

    def rows(self, needed: int, batch_size: int) -> int:
        """How many rows are really computed."""
        return max(needed, batch_size) if self.fixed else needed

    def images(self, needed: int, rows: int) -> int:
        """For how many images tokens are really made: powers of two; each number that is met is compiled or recorded.

        A batch of `rows` views may be of as many images, or of one; the last of a job mostly is of fewer.
        """
        return max(needed, min(rows, 1 << (needed - 1).bit_length())) if self.fixed else needed

    @property
    def records(self) -> bool:
        """Whether batches are recorded and replayed."""
        return self.fixed and self.device.type == "cuda"

    @property
    def held_mb(self) -> float:
        """Memory of the device that recordings keep, beyond what the allocator counts as allocated."""
        return sum(graphed.held for graphed in list(self._graphs.values())) / 2**20

    def run(self, name: str, function: Function, *inputs: torch.Tensor) -> torch.Tensor:
        """`function(*inputs)`; under one name it must always be the same function of nothing but its inputs."""
        if not self.records:
            return function(*inputs)
        with self._lock:  # a recording has one set of inputs: no other thread comes between them and the replay
            if name not in self._graphs:
                self._graphs[name] = Graphed(function, self._pool)
            return self._graphs[name](*inputs)

    @cached_property
    def _pool(self) -> Any:
        return torch.cuda.graph_pool_handle()


def pad(x: torch.Tensor, rows: int) -> torch.Tensor:
    """The batch with its last row repeated until there are `rows`: numbers that are known to be harmless."""
    short = rows - x.shape[0]
    return x if short <= 0 else torch.cat([x, x[-1:].expand(short, *x.shape[1:])])
