"""How fast the stages of a generator go on a lent machine; what is compiled stays in its cache."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

PLAIN_TOO = ("autoencoder", "decoder")  # short stages, for which compiling may not pay
LONG = 300.0  # seconds of a stage for which compiling pays without a cache


def measure_stages(run: Any, names: Sequence[str], work: Path, steps: int) -> None:
    """Steps per second of these stages, plain and compiled, on noise, to probe-STAGE.json of the first of them."""
    found: dict[str, float] = {}
    for name in names:
        for compiled in (False, True) if name in PLAIN_TOO else (True,):
            began = time.monotonic()
            try:
                stage = run.builder(name)()
                if compiled:
                    stage.compile()
                found[f"{name}{' compiled' if compiled else ''}"] = _rate(stage, steps)
            except Exception:
                print(traceback.format_exc())
            print(f"{name}, compiled {compiled}: {time.monotonic() - began:.0f} s, {found}", flush=True)
        (work / f"probe-{names[0]}.json").write_text(json.dumps(found))
    (work / f"probe-{names[0]}.done").touch()


def _rate(stage: Any, steps: int) -> float:
    import torch

    optimizer = stage.optimizer()
    for step in range(steps):
        if step == steps // 2:
            _wait(torch)
            began = time.monotonic()
        stage.train_step(optimizer, step)
    _wait(torch)
    return round((steps - steps // 2) / (time.monotonic() - began), 2)


def _wait(torch: Any) -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def end_probe(work: Path, what: str, patience: float = 60.0) -> None:
    """Wait a little for what is being compiled in the background, then end it: the machine is needed."""
    end = time.monotonic() + patience
    for number in sorted(work.glob(f"probe-{what}*.pid")):
        while time.monotonic() < end and not number.with_suffix(".done").is_file():
            time.sleep(1)
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(number.read_text()), signal.SIGTERM)
        number.unlink()


def pays(work: Path, name: str, seconds: float) -> bool:
    """Whether compiled steps are faster by more than compiling costs.

    A denoiser's are nearly twice as fast (H200), for a minute and a half: a short one needs the cache of a probe.
    """
    found: dict[str, float] = {}
    for record in work.glob("probe-*.json"):
        found.update(json.loads(record.read_text()))
    if name not in PLAIN_TOO:
        return seconds >= LONG or any(stage.startswith("denoiser") for stage in found)
    return found.get(f"{name} compiled", 0.0) > 1.2 * found.get(name, float("inf"))
