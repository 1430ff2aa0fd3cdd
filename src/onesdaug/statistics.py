"""Means with 95 % intervals and paired comparisons: the numbers every table of the paper reports.

Scores are one number per episode, or one row of them per seed of the views. With several seeds the interval covers
both: what other episodes and what other draws of the views would have given.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Values = npt.ArrayLike


@dataclass(frozen=True)
class Summary:
    """A mean over n episodes (and seeds) and the half-width of its 95 % confidence interval."""

    mean: float
    ci95: float
    n: int
    seeds: int = 1


@dataclass(frozen=True)
class Paired:
    """`value - baseline` on the same episodes: mean, half-width of its 95 % interval, paired t-test."""

    difference: float
    ci95: float
    p_value: float
    relative_gain: float
    n: int
    seeds: int = 1


def mean_ci(values: Values) -> Summary:
    """Mean and 1.96·std/√n over episodes, std with ddof 0, as FEAT reports it; rows are seeds, see `_crossed`."""
    v = _scores(values)
    if len(v) == 1:
        return Summary(float(v.mean()), float(1.96 * v[0].std() / np.sqrt(v.size)), v.size)
    error, freedom = _crossed(v)
    return Summary(float(v.mean()), _quantile(freedom) * error, v.shape[1], len(v))


def paired(values: Values, baseline: Values) -> Paired:
    """Paired t-test of `values` against `baseline`, episode by episode (two-sided, n - 1 degrees of freedom).

    Rows are seeds: row i is compared with row i, or each with the only row of a baseline that has no seeds. The
    interval uses Student's quantile, so that it leaves out zero exactly when p < 0.05.
    """
    v, b = _scores(values), _scores(baseline)
    if v.shape[1] != b.shape[1]:
        raise ValueError(
            f"a paired comparison needs the same episodes on both sides, got {v.shape[1]} and {b.shape[1]}"
        )
    if len(v) != len(b) and 1 not in (len(v), len(b)):
        raise ValueError(f"a paired comparison needs as many seeds on both sides, got {len(v)} and {len(b)}")
    if v.shape[1] < 2:
        raise ValueError("a paired comparison needs at least two episodes")
    d = v - b
    seeds, n = d.shape
    mean = float(d.mean())
    if seeds == 1:
        error, freedom = float(d[0].std(ddof=1) / np.sqrt(n)), float(n - 1)
    else:
        error, freedom = _crossed(d)
    half, p_value = interval(mean, error, freedom)
    return Paired(mean, half, p_value, relative_gain(float(v.mean()), float(b.mean())), n, seeds)


def interval(mean: float, error: float, freedom: float) -> tuple[float, float]:
    """Half-width of the 95 % interval of a mean with this standard error, and the p-value of "it is zero"."""
    if error == 0.0:  # every episode moved by the same amount: nothing, or something beyond doubt
        return 0.0, 1.0 if mean == 0.0 else 0.0
    return _quantile(freedom) * error, _two_sided(mean / error, freedom)


def relative_gain(value: float, baseline: float) -> float:
    """(value - baseline) / baseline, the percentage the paper prints beside its gains; NaN for a zero baseline."""
    return (value - baseline) / baseline if baseline else float("nan")


def _crossed(scores: npt.NDArray[np.float64]) -> tuple[float, float]:
    """Standard error of the mean of (seeds, episodes) and its degrees of freedom (Welch and Satterthwaite).

    The variance of the mean is taken as that of the seeds' means over S plus that of the episodes' means over E. Each
    holds a part of what is left when seed and episode are known, so the sum is rather too large than too small.
    """
    parts = [(means.var(ddof=1) / means.size, means.size - 1) for means in (scores.mean(1), scores.mean(0))]
    total = sum(part for part, _ in parts)
    if total == 0.0:
        return 0.0, float(scores.shape[1] - 1)
    return float(np.sqrt(total)), float(total**2 / sum(part**2 / freedom for part, freedom in parts))


def _quantile(freedom: float) -> float:
    from scipy.special import stdtrit

    return float(stdtrit(freedom, 0.975))


def _two_sided(t: float, freedom: float) -> float:
    from scipy.special import stdtr

    return float(2 * stdtr(freedom, -abs(t)))


def _scores(values: Values) -> npt.NDArray[np.float64]:
    """(seeds, episodes); a plain list is one seed."""
    v = np.asarray(values, dtype=np.float64)
    if v.ndim not in (1, 2) or v.size == 0:
        raise ValueError(
            f"expected a non-empty list of numbers, one per episode (or a row per seed), got shape {v.shape}"
        )
    if v.ndim == 2 and v.shape[1] < 2 <= len(v):
        raise ValueError("an interval over seeds and episodes needs at least two episodes")
    return v if v.ndim == 2 else v[None]
