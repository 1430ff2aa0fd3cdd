"""How a batch is run on the device: as it comes, or in one fixed shape and on CUDA from a recorded graph.

Networks treat rows independently, so rows that only fill a batch up change no other row; they are dropped again.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from threading import Lock
from typing import Any

import torch

from onesdaug.augment.graphs import Graphed
from onesdaug.generators.base import Generator
from onesdaug.generators.speed import Compile

Function = Callable[..., torch.Tensor]


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
