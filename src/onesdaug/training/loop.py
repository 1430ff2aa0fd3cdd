"""`fit`: the one way a network is trained here, with averaged weights, validation, a time budget, and resuming.

Step i draws all its randomness from (seed, i), so a resumed run needs no random state and repeats itself exactly.
"""

from __future__ import annotations

import copy
import json
import math
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from onesdaug.common.files import whole_file, write_text
from onesdaug.common.progress import Progress as Bar
from onesdaug.common.progress import log, progress
from onesdaug.errors import DataError
from onesdaug.training.stage import Stage, mix, own_randomness


class OutOfTime(Exception):
    """The wall-clock limit came before the last step; the state is on disk and the same call goes on from there."""


@dataclass
class Progress:
    """Everything a killed run needs besides weights and optimiser."""

    step: int = 0
    best: float = -1.0
    best_step: int = 0
    seconds: float = 0.0
    start: dict[str, float] = field(default_factory=dict)  # scores before the first step, where they count
    history: list[dict[str, Any]] = field(default_factory=list)


def fit(
    stage: Stage,
    folder: Path,
    name: str,
    *,
    seconds: float | None = None,
    deadline: float | None = None,
    cut: bool = False,
    save_seconds: float = 60.0,
) -> Loop:
    """Train; the stage's model then holds the weights that were kept, in eval mode.

    The state lies in `folder` under `name`, and the same call goes on from it. `seconds` sets the number of epochs to
    what fits; `deadline` (time.monotonic) raises OutOfTime in a run that must be resumed, or, with `cut`, ends it with
    what there is.
    """
    if stage.device.type == "cuda":
        torch.backends.cudnn.benchmark = True
    if seconds is not None:
        _fit_to_budget(stage, seconds, folder / f"{name}.plan.json")
    loop = Loop(stage, folder / f"{name}.loop.pt", save_seconds)
    with progress(stage.steps, "steps", name) as bar:
        loop.run(bar, deadline, cut)
    stage.model.load_state_dict(loop.best)
    stage.model.eval()
    return loop


class Loop:
    """The steps of a stage; `best` holds the weights that its scores choose."""

    def __init__(self, stage: Stage, state: Path, save_seconds: float) -> None:
        self.stage, self.state, self.save_seconds = stage, state, save_seconds
        self.optimizer = stage.optimizer()
        self.average: AveragedModel | None = None
        if stage.config.ema:
            self.average = AveragedModel(stage.model, multi_avg_fn=self._average, use_buffers=True)
            self.average.requires_grad_(False)
            self.average.n_averaged.fill_(1)  # or the first update would copy: the start is part of the average
        self.best: dict[str, Tensor] = {}
        self.progress = Progress()
        self.steps_per_second = 0.0  # of this call
        self._lrs = [group["lr"] for group in self.optimizer.param_groups]
        if state.is_file():
            self._resume()

    @property
    def validated(self) -> nn.Module:
        """The averaged network, or the trained one where nothing is averaged."""
        return self.stage.model if self.average is None else self.average.module

    def run(self, bar: Bar, deadline: float | None = None, cut: bool = False) -> None:
        p, stage, total = self.progress, self.stage, self.stage.steps
        every = stage.config.eval_every * stage.steps_per_epoch
        if stage.score_start and p.step == 0:
            p.start = stage.scores(self.validated)
            self._keep(p.start["score"])
            log.info(f"before training:{_shown(p.start)}")
        stage.train_mode()
        started = saved = time.monotonic()
        before, first = p.seconds, p.step
        bar.restart()
        bar.advance(0, skipped=first)
        with own_randomness():
            while p.step < total:
                loss = self._step(total)
                bar.advance()
                self.steps_per_second = (p.step - first) / max(1e-9, time.monotonic() - started)
                late = deadline is not None and time.monotonic() > deadline and p.step < total
                last = p.step == total or (late and cut)
                if last or p.step % every == 0:
                    self._validate(loss, total)
                now = time.monotonic()
                p.seconds = before + now - started
                if late or last or now - saved > self.save_seconds:
                    self.save()
                    saved = now
                if late and not cut:
                    raise OutOfTime(f"stopped after step {p.step} of {total}")
                if last:
                    break

    def _step(self, total: int) -> Tensor:
        p, config = self.progress, self.stage.config
        torch.manual_seed(mix(config.seed, p.step))
        scale = config.lr_scale(p.step, self.stage.steps_per_epoch, total)
        for group, lr in zip(self.optimizer.param_groups, self._lrs, strict=True):
            group["lr"] = lr * scale
        loss = self.stage.train_step(self.optimizer, p.step)
        p.step += 1
        if self.average is not None:
            self.average.update_parameters(self.stage.model)
        return loss

    def _average(self, averaged: Any, current: Any, _: Any) -> None:
        """Batch statistics are averaged as weights are; whole numbers (batches seen) are copied."""
        if averaged[0].is_floating_point():
            step = self.progress.step
            decay = min(self.stage.config.ema, (1 + step) / (10 + step))  # young averages forget quickly
            get_ema_multi_avg_fn(decay)(averaged, current, step)  # type: ignore[no-untyped-call]
        else:
            torch._foreach_copy_(averaged, current)

    def _validate(self, loss: Tensor, total: int) -> None:
        p = self.progress
        scores = self.stage.scores(self.validated)
        self.stage.train_mode()
        value = float(loss.detach())
        if not math.isfinite(value):
            raise DataError(f"the loss became {value} at step {p.step}; try a lower learning rate")
        if scores.get("score", math.inf) > p.best:
            self._keep(scores.get("score", p.best))
        p.history.append({"step": p.step, "loss": round(value, 4), **{k: round(v, 4) for k, v in scores.items()}})
        place = f"epoch {p.step / self.stage.steps_per_epoch:.0f} step {p.step}/{total}"
        log.info(f"{place} loss {value:.4f}{_shown(scores)} | {self.steps_per_second:.1f} steps/s")

    def _keep(self, score: float) -> None:
        self.progress.best, self.progress.best_step = score, self.progress.step
        self.best = {k: v.detach().cpu().clone() for k, v in self.validated.state_dict().items()}

    def save(self) -> None:
        """Whole or not at all: a kill while writing leaves the state before it."""
        state = {
            "config": repr(self.stage.config),
            "model": self.stage.model.state_dict(),
            "average": self.average and self.average.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "best": self.best,
            "progress": vars(self.progress),
        }
        with whole_file(self.state) as temporary:
            torch.save(state, temporary)

    def _resume(self) -> None:
        stored = torch.load(self.state, map_location="cpu", weights_only=True)
        if stored["config"] != repr(self.stage.config):
            raise DataError(f"{self.state} belongs to a run with other settings; delete it or choose another folder")
        self.stage.model.load_state_dict(stored["model"])
        if self.average is not None:
            self.average.load_state_dict(stored["average"])
        self.optimizer.load_state_dict(stored["optimizer"])
        self.best, self.progress = stored["best"], Progress(**stored["progress"])
        log.info(f"resumed {self.state} at step {self.progress.step} of {self.stage.steps}")


def _shown(scores: dict[str, float]) -> str:
    return "".join(f" {name} {value:.2f}" for name, value in scores.items())


def _fit_to_budget(stage: Stage, seconds: float, plan: Path, warm: int = 8, timed: int = 24) -> None:
    """Give the stage as many epochs as fit, its validations included, as measured on the machine itself.

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
        chosen = {"epochs": epochs, "eval_every": math.ceil(epochs / stage.validations),
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
