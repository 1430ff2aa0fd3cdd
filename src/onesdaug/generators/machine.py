"""Which device and which precision: chosen sensibly, and checked before anything is loaded."""

from __future__ import annotations

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
