"""The training loop every stage runs: seeds, schedule, averaged weights, validation, resuming.

Step i draws all its randomness from (seed, i), so a resumed run needs no random state and repeats itself exactly.
"""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

import torch
from torch import Tensor, nn

from onesdaug.common.files import whole_file
from onesdaug.common.progress import log, progress
from onesdaug.errors import DataError

Log = Callable[[str], None]


class LoopConfig(Protocol):
    """What the loop reads of a stage's settings."""

    @property
    def lr(self) -> float: ...
    @property
    def seed(self) -> int: ...
    @property
    def ema(self) -> float: ...
    @property
    def eval_every(self) -> int: ...
    @property
    def warmup_epochs(self) -> float: ...
    @property
    def scheduler(self) -> Literal["cosine", "step"]: ...
    @property
    def step_size(self) -> int: ...
    @property
    def gamma(self) -> float: ...
    @property
    def momentum(self) -> float: ...
    @property
    def weight_decay(self) -> float: ...


class OutOfTime(Exception):
    """The wall-clock limit came before the last step; the state is on disk and the same call goes on from there."""


def say(text: str) -> None:
    log.info(text)


def mix(seed: int, *parts: int) -> int:
    """A seed for one place in training (splitmix64 steps), so that neighbouring places share nothing."""
    state = seed & (2**64 - 1)
    for part in parts:
        state = (state + 0x9E3779B97F4A7C15 * (part + 1)) & (2**64 - 1)
        state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & (2**64 - 1)
        state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & (2**64 - 1)
        state ^= state >> 31
    return state >> 1


