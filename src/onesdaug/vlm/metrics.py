"""POPE's metrics with honest intervals: the six questions of an image are not six independent ones.

The positive class is yes. An unknown answer is wrong, and a missed yes where yes was right; an error is left out.
Intervals are percentiles over resampled images, each with all its questions.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from onesdaug.statistics import relative_gain
from onesdaug.vlm.combine import ERROR, NO, UNKNOWN, YES, Codes

RESAMPLES = 10_000
Bools = npt.NDArray[np.bool_]
_COLUMNS = ("n", "tp", "fp", "fn", "tn")


@dataclass(frozen=True)
class Estimate:
    """A number with its 95 % interval; None where it is 0/0, and no interval where there are fewer than two images."""

    value: float | None
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Metrics:
    """What POPE reports, over the `n` questions that have an answer."""

    n: int
    images: int
    accuracy: Estimate
    precision: Estimate
    recall: Estimate
    f1: Estimate
    yes_ratio: Estimate  # of the predictions; of the labels it would be the same for every model
    unknown: int
    errors: int


@dataclass(frozen=True)
class Gain:
    """`value - baseline` on the questions both answered: differences, exact McNemar test, relative gains."""

    n: int
    accuracy: Estimate
    f1: Estimate
    fixed: int  # wrong in the baseline, right here
    broken: int  # right in the baseline, wrong here
    mcnemar_p: float
    relative_accuracy: float | None
    relative_f1: float | None


class Resamples:
    """How often each image is drawn in each resample: drawn once, the same for every row, so that rows compare."""

    def __init__(self, images: list[str], seed: int = 0, count: int = RESAMPLES) -> None:
        names, index = np.unique(np.array(images, dtype=object), return_inverse=True)
        self.index, self.images = index.reshape(-1), len(names)
        rng = np.random.Generator(np.random.Philox(seed))
        draws = rng.multinomial(self.images, np.full(self.images, 1 / self.images), size=count)
        self.weights = draws.astype(np.float32)  # counts: exact up to 2^24

    def sums(self, columns: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """(n, m) values of the questions → (count, m) sums over the questions of the drawn images."""
        per_image = np.zeros((self.images, columns.shape[1]))
        np.add.at(per_image, self.index, columns)
        return np.asarray(self.weights @ per_image.astype(np.float32), dtype=np.float64)


def measure(predictions: Codes, labels: Bools, resamples: Resamples) -> Metrics:
    """All metrics of one list of predictions; `labels` is True for yes."""
    counted = predictions != ERROR
    columns = _counts(predictions, labels)
    values = _ratios(columns.sum(0)[None])
    images = len(np.unique(resamples.index[counted]))
    spread = _ratios(resamples.sums(columns)) if images > 1 else None
    parts = {name: _estimate(values[name][0], None if spread is None else spread[name]) for name in values}
    return Metrics(
        n=int(counted.sum()),
        images=images,
        unknown=int((predictions == UNKNOWN).sum()),
        errors=int((~counted).sum()),
        **parts,
    )


def compare(predictions: Codes, baseline: Codes, labels: Bools, resamples: Resamples) -> Gain | None:
    """The paired gain over the baseline; None where no question has both answers."""
    both = (predictions != ERROR) & (baseline != ERROR)
    if not both.any():
        return None
    mine, theirs = (_counts(np.where(both, p, ERROR).astype(np.int8), labels) for p in (predictions, baseline))
    a, b = _ratios(mine.sum(0)[None]), _ratios(theirs.sum(0)[None])
    spread = None
    if len(np.unique(resamples.index[both])) > 1:
        drawn_a, drawn_b = _ratios(resamples.sums(mine)), _ratios(resamples.sums(theirs))
        spread = {name: drawn_a[name] - drawn_b[name] for name in ("accuracy", "f1")}
    differences = {
        name: _estimate(a[name][0] - b[name][0], None if spread is None else spread[name])
        for name in ("accuracy", "f1")
    }
    truth = np.where(labels, YES, NO)
    right, was_right = predictions == truth, baseline == truth
    fixed, broken = int((both & right & ~was_right).sum()), int((both & ~right & was_right).sum())
    return Gain(
        n=int(both.sum()),
        fixed=fixed,
        broken=broken,
        mcnemar_p=mcnemar(fixed, broken),
        relative_accuracy=_or_none(relative_gain(float(a["accuracy"][0]), float(b["accuracy"][0]))),
        relative_f1=_or_none(relative_gain(float(a["f1"][0]), float(b["f1"][0]))),
        **differences,
    )


def mcnemar(fixed: int, broken: int) -> float:
    """Two-sided exact McNemar test: are the changed answers a fair coin? It takes questions as independent."""
    from scipy.special import bdtr

    changed = fixed + broken
    return min(1.0, 2 * float(bdtr(min(fixed, broken), changed, 0.5))) if changed else 1.0


def _counts(predictions: Codes, labels: Bools) -> npt.NDArray[np.float64]:
    """(n, 5) truth values in the order of _COLUMNS."""
    counted, yes = predictions != ERROR, predictions == YES
    columns = (
        counted,
        yes & labels,
        yes & ~labels,
        counted & ~yes & labels,
        (predictions == NO) & ~labels,
    )
    return np.stack(columns, axis=1).astype(np.float64)


def _ratios(sums: npt.NDArray[np.float64]) -> dict[str, npt.NDArray[np.float64]]:
    """The five metrics of each row of sums; 0/0 is NaN."""
    n, tp, fp, fn, tn = sums.T
    with np.errstate(invalid="ignore", divide="ignore"):
        return {
            "accuracy": (tp + tn) / n,
            "precision": tp / (tp + fp),
            "recall": tp / (tp + fn),
            "f1": 2 * tp / (2 * tp + fp + fn),
            "yes_ratio": (tp + fp) / n,
        }


def _estimate(value: float, spread: npt.NDArray[np.float64] | None) -> Estimate:
    known = np.empty(0) if spread is None else spread[~np.isnan(spread)]
    if math.isnan(value) or known.size == 0:
        return Estimate(_or_none(float(value)))
    low, high = np.percentile(known, (2.5, 97.5))
    return Estimate(float(value), float(low), float(high))


def _or_none(value: float) -> float | None:
    return None if math.isnan(value) else float(value)
