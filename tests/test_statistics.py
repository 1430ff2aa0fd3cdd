"""The numbers behind every table: FEAT's interval, and a paired test that agrees with scipy."""

from __future__ import annotations

import math

import numpy as np
import pytest

from onesdaug.statistics import mean_ci, paired, relative_gain


def test_interval_is_feats_formula() -> None:
    found = mean_ci([0.2, 0.4, 0.6, 0.8])
    assert found.mean == pytest.approx(0.5)
    assert found.ci95 == pytest.approx(1.96 * math.sqrt(0.05) / 2)  # population variance 0.05, n = 4
    assert found.n == 4


def test_paired_agrees_with_scipy() -> None:
    from scipy import stats

    rng = np.random.default_rng(0)
    baseline = rng.normal(0.6, 0.1, 50)
    values = baseline + rng.normal(0.01, 0.03, 50)
    found, theirs = paired(values, baseline), stats.ttest_rel(values, baseline)
    assert found.p_value == pytest.approx(theirs.pvalue)
    interval = theirs.confidence_interval(0.95)
    assert found.difference - found.ci95 == pytest.approx(interval.low)
    assert found.difference + found.ci95 == pytest.approx(interval.high)
    assert found.relative_gain == pytest.approx(values.mean() / baseline.mean() - 1)


def test_paired_sees_what_unpaired_intervals_hide() -> None:
    rng = np.random.default_rng(1)
    baseline = rng.normal(0.6, 0.1, 200)
    values = baseline + rng.normal(0.01, 0.01, 200)
    assert mean_ci(values).mean - mean_ci(baseline).mean < mean_ci(values).ci95
    assert paired(values, baseline).p_value < 1e-10


@pytest.mark.parametrize(("shift", "p"), [(0.0, 1.0), (0.125, 0.0)])
def test_paired_without_spread(shift: float, p: float) -> None:
    found = paired([0.5 + shift, 0.75 + shift], [0.5, 0.75])
    assert (found.difference, found.ci95, found.p_value) == (shift, 0.0, p)


def test_relative_gain_is_the_papers() -> None:
    assert relative_gain(67.08, 63.31) == pytest.approx(0.0595, abs=5e-5)  # FEAT-Res12, "+5.95 %"
    assert math.isnan(relative_gain(1.0, 0.0))


def test_bad_input_is_refused() -> None:
    with pytest.raises(ValueError, match="same episodes"):
        paired([1.0, 2.0], [1.0])
    with pytest.raises(ValueError, match="at least two"):
        paired([1.0], [1.0])
    with pytest.raises(ValueError, match="non-empty"):
        mean_ci([])


def test_one_row_is_a_plain_list() -> None:
    rng = np.random.default_rng(2)
    values, baseline = rng.normal(0.6, 0.1, 30), rng.normal(0.5, 0.1, 30)
    assert mean_ci(values[None]) == mean_ci(values)
    assert paired(values[None], baseline) == paired(values, baseline)


@pytest.mark.parametrize(("of_seeds", "of_episodes", "rest"), [(0.02, 0.1, 0.05), (0.0, 0.1, 0.05), (0.03, 0.0, 0.02)])
def test_the_interval_over_seeds_and_episodes_covers_both(of_seeds: float, of_episodes: float, rest: float) -> None:
    """Drawn many times over, about 95 % of the intervals hold the true mean (Satterthwaite's freedom is an
    approximation); of those over episodes alone far fewer do."""
    rng = np.random.default_rng(3)
    seeds, episodes, trials, inside, alone = 3, 60, 2000, 0, 0
    for _ in range(trials):
        scores = (
            of_seeds * rng.standard_normal((seeds, 1))
            + of_episodes * rng.standard_normal((1, episodes))
            + rest * rng.standard_normal((seeds, episodes))
        )
        found = paired(scores, np.zeros(episodes))
        inside += abs(found.difference) <= found.ci95
        first = paired(scores[0], np.zeros(episodes))
        alone += abs(first.difference) <= first.ci95
    assert 0.93 < inside / trials <= 1
    assert (alone / trials > 0.93) == (of_seeds == 0)
    assert (found.n, found.seeds, mean_ci(scores).seeds) == (episodes, seeds, seeds)


def test_seeds_are_paired_with_seeds() -> None:
    rng = np.random.default_rng(4)
    common = rng.normal(0, 0.1, (3, 40))  # what both sides share, seed by seed and episode by episode
    found = paired(common + 0.01 + rng.normal(0, 1e-3, (3, 40)), common)
    assert found.difference == pytest.approx(0.01, abs=5e-4) and found.p_value < 0.01
    with pytest.raises(ValueError, match="as many seeds"):
        paired(common, common[:2])
    with pytest.raises(ValueError, match="at least two episodes"):
        mean_ci(common[:, :1])
