"""How many epochs fit into a time budget: measured on the machine itself, then fixed and written down."""

from __future__ import annotations

import copy
import json
import time
from pathlib import Path

import torch

from onesdaug.common.files import write_text
from onesdaug.common.progress import log
from onesdaug.training.stage import Stage, own_randomness


def fit_to_budget(stage: Stage, seconds: float, plan: Path, warm: int = 8, timed: int = 24) -> None:
    """Give the stage as many epochs as fit, its validations included.

    A resumed run reads what its first start chose, or it would train something else.
    """
    if plan.is_file():
        chosen = json.loads(plan.read_text())
    else:
        log.info(f"budget {seconds:.0f} s: measuring how many epochs fit")
        began = time.monotonic()
        per_step, per_eval = _measure(stage, seconds, warm, timed)
        left = 0.97 * (seconds - (time.monotonic() - began)) - stage.validations * per_eval
        epochs = max(1, int(left / (per_step * stage.steps_per_epoch)))
        log.info(f"budget {seconds:.0f} s: {1 / per_step:.1f} steps/s, validation {per_eval:.2f} s -> {epochs} epochs")
        chosen = {"epochs": epochs, "eval_every": max(1, epochs // stage.validations),
                  "seconds_per_step": per_step, "seconds_per_eval": per_eval}  # fmt: skip
        write_text(plan, json.dumps(chosen) + "\n")
    stage.set_epochs(int(chosen["epochs"]), int(chosen["eval_every"]))


def _measure(stage: Stage, seconds: float, warm: int, timed: int) -> tuple[float, float]:
    """Seconds of a step and of a validation; leaves no trace in the weights."""
    before = copy.deepcopy(stage.model.state_dict())
    optimizer = stage.optimizer()
    per_step = 0.0
    with own_randomness():
        stage.train_mode()
        for count in (warm, timed):
            start, done = time.monotonic(), 0
            while done < count and (done < 4 or time.monotonic() - start < seconds / 20):  # both shots, twice
                stage.train_step(optimizer, done)
                done += 1
            if stage.device.type == "cuda":
                torch.cuda.synchronize(stage.device)
            per_step = (time.monotonic() - start) / done  # the second count's is kept
        stage.scores(stage.model)  # once to warm up
        start = time.monotonic()
        stage.scores(stage.model)
        per_eval = time.monotonic() - start
    stage.model.load_state_dict(before)
    return per_step, per_eval