def lr_scale(config: LoopConfig, step: int, steps_per_epoch: int, total: int) -> float:
    """Warm-up, then cosine to zero or FEAT's steps."""
    warmup = config.warmup_epochs * steps_per_epoch
    if step < warmup:
        return (step + 1) / (warmup + 1)
    if config.scheduler == "step":
        return float(config.gamma ** (step // (config.step_size * steps_per_epoch)))
    return 0.5 * (1 + math.cos(math.pi * (step - warmup) / max(1, total - warmup)))


def build_optimizer(config: LoopConfig, groups: list[dict[str, Any]], adam: bool) -> torch.optim.Optimizer:
    """SGD with Nesterov's momentum, or Adam; each group carries its own `lr`."""
    fused = groups[0]["params"][0].is_cuda  # one kernel for all tensors
    if adam:  # without weight decay, as FEAT: inside Adam it would be scaled like a gradient
        return torch.optim.Adam(groups, lr=config.lr, fused=fused)
    return torch.optim.SGD(
        groups, lr=config.lr, momentum=config.momentum, weight_decay=config.weight_decay,
        nesterov=config.momentum > 0, fused=fused,
    )  # fmt: skip


@contextmanager
def mixed_precision(device: torch.device) -> Iterator[None]:
    """bf16 where the hardware has it; plain float32 on a CPU, where it would only be slower."""
    with torch.autocast(device.type, dtype=torch.bfloat16, enabled=device.type == "cuda"):
        yield


@dataclass
class Progress:
    """Everything a killed run needs besides weights and optimiser."""

    step: int = 0
    best: float = -1.0
    best_step: int = 0
    seconds: float = 0.0
    history: list[dict[str, Any]] = field(default_factory=list)


class Loop:
    """Train `model` for `total` steps; `best` holds the weights validation liked most."""

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        config: LoopConfig,
        steps_per_epoch: int,
        total: int,
        state: Path | None,
        save_seconds: float = 60.0,
        log: Log = say,
    ) -> None:
        self.model, self.optimizer, self.config = model, optimizer, config
        self.steps_per_epoch, self.total = steps_per_epoch, total
        self.state, self.save_seconds, self.log = state, save_seconds, log
        self.average = copy.deepcopy(model).requires_grad_(False) if config.ema else model
        self.best: dict[str, Tensor] = {}
        self.progress = Progress()
        self._base = [group["lr"] for group in optimizer.param_groups]
        self._pairs = self._averaged_pairs()
        if state is not None and state.is_file():
            self._resume(state)

    def run(
        self,
        loss_of: Callable[[int], Tensor],
        validate: Callable[[nn.Module], dict[str, float]],
        deadline: float | None = None,
    ) -> Progress:
        """`loss_of(step)` makes the loss of one step; `validate(model)` returns accuracies with a "score"."""
        p, every = self.progress, self.config.eval_every * self.steps_per_epoch
        devices = [torch.cuda.current_device()] if torch.cuda.is_available() else []
        started, saved = time.monotonic(), time.monotonic()
        before, first = p.seconds, p.step
        with torch.random.fork_rng(devices=devices), progress(self.total, "steps") as bar:
            bar.advance(0, skipped=p.step)
            while p.step < self.total:
                torch.manual_seed(mix(self.config.seed, p.step))
                scale = lr_scale(self.config, p.step, self.steps_per_epoch, self.total)
                for group, base in zip(self.optimizer.param_groups, self._base, strict=True):
                    group["lr"] = base * scale
                self.optimizer.zero_grad(set_to_none=True)
                loss = loss_of(p.step)
                loss.backward()  # type: ignore[no-untyped-call]
                self.optimizer.step()
                p.step += 1
                bar.advance()
                self._update_average()
                if p.step % every == 0 or p.step == self.total:
                    self._validate(validate, loss, started, first)
                now = time.monotonic()
                p.seconds = before + now - started
                if now - saved > self.save_seconds or p.step == self.total:
                    self.save()
                    saved = now
                if deadline is not None and now > deadline and p.step < self.total:
                    self.save()
                    raise OutOfTime(f"stopped after step {p.step} of {self.total}")
        return p

    def start_from(self, scores: dict[str, float]) -> None:
        """What training starts from is a candidate too: a run that only makes things worse returns it unchanged."""
        if self.progress.step == 0:
            self.progress.best = scores["score"]
            self.best = {k: v.detach().cpu().clone() for k, v in self.average.state_dict().items()}

    def _validate(
        self, validate: Callable[[nn.Module], dict[str, float]], loss: Tensor, started: float, first: int
    ) -> None:
        p = self.progress
        with torch.random.fork_rng(devices=[]):
            scores = validate(self.average)
        value = float(loss.detach())
        if not math.isfinite(value):
            raise DataError(f"the loss became {value} at step {p.step}; try a lower learning rate")
        if scores["score"] > p.best:
            p.best, p.best_step = scores["score"], p.step
            self.best = {k: v.detach().cpu().clone() for k, v in self.average.state_dict().items()}
        rate = (p.step - first) / max(1e-9, time.monotonic() - started)
        p.history.append({"step": p.step, "loss": round(value, 4), **{k: round(v, 4) for k, v in scores.items()}})
        shown = " ".join(f"{k} {v:.2f}" for k, v in scores.items())
        epoch = p.step / self.steps_per_epoch
        self.log(f"epoch {epoch:.0f} step {p.step}/{self.total} loss {value:.4f} {shown} | {rate:.1f} steps/s")

    def _averaged_pairs(self) -> tuple[list[Tensor], list[Tensor], list[tuple[Tensor, Tensor]]]:
        """(average, current) of every float tensor, batch statistics included, and the whole-number ones."""
        mine, theirs, counters = [], [], []
        if self.average is not self.model:
            current = self.model.state_dict()
            for name, tensor in self.average.state_dict().items():
                if tensor.is_floating_point():
                    mine.append(tensor)
                    theirs.append(current[name])
                else:
                    counters.append((tensor, current[name]))
        return mine, theirs, counters

    @torch.no_grad()
    def _update_average(self) -> None:
        mine, theirs, counters = self._pairs
        if mine:
            step = self.progress.step
            decay = min(self.config.ema, (1 + step) / (10 + step))  # young averages forget quickly
            torch._foreach_lerp_(mine, theirs, 1 - decay)
            for a, b in counters:
                a.copy_(b)

    def save(self) -> None:
        """Atomic: a kill while writing leaves the state before it."""
        if self.state is None:
            return
        state = {
            "config": repr(self.config),
            "model": self.model.state_dict(),
            "average": self.average.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "best": self.best,
            "progress": vars(self.progress),
        }
        with whole_file(self.state) as temporary:
            torch.save(state, temporary)

    def _resume(self, path: Path) -> None:
        stored = torch.load(path, map_location="cpu", weights_only=True)
        if stored["config"] != repr(self.config):
            raise DataError(f"{path} belongs to a run with other settings; delete it or choose another folder")
        self.model.load_state_dict(stored["model"])
        if self.average is not self.model:
            self.average.load_state_dict(stored["average"])
        self.optimizer.load_state_dict(stored["optimizer"])
        self.best, self.progress = stored["best"], Progress(**stored["progress"])
        self.log(f"resumed {path} at step {self.progress.step} of {self.total}")
