"""What the stages of a generator's recipe share: a length in steps, and where what they made lies."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from onesdaug.common.progress import log
from onesdaug.common.provenance import commit, describe_machine
from onesdaug.encoders.checkpoint import load_checkpoint, save_checkpoint
from onesdaug.generators.pocket.recipe import EPOCH, StageConfig
from onesdaug.training.loop import fit
from onesdaug.training.stage import Stage, mix, own_randomness


class PocketStage(Stage):
    """The last averaged weights are kept."""

    steps_per_epoch = EPOCH
    validations = 1
    config: StageConfig

    def __init__(self, config: StageConfig, device: torch.device) -> None:
        self.config, self.device = config, device

    @property
    def steps(self) -> int:
        return self.config.steps

    def set_epochs(self, epochs: int, eval_every: int) -> None:
        self.config = replace(self.config, steps=epochs * self.steps_per_epoch, eval_every=eval_every)

    def random_rows(self, high: int) -> torch.Tensor:
        """One number below `high` for each row of a batch."""
        return torch.randint(high, (self.config.batch,), device=self.device)

    def sgd(self, model: nn.Module) -> torch.optim.Optimizer:
        """What encoders of classes are trained with."""
        c = self.config
        return torch.optim.SGD(
            model.parameters(), lr=c.lr, momentum=0.9, nesterov=True, weight_decay=c.weight_decay,
            fused=self.device.type == "cuda",
        )  # fmt: skip

    def finish(self) -> None:
        """Called with the final weights in place."""

    def facts(self) -> dict[str, Any]:
        """What its card says beside how long it took."""
        return {}

    def compile(self) -> None:
        """Train from compiled networks from now on, where that pays."""


class StagedRun:
    """One run, stage by stage. Finished stages lie in NAME.state, a folder of half-precision weights each.

    They are small enough to carry to another machine, and are not run again there; a stage that was cut off goes on
    where it was, on the machine where it was.
    """

    places: tuple[str, ...]  # of a run that need random numbers of their own; stages among them
    save_seconds = 60.0

    def __init__(self, out: Path, device: torch.device, deadline: float | None, compiled: bool = False) -> None:
        self.state = out.with_name(f"{out.name}.state")
        self.device, self.deadline, self.compiled = device, deadline, compiled
        self.stages: dict[str, dict[str, Any]] = {}
        if device.type == "cuda":
            torch.set_float32_matmul_precision("high")

    def seeded(self, place: str) -> AbstractContextManager[None]:
        """Randomness of one place, whatever ran before: what a resumed run makes anew is what was there."""
        return own_randomness(mix(0, self.places.index(place)))

    def stage(
        self, name: str, module: nn.Module, build: Callable[[], PocketStage], facts: dict[str, Any] | None = None
    ) -> None:
        """Run a stage, or load what an earlier call finished; `module` holds the averaged weights afterwards."""
        done = self.state / name
        if (done / "card.json").is_file():
            self._load(name, module)
            log.info(f"{name}: done already")
            return
        with self.seeded(name):
            stage = build()
            if self.compiled:
                stage.compile()
            batch, seconds = stage.config.batch, stage.config.seconds
            log.info(f"{name}: {f'{stage.steps}' if seconds is None else f'{seconds:g} s of'} steps of {batch}")
            loop = fit(
                stage, self.state, name, seconds=seconds, deadline=self.deadline, save_seconds=self.save_seconds
            )
            stage.finish()
        progress = loop.progress
        made = {
            "steps": stage.steps, "batch": batch, "seconds": round(progress.seconds, 1),
            "images_per_second": round(loop.steps_per_second * batch), "history": progress.history[-1:],
            "commit": commit(), "machine": describe_machine(self.device), **stage.facts(), **(facts or {}),
        }  # fmt: skip
        save_checkpoint(done, module.state_dict(), {"kind": "stage", "stage": made}, half=True)
        loop.state.unlink(missing_ok=True)
        self._load(name, module)  # rounded: as whoever goes on from here will find them

    def _load(self, name: str, module: nn.Module) -> None:
        tensors, card = load_checkpoint(self.state / name)
        module.load_state_dict(tensors)
        module.to(self.device)
        self.stages[name] = card["stage"]
