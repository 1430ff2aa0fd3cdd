"""Rademacher complexity: closed forms, all signs enumerated, and the paper's bound."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from onesdaug.analysis.complexity import compare, complexity, sum_norms
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
    assert found.tightness == pytest.approx(1)


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
    halved = compare(features, features / 2)
    assert halved.ratio == pytest.approx(0.5)
    assert halved.ratio_error == pytest.approx(0, abs=1e-12)  # shared signs: the ratio is known exactly
    assert halved.before == complexity(features)
    noisy = compare(features, features + 0.1 * torch.randn(50, 8, generator=torch.Generator().manual_seed(2)))
    alone = noisy.before.standard_error / noisy.before.value
    assert 0 < noisy.ratio_error < alone / 2
    assert torch.equal(sum_norms(features, 300, 5), sum_norms(features, 300, 5))


def test_mistakes_are_explained() -> None:
    with pytest.raises(ConfigError, match="two draws"):
        complexity(torch.ones(2, 2), draws=1)
    with pytest.raises(ConfigError, match="norm_bound"):
        complexity(torch.ones(2, 2), 0)
    with pytest.raises(DataError, match="want features"):
        complexity(torch.ones(2))
    with pytest.raises(DataError, match="not the same features"):
        compare(torch.ones(2, 2), torch.ones(3, 2))
    with pytest.raises(DataError, match="zero before"):
        compare(torch.zeros(2, 2), torch.ones(2, 2))
