"""Compiled networks: what `compile="regional"` and `"max"` do to a generator's modules.

`regional` compiles the blocks that repeat, once each: it starts in seconds. `max` compiles whole networks: minutes at
the start. Shapes are fixed (`dynamic=False`), so the operator pads its last batch, and every graph must be whole
(`fullgraph=True`): a place where Python has to look at a tensor is an error here, not a slow surprise.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from contextlib import suppress
from importlib.util import find_spec
from threading import Thread
from typing import Any, get_args

import torch
from torch import nn

from onesdaug.common.options import Compile as Compile
from onesdaug.errors import ConfigError

# tests compile with a backend that needs no C++ compiler; benchmarks may add inductor's options
BACKEND = "inductor"
OPTIONS: dict[str, dict[str, Any]] = {"regional": {}, "max": {"conv_1x1_as_mm": True}}
_VERSIONS = 64  # of one block: a UNet has four sizes of it, each with and without the negative rows of guidance


def check_compile(mode: str, device: torch.device) -> None:
    """Say at once what cannot be compiled here; nothing is loaded yet."""
    if mode not in get_args(Compile):
        raise ConfigError(f"compile {mode!r} is none of {', '.join(get_args(Compile))}")
    if mode == "off" or BACKEND != "inductor":
        return
    if device.type not in ("cuda", "cpu"):
        raise ConfigError(f"compile {mode!r} works on cuda and on the CPU; on {device.type} leave it off")
    if device.type == "cpu" and not any(shutil.which(name) for name in ("c++", "g++", "clang++")):
        raise ConfigError(f"compile {mode!r} on a CPU needs a C++ compiler, and none was found; leave it off")
    if device.type == "cuda" and find_spec("triton") is None:
        raise ConfigError(f"compile {mode!r} on a GPU needs the package triton, which torch brings")


def set_switches(mode: str, device: torch.device) -> None:
    """What `max` changes for the whole process. A comparison sets it before either side is measured."""
    if mode == "max" and device.type == "cuda":
        torch.backends.cudnn.benchmark = True  # pays off where shapes never change, after seconds at the start


def switches() -> dict[str, bool | str]:
    """torch's global switches that decide speed, as they stand: stored beside every rate."""
    return {
        "cudnn.benchmark": torch.backends.cudnn.benchmark,
        "cudnn.allow_tf32": torch.backends.cudnn.allow_tf32,
        "float32_matmul_precision": torch.get_float32_matmul_precision(),
    }


def start_workers(mode: str, device: torch.device) -> None:
    """Start now what takes seconds and leaves Python free to import and load models meanwhile."""
    if mode != "off" and BACKEND == "inductor" and device.type == "cuda":
        from torch._inductor.async_compile import maybe_warm_pool

        maybe_warm_pool()  # processes that import torch; until they are up kernels queue up here
        Thread(target=_touch, args=(device,), daemon=True).start()


def _touch(device: torch.device) -> None:
    """Have CUDA load its libraries: a gigabyte, which otherwise the first batch waits for."""
    with suppress(RuntimeError):  # if there is no memory even for this, the real work will say so
        x = torch.zeros(8, 8, 8, 8, dtype=torch.float16, device=device)
        torch.nn.functional.conv2d(x, x, padding=4)
        torch.nn.functional.scaled_dot_product_attention(x, x, x)
        torch.nn.functional.linear(x, x[0, 0])


def to_compile(now: Compile, mode: Compile, device: torch.device) -> bool:
    """Whether there is anything to do for a model that is compiled as `now`; another mode needs it loaded again."""
    check_compile(mode, device)
    if mode in ("off", now):
        return False
    if now != "off":
        raise ConfigError(f"this model is compiled with {now!r} already; load it again for {mode!r}")
    return True


def compile_modules(modules: Iterable[nn.Module], mode: Compile) -> None:
    """Replace the forward of each module by its compiled one; modules of one kind and size share one compilation."""
    from torch._dynamo import config

    name = "recompile_limit" if hasattr(config, "recompile_limit") else "cache_size_limit"  # before torch 2.6
    setattr(config, name, max(_VERSIONS, getattr(config, name)))
    settings: dict[str, Any] = {"options": OPTIONS[mode]} if BACKEND == "inductor" and OPTIONS[mode] else {}
    for module in modules:
        module.forward = torch.compile(module.forward, backend=BACKEND, fullgraph=True, dynamic=False, **settings)


def named(root: nn.Module, *kinds: str) -> list[nn.Module]:
    """The modules under `root` whose class has one of these names."""
    return [module for module in root.modules() if type(module).__name__ in kinds]


def channels_last(*modules: nn.Module) -> None:
    """Weights of convolutions with colours last, the order tensor cores read; exact, and it spares transposes."""
    for module in modules:
        module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
