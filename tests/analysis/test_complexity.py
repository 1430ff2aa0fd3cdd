"""Rademacher complexity: closed forms, all signs enumerated, and the paper's bound."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from onesdaug.analysis.complexity import complexity, generalization_gap
from onesdaug.errors import ConfigError, DataError


def exact(features: torch.Tensor, norm_bound: float = 1.0) -> float:
    """B/m times the mean over all 2^m sign vectors."""
    signs = torch.tensor(list(itertools.product((-1.0, 1.0), repeat=len(features))), dtype=torch.float64)
    return norm_bound * float((signs @ features.double()).norm(dim=1).mean()) / len(features)


def test_orthogonal_features_reach_the_bound() -> None:
    found = complexity(3 * torch.eye(16), 2.0)
    assert found.value == pytest.approx(2 * 3 / 4)
    assert found.radius_bound == pytest.approx(found.rms_bound) == pytest.approx(1.5)
    assert found.standard_error == pytest.approx(0, abs=1e-12)
    assert found.value == pytest.approx(found.radius_bound)  # orthogonal features of one length


def test_equal_features_are_a_random_walk() -> None:
    """E|Σσ| of 4 signs is 1.5, of many √(2m/π)."""
    found = complexity(torch.ones(4, 1), draws=20_000)
    assert abs(found.value - 1.5 / 4) < 4 * found.standard_error
    many = complexity(torch.ones(1000, 1), draws=4000)
    assert abs(many.value - math.sqrt(2 / (math.pi * 1000))) < 4 * many.standard_error


def test_monte_carlo_meets_enumeration() -> None:
    features = torch.randn(10, 3, generator=torch.Generator().manual_seed(0))
    found = complexity(features, 1.7, draws=5000)
    assert abs(found.value - exact(features, 1.7)) < 4 * found.standard_error


@settings(max_examples=30)
@given(seed=st.integers(0, 2**31), m=st.integers(1, 9), d=st.integers(1, 6), heavy=st.booleans())
def test_bounds_hold(seed: int, m: int, d: int, heavy: bool) -> None:
    """Khintchine below, Jensen and the radius above, on the exact value."""
    features = torch.randn(m, d, generator=torch.Generator().manual_seed(seed))
    if heavy:
        features = features.pow(5)
    found, value = complexity(features, draws=2), exact(features)
    assert found.rms_bound / math.sqrt(2) - 1e-9 <= value <= found.rms_bound + 1e-9
    assert found.rms_bound <= found.radius_bound + 1e-9


def test_the_same_signs_before_and_after() -> None:
    features = torch.randn(50, 8, generator=torch.Generator().manual_seed(1))
    before, halved = complexity(features), complexity(features / 2)
    assert halved.value == pytest.approx(before.value / 2)  # shared signs: the ratio is known exactly
    assert before == complexity(features)
    assert complexity(features, draws=300, seed=5) == complexity(features, draws=300, seed=5)


@settings(max_examples=20)
@given(seed=st.integers(0, 2**31), heavy=st.booleans(), shift=st.floats(0, 3))
def test_the_gap_stays_below_both_bounds(seed: int, heavy: bool, shift: float) -> None:
    """The third proposition, on any features: gap <= 2·complexity <= 2B·radius/√m."""
    made = torch.Generator().manual_seed(seed)
    features, labels = torch.randn(60, 5, generator=made), torch.arange(60) % 3
    features = (features.pow(3) if heavy else features) + shift * labels[:, None]
    found = generalization_gap(features, labels, 1.5, m=20, draws=200)
    assert found.value - 3 * found.standard_error <= found.complexity_bound <= found.radius_bound
    assert generalization_gap(features / 2, labels, 3.0, m=20, draws=200).value == pytest.approx(found.value)


def test_the_gap_is_a_supremum_that_is_reached() -> None:
    """Against a search over directions w on the circle, for the very samples that were drawn."""
    features, labels = torch.randn(40, 2, generator=torch.Generator().manual_seed(3)), torch.arange(40) % 2
    found = generalization_gap(features, labels, m=8, draws=50)
    angles = torch.linspace(0, 2 * math.pi, 3601)[:-1]
    w = torch.stack([angles.cos(), angles.sin()], dim=1).double()
    rng, x, members = np.random.default_rng(0), features.double(), [np.arange(0, 40, 2), np.arange(1, 40, 2)]
    largest = []
    for _ in range(50):
        pair = rng.choice(2, 2, replace=False)
        sides, part = rng.integers(0, 2, 8), rng.random(8)
        rows = np.array([members[pair[s]][int(p * 20)] for s, p in zip(sides, part, strict=True)])
        rng.integers(0, 2, 8)  # the signs of the complexity
        y = torch.from_numpy(1.0 - 2.0 * sides)
        true = -(w @ (x[members[pair[0]]].mean(0) - x[members[pair[1]]].mean(0))) / 2  # E[-y·w·Ω]
        empirical = -(w @ (y @ x[rows] / 8))
        largest.append(float((true - empirical).max()))
    assert found.value == pytest.approx(np.mean(largest), rel=1e-5)


def test_the_gap_shrinks_with_the_sample() -> None:
    features, labels = torch.randn(200, 4, generator=torch.Generator().manual_seed(4)), torch.arange(200) % 4
    few, many = (generalization_gap(features, labels, m=m) for m in (10, 160))
    assert many.value == pytest.approx(few.value / 4, rel=0.1)
    with pytest.raises(DataError, match="two classes or more"):
        generalization_gap(features, torch.zeros(200))
    with pytest.raises(ConfigError, match="two draws or more"):
        generalization_gap(features, labels, draws=1)


def test_mistakes_are_explained() -> None:
    with pytest.raises(ConfigError, match="two draws"):
        complexity(torch.ones(2, 2), draws=1)
    with pytest.raises(ConfigError, match="norm_bound"):
        complexity(torch.ones(2, 2), 0)
    with pytest.raises(DataError, match="want features"):
        complexity(torch.ones(2))
