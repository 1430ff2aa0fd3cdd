"""The one timer: it waits for the device, and never takes longer than it was given."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

import torch


@dataclass(frozen=True)
class Timed:
    """Seconds of the first call, which warms up (and may compile), and of each one after all warm-ups."""

    first: float
    each: tuple[float, ...]

    @property
    def median(self) -> float:
        return median(self.each)

    @property
    def sustained(self) -> float:
        """Seconds per call over all of them: what a long job sees."""
        return sum(self.each) / len(self.each)


def synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    elif device.type == "mps":
        torch.mps.synchronize()


def repeat(
    work: Callable[[], object],
    device: torch.device,
    seconds: float,
    most: int = 1000,
    warm_ups: int = 1,
    least: int = 1,
) -> Timed:
    """Call `work` to warm up, then until `seconds` are over or `most` calls are made; `least` calls in any case."""
    first, *_ = (_once(work, device) for _ in range(warm_ups))
    each: list[float] = []
    while len(each) < least or (sum(each) < seconds and len(each) < most):
        each.append(_once(work, device))
    return Timed(first, tuple(each))


def _once(work: Callable[[], object], device: torch.device) -> float:
    synchronize(device)
    began = time.perf_counter()
    work()
    synchronize(device)
    return time.perf_counter() - began
