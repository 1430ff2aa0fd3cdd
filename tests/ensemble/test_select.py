"""Which views are kept, by hand, and that weights always sum to 1."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from onesdaug.ensemble.combine import view_weights
from onesdaug.ensemble.select import kept_views

# the original, then a view at 90°, at 0° (but longer), at 45°
ANGLES = torch.tensor([[[1.0, 0.0], [0.0, 1.0], [5.0, 0.0], [1.0, 1.0]]])


@pytest.mark.parametrize(
    ("keep", "expected"),
    [
        (0.01, [False, True, False]),
        (0.5, [False, True, True]),
        (2 / 3, [False, True, True]),
        (1.0, [True] * 3),
    ],
)
def test_similarity_keeps_the_closest(keep: float, expected: list[bool]) -> None:
    assert kept_views(ANGLES, "similarity", keep).tolist() == [expected]


def test_confidence_keeps_the_surest_per_image() -> None:
    sure, unsure, middle = [0.0, 9.0], [0.0, 0.0], [0.0, 2.0]
    outputs = torch.tensor([[unsure, sure, unsure, middle], [sure, unsure, middle, unsure]])
    assert kept_views(outputs, "confidence", 1 / 3).tolist() == [[True, False, False], [False, True, False]]


def test_confidence_of_given_probabilities_with_zeros() -> None:
    p = torch.tensor([[[0.5, 0.5], [0.6, 0.4], [1.0, 0.0]]])
    assert kept_views(p, "confidence", 0.5).tolist() == [[False, True]]


def test_a_view_that_is_nan_goes_first() -> None:
    outputs = torch.tensor([[[1.0, 0.0], [float("nan"), 1.0], [-1.0, 0.0]]])
    assert kept_views(outputs, "similarity", 0.5).tolist() == [[False, True]]


def test_a_whole_fraction_keeps_no_view_too_many() -> None:
    outputs = torch.randn(2, 101, 4, generator=torch.Generator().manual_seed(0))
    assert kept_views(outputs, "similarity", 0.07).sum(1).tolist() == [7, 7]


def test_weights_by_hand() -> None:
    kept = torch.tensor([[True, False, True], [True, False, False]])
    assert view_weights(kept, 0.5).tolist() == [[0.5, 0.25, 0.0, 0.25], [0.5, 0.5, 0.0, 0.0]]
    assert view_weights(kept[1:], None).tolist() == [[0.5, 0.5, 0.0, 0.0]]
    assert view_weights(torch.ones(2, 0, dtype=torch.bool), 0.5).tolist() == [[1.0], [1.0]]


@given(st.integers(0, 6), st.none() | st.floats(0, 1), st.floats(0.01, 1), st.sampled_from(["all", "similarity"]))
def test_weights_sum_to_one(k: int, original: float | None, keep: float, select: str) -> None:
    outputs = torch.randn(3, 1 + k, 5, generator=torch.Generator().manual_seed(k))
    kept = kept_views(outputs, select, keep)
    weights = view_weights(kept, original)
    assert (weights >= 0).all()
    torch.testing.assert_close(weights.sum(1), torch.ones(3))
    assert k == 0 or (kept.sum(1) >= 1).all()
