"""Which device and which precision, checked before anything is loaded; what a batch cost in memory, or lacked."""

from __future__ import annotations

import gc
import sys

import torch

from onesdaug.errors import ConfigError

_DTYPES = {
    **dict.fromkeys(("float32", "fp32"), torch.float32),
    **dict.fromkeys(("float16", "fp16", "half"), torch.float16),
    **dict.fromkeys(("bfloat16", "bf16"), torch.bfloat16),
}


def pick_device(device: str | torch.device = "auto") -> torch.device:
    """`auto`: CUDA, then Apple's MPS, then the CPU; a device that is not there is an error at once."""
    if str(device) == "auto":
        if torch.cuda.is_available():
            return torch.device("cuda")
        return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
    try:
        chosen = torch.device(device)
    except RuntimeError:
        raise ConfigError(f"device {device!r} is not known; use auto, cpu, cuda, cuda:1 or mps") from None
    there = {"cuda": torch.cuda.device_count(), "mps": int(torch.backends.mps.is_available())}
    if chosen.type in there and (chosen.index or 0) >= there[chosen.type]:
        raise ConfigError(f"device {device} is not on this machine ({there[chosen.type]} {chosen.type} devices found)")
    return chosen


def pick_dtype(dtype: str | torch.dtype, device: torch.device) -> torch.dtype:
    """`auto`: bfloat16 where the GPU computes in it, else float16 there; float32 on a CPU."""
    if isinstance(dtype, torch.dtype):
        return dtype
    if dtype in _DTYPES:
        return _DTYPES[dtype]
    if dtype != "auto":
        raise ConfigError(f"dtype {dtype!r} is not known; use auto, {', '.join(_DTYPES)}")
    if device.type == "cuda":
        # is_bf16_supported() also says yes to cards that only emulate it (before compute capability 8)
        native = torch.version.hip is not None or torch.cuda.get_device_properties(device).major >= 8
        return torch.bfloat16 if native else torch.float16
    return torch.float16 if device.type == "mps" else torch.float32


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
