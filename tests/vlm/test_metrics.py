"""Metrics by hand, and intervals that know the questions of an image belong together."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binomtest

from onesdaug.vlm.answers import ERROR, NO, UNKNOWN, YES
from onesdaug.vlm.metrics import Resamples, compare, mcnemar, measure

Y, N, U, E = YES, NO, UNKNOWN, ERROR


def arrays(predictions: list[int], labels: str) -> tuple[np.ndarray, np.ndarray]:
    return np.array(predictions, dtype=np.int8), np.array([letter == "y" for letter in labels])


def images(n: int, per_image: int = 1) -> list[str]:
    return [f"{i // per_image}.jpg" for i in range(n)]


def test_by_hand() -> None:
    """3 true yes, 1 false yes, 2 true no, 1 missed yes, 1 unknown where yes, 1 unknown where no, 1 error."""
    predictions, labels = arrays([Y, Y, Y, Y, N, N, N, U, U, E], "yyynnnyyny")
    m = measure(predictions, labels, Resamples(images(10)))
    assert m.accuracy.value == pytest.approx(5 / 9)
    assert m.precision.value == pytest.approx(3 / 4)
    assert m.recall.value == pytest.approx(3 / 5)
    assert m.f1.value == pytest.approx(2 * (3 / 4) * (3 / 5) / (3 / 4 + 3 / 5))
    assert m.yes_ratio.value == pytest.approx(4 / 9)
    assert (m.n, m.unknown, m.errors, m.images) == (9, 2, 1, 9)


def test_the_papers_way_of_counting_on_a_full_split() -> None:
    """Accuracy, F1 and yes ratio from tp, fp, fn, tn, as POPE's script has them."""
    tp, fp, tn, fn = 1091, 223, 1277, 409
    predictions = np.array([Y] * tp + [N] * fn + [Y] * fp + [N] * tn, dtype=np.int8)
    labels = np.array([True] * 1500 + [False] * 1500)
    m = measure(predictions, labels, Resamples(images(3000, 6)))
    assert m.accuracy.value == pytest.approx(0.789333, abs=1e-6)
    assert m.precision.value == pytest.approx(0.830289, abs=1e-6)
    assert m.recall.value == pytest.approx(0.727333, abs=1e-6)
    assert m.f1.value == pytest.approx(0.775409, abs=1e-6)
    assert m.yes_ratio.value == pytest.approx(0.438)


def test_nothing_is_divided_by_zero() -> None:
    none = measure(*arrays([N, N], "nn"), Resamples(images(2)))
    assert (none.accuracy.value, none.precision.value, none.recall.value, none.f1.value) == (1.0, None, None, None)
    assert none.precision.low is None
    lost = measure(*arrays([E, E], "yn"), Resamples(images(2)))
    assert (lost.n, lost.errors, lost.accuracy.value, lost.yes_ratio.value) == (0, 2, None, None)
    blind = measure(*arrays([U, U], "yy"), Resamples(images(2)))
    assert (blind.accuracy.value, blind.precision.value, blind.recall.value, blind.f1.value) == (0.0, None, 0.0, 0.0)


def test_one_image_has_no_interval() -> None:
    m = measure(*arrays([Y, N, Y], "yny"), Resamples(["a"] * 3))
    assert (m.accuracy.value, m.accuracy.low, m.accuracy.high) == (1.0, None, None)


def test_intervals_are_clustered_by_image() -> None:
    """Six copies of each answer tell nothing new: the interval is that of the images, √6 wider than the naive one."""
    rng = np.random.default_rng(0)
    right = rng.random(150) < 0.8
    once = np.where(right, Y, N).astype(np.int8)
    labels = np.ones(150, dtype=bool)
    alone = measure(once, labels, Resamples(images(150)))
    sixfold = measure(np.repeat(once, 6), np.repeat(labels, 6), Resamples(images(900, 6)))
    assert sixfold.accuracy == alone.accuracy
    naive = measure(np.repeat(once, 6), np.repeat(labels, 6), Resamples(images(900)))
    widths = [m.accuracy.high - m.accuracy.low for m in (sixfold, naive)]
    assert widths[0] / widths[1] == pytest.approx(np.sqrt(6), rel=0.1)


def test_the_interval_is_the_clustered_standard_error() -> None:
    """Against the sandwich formula 1.96·√Σ_c(Σ_i x_i − mean)²/n, with answers that depend on the image."""
    rng = np.random.default_rng(1)
    share = rng.beta(4, 1, 500)
    right = (rng.random((500, 6)) < share[:, None]).reshape(-1)
    m = measure(np.where(right, Y, N).astype(np.int8), np.ones(3000, dtype=bool), Resamples(images(3000, 6)))
    residual = (right - right.mean()).reshape(500, 6).sum(1)
    half = 1.96 * np.sqrt((residual**2).sum()) / 3000
    assert (m.accuracy.high - m.accuracy.low) / 2 == pytest.approx(half, rel=0.05)


def test_mcnemar_is_the_exact_test() -> None:
    for fixed, broken in ((0, 0), (1, 0), (3, 3), (12, 4), (4, 12), (150, 90)):
        total = fixed + broken
        expected = binomtest(fixed, total, 0.5).pvalue if total else 1.0
        assert mcnemar(fixed, broken) == pytest.approx(expected)


def test_the_paired_gain_by_hand() -> None:
    predictions, labels = arrays([Y, Y, N, N, Y, E, N, U], "yynnnnyy")
    baseline, _ = arrays([N, Y, N, Y, Y, N, E, Y], "yynnnnyy")
    gain = compare(predictions, baseline, labels, Resamples(images(8)))
    assert gain is not None
    assert gain.n == 6  # two questions have an error on one side
    assert (gain.fixed, gain.broken) == (2, 1)
    assert gain.accuracy.value == pytest.approx(4 / 6 - 3 / 6)
    f1, f1_before = 2 * 2 / (2 * 2 + 1 + 1), 2 * 2 / (2 * 2 + 2 + 1)
    assert gain.f1.value == pytest.approx(f1 - f1_before)
    assert gain.relative_accuracy == pytest.approx(1 / 3)
    assert gain.relative_f1 == pytest.approx(f1 / f1_before - 1)
    assert gain.mcnemar_p == 1.0
    assert compare(predictions, np.full(8, E, dtype=np.int8), labels, Resamples(images(8))) is None


def test_the_gains_interval_is_paired_and_clustered() -> None:
    """Against the sandwich formula on differences; far narrower than the two intervals together."""
    rng = np.random.default_rng(2)
    baseline = rng.random(3000) < 0.79
    flip = np.repeat(rng.random(500) < 0.05, 6)
    better = baseline | flip
    labels = np.ones(3000, dtype=bool)
    codes = [np.where(right, Y, N).astype(np.int8) for right in (better, baseline)]
    gain = compare(*codes, labels, Resamples(images(3000, 6)))
    assert gain is not None
    d = better.astype(float) - baseline
    residual = (d - d.mean()).reshape(500, 6).sum(1)
    half = 1.96 * np.sqrt((residual**2).sum()) / 3000
    assert (gain.accuracy.high - gain.accuracy.low) / 2 == pytest.approx(half, rel=0.1)
    assert gain.accuracy.low > 0
    assert gain.broken == 0


def test_the_same_seed_gives_the_same_interval() -> None:
    predictions, labels = arrays([Y, N] * 20, "yy" * 20)
    one, two, other = (measure(predictions, labels, Resamples(images(40), seed=s)) for s in (1, 1, 2))
    assert one == two
    assert one.accuracy.value == other.accuracy.value
