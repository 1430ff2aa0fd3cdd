"""How many epochs fit into a time budget: measured on the machine itself, then fixed and written down."""

from __future__ import annotations

import copy
import json
import time
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor, nn

from onesdaug.common.files import write_text
from onesdaug.training.loop import Log, LoopConfig


class Stage(Protocol):
    """What a training stage offers."""

    device: torch.device
    steps_per_epoch: int

    @property
    def model(self) -> nn.Module: ...
    @property
    def config(self) -> LoopConfig: ...
    def loss(self, step: int) -> Tensor: ...
    def scores(self, model: nn.Module) -> dict[str, float]: ...
    def optimizer(self) -> torch.optim.Optimizer: ...


def fit_to_budget(
    stage: Stage, seconds: float, plan: Path, log: Log, warm: int = 8, timed: int = 24, evals: int = 20
) -> tuple[int, int]:
    """Epochs that fit, and epochs between two of about `evals` validations.

    A resumed run reads what its first start chose, or it would train something else.
    """
    if plan.is_file():
        chosen = json.loads(plan.read_text())
        return int(chosen["epochs"]), int(chosen["eval_every"])
    log(f"budget {seconds:.0f} s: measuring how many epochs fit")
    began = time.monotonic()
    before = copy.deepcopy(stage.model.state_dict())
    optimizer = stage.optimizer()
    with torch.random.fork_rng(devices=[torch.cuda.current_device()] if stage.device.type == "cuda" else []):
        per_step = 0.0
        for count in (warm, timed):
            start, done = time.monotonic(), 0
            while done < count and (done < 4 or time.monotonic() - start < seconds / 20):  # both shots, twice
                optimizer.zero_grad(set_to_none=True)
                stage.loss(done).backward()  # type: ignore[no-untyped-call]
                optimizer.step()
                done += 1
            _wait(stage.device)
            per_step = (time.monotonic() - start) / done  # the second count's is kept
        stage.scores(stage.model)  # once to warm up
        start = time.monotonic()
        stage.scores(stage.model)
        per_eval = time.monotonic() - start
    stage.model.load_state_dict(before)  # the probe leaves no trace in the weights
    left = 0.97 * (seconds - (time.monotonic() - began)) - evals * per_eval
    epochs = max(1, int(left / (per_step * stage.steps_per_epoch)))
    eval_every = max(1, epochs // evals)
    log(f"budget {seconds:.0f} s: {1 / per_step:.1f} steps/s, validation {per_eval:.2f} s -> {epochs} epochs")
    found = {"epochs": epochs, "eval_every": eval_every, "seconds_per_step": per_step, "seconds_per_eval": per_eval}
    write_text(plan, json.dumps(found) + "\n")
    return epochs, eval_every


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
