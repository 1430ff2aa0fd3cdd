"""What views conditioned on some encoder could gain, before a generator is trained on it: linear algebra on features.

A view can tell the classifier only what its condition knows about the image. So predict the classifier's feature of an
image from the condition's by ridge regression fitted on base classes, let the prediction stand for the feature of a
view, average it 0.5/0.5 with the true one, and score episodes of classes the regression has never seen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor

from onesdaug.errors import ConfigError, DataError
from onesdaug.fewshot.bank import BankInfo, FeatureBank
from onesdaug.fewshot.evaluate import Task, ViewUse, evaluate
from onesdaug.fewshot.heads import Head
from onesdaug.statistics import Paired, Summary

Target = Literal["self", "class"]
TARGETS: tuple[Target, ...] = get_args(Target)


@dataclass(frozen=True)
class Looks:
    """The same N images as two encoders see them: condition (N, dc), classifier (N, d), and their labels (N,)."""

    condition: Tensor
    classifier: Tensor
    labels: Tensor

    def __post_init__(self) -> None:
        shapes = [tuple(t.shape) for t in (self.condition, self.classifier, self.labels)]
        if [len(s) for s in shapes] != [2, 2, 1] or len({s[0] for s in shapes}) != 1:
            raise DataError(f"want features (N, dc) and (N, d) with N labels, got {shapes}")


@dataclass(frozen=True)
class Regression:
    """y ≈ mean_y + (c/||c|| - mean_c)·W, in float64."""

    mean_condition: Tensor
    mean_target: Tensor
    weights: Tensor

    def predict(self, condition: Tensor, amplification: float = 1.0) -> Tensor:
        """mean_y + a·(prediction - mean_y): a > 1 is what guidance does, further along what the condition says."""
        step = (unit(condition) - self.mean_condition) @ self.weights
        return self.mean_target + amplification * step


@dataclass(frozen=True)
class Forecast:
    """One row: what averaging with the predicted features does to the accuracy on novel classes (shares, not %)."""

    condition: str
    target: Target
    ridge: float
    amplification: float
    task: Task
    baseline: Summary
    accuracy: Summary
    gain: Paired

    @property
    def relative_percent(self) -> float:
        return 100 * self.gain.relative_gain


def unit(features: Tensor) -> Tensor:
    """Rows of length 1 in float64: encoders differ in scale, and the ridge should not notice."""
    return F.normalize(features.double(), dim=-1)


def fit(condition: Tensor, target: Tensor, ridge: float) -> Regression:
    """min_W Σ||y - cW||² + λ||W||² on centred features; λ is `ridge` times the mean variance of a condition feature.

    Relative, so that one value means as much shrinkage for 64 dimensions as for 1280.
    """
    if ridge <= 0:
        raise ConfigError(
            f"ridge must be positive, not {ridge}: with fewer images than dimensions nothing else is unique"
        )
    c, y = unit(condition), target.double()
    mean_c, mean_y = c.mean(0), y.mean(0)
    c = c - mean_c
    covariance = c.T @ c / len(c)
    covariance.diagonal().add_(ridge * covariance.diagonal().mean())
    weights = torch.linalg.solve(covariance, c.T @ (y - mean_y) / len(c))
    return Regression(mean_c, mean_y, weights)


def target_of(kind: Target, features: Tensor, labels: Tensor) -> Tensor:
    """`self`: the classifier's feature of the very image; `class`: its class mean, what same-class views aim at."""
    if kind == "self":
        return features
    if kind != "class":
        raise ConfigError(f"target must be one of {', '.join(TARGETS)}, not {kind!r}")
    number: Tensor = torch.unique(labels, return_inverse=True)[1]
    sums = features.new_zeros(int(number.max()) + 1, features.shape[1], dtype=torch.float64)
    sums.index_add_(0, number, features.double())
    return (sums / number.bincount().unsqueeze(1))[number]


def forecast(
    base: Looks,
    novel: Looks,
    head: Head,
    condition: str,
    *,
    targets: Sequence[Target] = TARGETS,
    ridges: Sequence[float] = (0.01, 0.1, 1.0),
    amplifications: Sequence[float] = (1.0, 2.0, 4.0),
    tasks: Sequence[Task] = (Task(),),
) -> list[Forecast]:
    """Every setting on the same episodes of the novel images; `condition` names the encoder in the rows.

    The best of many settings is flattered by the choice: compare conditions at the same setting.
    """
    rows = []
    for kind in targets:
        target = target_of(kind, base.classifier, base.labels)
        for ridge in ridges:
            regression = fit(base.condition, target, ridge)
            for amplification in amplifications:
                predicted = regression.predict(novel.condition, amplification)
                bank = as_bank(novel.classifier, predicted, novel.labels, condition)
                for task in tasks:
                    plain, mixed = evaluate(bank, head, [task], [ViewUse(1, 1)])
                    if mixed.gain is None:
                        raise ConfigError("a forecast needs at least two episodes")
                    rows.append(
                        Forecast(
                            condition, kind, ridge, amplification, task, plain.accuracy, mixed.accuracy, mixed.gain
                        )
                    )
    return rows


def as_bank(features: Tensor, predicted: Tensor, labels: Tensor, condition: str) -> FeatureBank:
    """A bank whose one view per image is the predicted feature: evaluation then pairs the two by itself."""
    info = BankInfo(
        class_names=tuple(str(c) for c in sorted(set(labels.tolist()))),
        ids=tuple(str(i) for i in range(len(labels))),
        data="features",
        encoder="classifier",
        views={"source": "forecast", "condition": condition, "k": 1},
        seed=0,
        commit="unknown",
    )
    return FeatureBank(torch.stack([features.float(), predicted.float()], dim=1), labels, info)
