"""Means with 95 % intervals and paired comparisons: the numbers every table of the paper reports."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Values = npt.ArrayLike


@dataclass(frozen=True)
class Summary:
    """A mean over n episodes and the half-width of its 95 % confidence interval."""

    mean: float
    ci95: float
    n: int


@dataclass(frozen=True)
class Paired:
    """`value - baseline` on the same episodes: mean, half-width of its 95 % interval, paired t-test."""

    difference: float
    ci95: float
    p_value: float
    relative_gain: float
    n: int


def mean_ci(values: Values) -> Summary:
    """Mean and 1.96·std/√n over episodes, std with ddof 0, as FEAT reports it."""
    v = _vector(values)
    return Summary(float(v.mean()), float(1.96 * v.std() / np.sqrt(v.size)), v.size)


def paired(values: Values, baseline: Values) -> Paired:
    """Paired t-test of `values` against `baseline`, episode by episode (two-sided, n - 1 degrees of freedom).

    The interval uses Student's quantile, so that it leaves out zero exactly when p < 0.05.
    """
    from scipy.special import stdtr, stdtrit

    v, b = _vector(values), _vector(baseline)
    if v.size != b.size:
        raise ValueError(f"a paired comparison needs the same episodes on both sides, got {v.size} and {b.size}")
    if v.size < 2:
        raise ValueError("a paired comparison needs at least two episodes")
    d = v - b
    mean, error = float(d.mean()), float(d.std(ddof=1) / np.sqrt(d.size))
    if error == 0.0:  # every episode moved by the same amount: nothing, or something beyond doubt
        p_value, half = (1.0 if mean == 0.0 else 0.0), 0.0
    else:
        p_value = float(2 * stdtr(d.size - 1, -abs(mean) / error))
        half = float(stdtrit(d.size - 1, 0.975) * error)
    return Paired(mean, half, p_value, relative_gain(float(v.mean()), float(b.mean())), d.size)


def relative_gain(value: float, baseline: float) -> float:
    """(value - baseline) / baseline, the percentage the paper prints beside its gains; NaN for a zero baseline."""
    return (value - baseline) / baseline if baseline else float("nan")


def _vector(values: Values) -> npt.NDArray[np.float64]:
    v = np.asarray(values, dtype=np.float64)
    if v.ndim != 1 or v.size == 0:
        raise ValueError(f"expected a non-empty list of numbers, one per episode, got shape {v.shape}")
    return v
