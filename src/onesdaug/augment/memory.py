"""What a batch cost in memory, and whether an error was the lack of it."""

from __future__ import annotations

import gc
import sys

import torch


def is_out_of_memory(error: RuntimeError) -> bool:
    """CUDA raises a class of its own; MPS and the CPU allocator only say so."""
    text = str(error).lower()
    return isinstance(error, torch.OutOfMemoryError) or "out of memory" in text or "can't allocate memory" in text


def reset_peak_memory(device: torch.device, free: bool = False) -> None:
    """Start a new measurement; `free` also hands cached blocks back after an out-of-memory error."""
    if free:
        gc.collect()
    if device.type == "cuda":
        if free:
            torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)


def peak_memory_mb(device: torch.device, held_mb: float = 0.0) -> float:
    """Peak since the reset on CUDA; elsewhere the process's peak resident set.

    What recorded graphs keep (`held_mb`) the allocator does not count: a replay needs it beside all that is allocated.
    """
    if device.type == "cuda":
        now = torch.cuda.memory_allocated(device) / 2**20
        return max(torch.cuda.max_memory_allocated(device) / 2**20, now + held_mb)
    if sys.platform == "win32":
        return 0.0
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**20 if sys.platform == "darwin" else 2**10)
