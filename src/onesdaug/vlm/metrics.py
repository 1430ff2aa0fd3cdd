"""POPE's metrics with honest intervals: the six questions of an image are not six independent ones.

The positive class is yes. An unknown answer is wrong, and a missed yes where yes was right; an error is left out.
Intervals are percentiles over resampled images, each with all its questions.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import reduce

import numpy as np
import numpy.typing as npt

from onesdaug.statistics import relative_gain
from onesdaug.vlm.answers import ERROR, NO, UNKNOWN, YES, Codes, Floats

RESAMPLES = 10_000
Bools = npt.NDArray[np.bool_]
METRICS = ("accuracy", "precision", "recall", "f1", "yes_ratio")


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

    def sums(self, columns: Floats) -> Floats:
        """(n, m) values of the questions → (count, m) sums over the questions of the drawn images."""
        per_image = np.zeros((self.images, columns.shape[1]))
        np.add.at(per_image, self.index, columns)
        return np.asarray(self.weights @ per_image.astype(np.float32), dtype=np.float64)


def measure(predictions: Codes, labels: Bools, resamples: Resamples) -> Metrics:
    """All metrics of one list of predictions; `labels` is True for yes."""
    counted = predictions != ERROR
    return Metrics(
        n=int(counted.sum()),
        images=len(np.unique(resamples.index[counted])),
        unknown=int((predictions == UNKNOWN).sum()),
        errors=int((~counted).sum()),
        **_estimates(resamples, counted, _counts(predictions, labels)),
    )


def compare(predictions: Codes, baseline: Codes, labels: Bools, resamples: Resamples) -> Gain | None:
    """The paired gain over the baseline; None where no question has both answers."""
    both = (predictions != ERROR) & (baseline != ERROR)
    if not both.any():
        return None
    mine, theirs = (_counts(np.where(both, p, ERROR).astype(np.int8), labels) for p in (predictions, baseline))
    accuracy, _, _, f1, _ = zip(_ratios(mine.sum(0)), _ratios(theirs.sum(0)), strict=True)
    differences = _estimates(resamples, both, mine, theirs)
    truth = np.where(labels, YES, NO)
    right, was_right = predictions == truth, baseline == truth
    fixed, broken = int((both & right & ~was_right).sum()), int((both & ~right & was_right).sum())
    return Gain(
        n=int(both.sum()),
        accuracy=differences["accuracy"],
        f1=differences["f1"],
        fixed=fixed,
        broken=broken,
        mcnemar_p=mcnemar(fixed, broken),
        relative_accuracy=_or_none(relative_gain(*map(float, accuracy))),
        relative_f1=_or_none(relative_gain(*map(float, f1))),
    )


def mcnemar(fixed: int, broken: int) -> float:
    """Two-sided exact McNemar test: are the changed answers a fair coin? It takes questions as independent."""
    from scipy.special import bdtr

    changed = fixed + broken
    return min(1.0, 2 * float(bdtr(min(fixed, broken), changed, 0.5))) if changed else 1.0


def _counts(predictions: Codes, labels: Bools) -> Floats:
    """(n, 5) truth values: counted, and the true and false positives and negatives."""
    counted, yes = predictions != ERROR, predictions == YES
    columns = counted, yes & labels, yes & ~labels, counted & ~yes & labels, (predictions == NO) & ~labels
    return np.stack(columns, axis=1).astype(np.float64)


def _ratios(sums: Floats) -> Floats:
    """(…, 5) sums of counts → (5, …) values in the order of METRICS; 0/0 is NaN."""
    n, tp, fp, fn, tn = np.moveaxis(sums, -1, 0)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.stack([(tp + tn) / n, tp / (tp + fp), tp / (tp + fn), 2 * tp / (2 * tp + fp + fn), (tp + fp) / n])


def _estimates(resamples: Resamples, counted: Bools, *counts: Floats) -> dict[str, Estimate]:
    """Each metric of the counts, or of two the difference, with its interval over resampled images."""
    values = reduce(np.subtract, [_ratios(c.sum(0)) for c in counts])
    spread = reduce(np.subtract, [_ratios(resamples.sums(c)) for c in counts])
    if len(np.unique(resamples.index[counted])) < 2:
        spread = spread[:, :0]
    return {name: _estimate(*pair) for name, pair in zip(METRICS, zip(values, spread, strict=True), strict=True)}


def _estimate(value: float, spread: Floats) -> Estimate:
    known = spread[~np.isnan(spread)]
    if math.isnan(value) or known.size == 0:
        return Estimate(_or_none(value))
    low, high = np.percentile(known, (2.5, 97.5))
    return Estimate(float(value), float(low), float(high))


def _or_none(value: float) -> float | None:
    return None if math.isnan(value) else float(value)
