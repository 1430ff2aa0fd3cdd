"""The one `fit`: what is averaged and how, and which weights are kept."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from onesdaug.training import loop as training_loop
from onesdaug.training.loop import OutOfTime, fit
from onesdaug.training.settings import StageSettings
from onesdaug.training.stage import Stage


@dataclass(frozen=True)
class Settings(StageSettings):
    lr: float = 0.1
    warmup_epochs: float = 0.0
    ema: float = 0.0
    eval_every: int = 1
    seed: int = 0


class Counting(Stage):
    """A network with batch statistics; remembers its weights after every step."""

    device, steps_per_epoch, steps = torch.device("cpu"), 2, 30

    def __init__(self, ema: float, scores: list[float] | None = None) -> None:
        torch.manual_seed(0)
        self.config = Settings(ema=ema)
        self.model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
        self.found = scores
        self._seen: dict[int, dict[str, Tensor]] = {}

    def set_epochs(self, epochs: int, eval_every: int) -> None:
        raise AssertionError("no time budget here")

    def after(self, steps: int) -> dict[str, Tensor]:
        return self._seen[steps]

    def loss(self, step: int) -> Tensor:
        self._remember(step)
        out: Tensor = self.model(torch.randn(8, 3)).square().mean()
        return out

    def _remember(self, steps: int) -> None:
        self._seen[steps] = {k: v.clone() for k, v in self.model.state_dict().items()}

    def optimizer(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.model.parameters(), lr=self.config.lr)

    def scores(self, model: nn.Module) -> dict[str, float]:
        self._remember(len(self._seen))
        return {"score": self.found.pop(0)} if self.found else {}


def test_averages_forget_quickly_at_first_and_hold_batch_statistics_too(tmp_path: Path) -> None:
    stage = Counting(ema=0.6)
    loop = fit(stage, tmp_path, "count")
    wanted = stage.after(0)
    for step in range(1, stage.steps + 1):
        decay = min(0.6, (1 + step) / (10 + step))
        for name, value in stage.after(step).items():
            wanted[name] = torch.lerp(wanted[name], value, 1 - decay) if value.is_floating_point() else value
    kept = stage.model.state_dict()
    assert all(torch.equal(kept[name], value) for name, value in wanted.items())
    assert kept["1.num_batches_tracked"] == stage.steps
    assert loop.progress.best_step == stage.steps and not stage.model.training


def test_without_averages_the_weights_with_the_highest_score_are_kept(tmp_path: Path) -> None:
    stage = Counting(ema=0.0, scores=[1.0, 3.0, *[2.0] * 13])
    loop = fit(stage, tmp_path, "count")
    assert (loop.progress.best, loop.progress.best_step) == (3.0, 4)
    kept = stage.model.state_dict()
    assert all(torch.equal(kept[name], value) for name, value in stage.after(4).items())


def test_a_run_that_is_cut_at_its_deadline_ends_with_what_it_has(tmp_path: Path) -> None:
    stage = Counting(ema=0.0, scores=[1.0])
    with pytest.raises(OutOfTime, match="stopped after step 1 of 30"):
        fit(stage, tmp_path, "count", deadline=0.0)
    assert stage.found == [1.0]  # to be resumed: not validated
    loop = fit(stage, tmp_path, "count", deadline=0.0, cut=True)
    assert (loop.progress.step, loop.progress.best, loop.progress.best_step) == (2, 1.0, 2)
    assert [line["step"] for line in loop.progress.history] == [2] and not stage.model.training
    assert torch.equal(stage.model.state_dict()["0.weight"], loop.best["0.weight"])
    assert fit(stage, tmp_path, "count").progress.step == 30  # with more time it goes on


class Budgeted(Counting):
    """Its length is what fits the time; the training itself is not wanted."""

    def set_epochs(self, epochs: int, eval_every: int) -> None:
        self.steps, self.every = epochs * self.steps_per_epoch, eval_every
        raise StopIteration(epochs)


@pytest.mark.parametrize(("seconds", "epochs", "every"), [(90.0, 33, 2), (66.0, 22, 2), (62.5, 20, 1), (27.0, 3, 1)])
def test_a_budget_is_spent_on_no_more_validations_than_it_allows_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seconds: float, epochs: int, every: int
) -> None:
    monkeypatch.setattr(training_loop, "_measure", lambda *_: (1.0, 1.0))
    stage = Budgeted(ema=0.0)
    with pytest.raises(StopIteration):
        fit(stage, tmp_path, "count", seconds=seconds)
    assert (stage.steps, stage.every) == (2 * epochs, every)
    assert -(-epochs // every) <= stage.validations
