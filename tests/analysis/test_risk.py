"""The risk decomposition: the paper's formula, its extension, and that both are identities."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from onesdaug.analysis.risk import class_terms, coin_error, score_terms, summarise, view_weights, votes
from onesdaug.errors import ConfigError, DataError


def signs(seed: int, *shape: int) -> Tensor:
    return torch.randint(0, 2, shape, generator=torch.Generator().manual_seed(seed)) * 2 - 1


def test_the_papers_formula_on_signs() -> None:
    f, y = signs(0, 500, 2), signs(1, 500)
    f[:300, 0] = y[:300]  # the original is better than chance, the view is not
    terms = score_terms(f, y)
    first, second, truth = f[:, 0].double(), f[:, 1].double(), y.double()
    gap = ((first * truth).mean() - (second * truth).mean()) / 4
    diversity = ((first * second).mean() - 1) / 8
    assert float(terms.accuracy_gap.mean()) == pytest.approx(float(gap), abs=1e-12)
    assert float(terms.diversity.mean()) == pytest.approx(float(diversity), abs=1e-12)
    assert float(terms.difference.mean()) == pytest.approx(float(gap + diversity), abs=1e-12)
    assert terms.residual < 1e-12
    # the risk of a sign predictor is its misclassification
    assert float(terms.original.mean()) == pytest.approx(float((f[:, 0] != y).double().mean()), abs=1e-12)


def test_by_hand() -> None:
    """Right and wrong: f̃ = 0, risk ¼ instead of 0; gap ¼·(1 + 1) = ½, diversity ⅛·(-1 - 1) = -¼."""
    terms = score_terms(torch.tensor([[1, -1]]), torch.tensor([1]))
    assert [float(v) for v in vars(terms).values()] == [0.0, 0.25, 0.5, -0.25]


@given(
    seed=st.integers(0, 2**31),
    k=st.integers(1, 6),
    classes=st.integers(2, 7),
    weight=st.floats(0, 1),
    scale=st.floats(0.1, 10),
)
def test_identity_for_any_predictions(seed: int, k: int, classes: int, weight: float, scale: float) -> None:
    g = torch.Generator().manual_seed(seed)
    predictions = scale * torch.randn(8, 1 + k, classes, dtype=torch.float64, generator=g)
    targets = torch.randint(0, classes, (8,), generator=g)
    terms = class_terms(predictions, targets, weight)
    assert terms.residual < 1e-10
    assert bool((terms.diversity <= 0).all())
    wanted = F.one_hot(targets, classes).double()
    average = weight * predictions[:, 0] + (1 - weight) * predictions[:, 1:].mean(1)
    risk = 0.5 * (average - wanted).square().sum(1)
    torch.testing.assert_close(terms.averaged, risk, rtol=1e-9, atol=1e-9)


def test_two_classes_are_the_binary_case() -> None:
    f, y = signs(2, 200, 4), signs(3, 200)
    binary = score_terms(f, y, 0.4)
    vectors = class_terms(F.one_hot((f > 0).long(), 2), (y > 0).long(), 0.4)
    for name, values in vars(binary).items():
        torch.testing.assert_close(values, vars(vectors)[name], rtol=0, atol=1e-12)


def test_diversity_of_two_votes_buys_no_accuracy() -> None:
    """With a coin on ties the error of two equal votes changes by the accuracy gap alone."""
    answers = torch.randint(0, 5, (400, 2), generator=torch.Generator().manual_seed(4))
    targets = torch.randint(0, 5, (400,), generator=torch.Generator().manual_seed(5))
    one_hot = F.one_hot(answers, 5)
    terms = class_terms(one_hot, targets)
    torch.testing.assert_close(coin_error(one_hot, targets) - terms.original, terms.accuracy_gap)
    assert float(terms.diversity.mean()) < -0.1


def test_unanimous_views_tie_with_their_original() -> None:
    """½ against K times ½/K: equal, whatever the rounding."""
    for k in range(1, 30):
        one_hot = F.one_hot(torch.tensor([[0] + [1] * k]), 2)
        assert coin_error(one_hot, torch.tensor([0])).tolist() == [0.5]


def test_units_are_what_the_interval_is_over() -> None:
    answers = torch.randint(0, 3, (300, 10, 3), generator=torch.Generator().manual_seed(6))
    targets = torch.randint(0, 3, (300, 10), generator=torch.Generator().manual_seed(7))
    terms = class_terms(F.one_hot(answers, 3), targets, 0.6)
    risk, found = summarise(terms), votes(answers, targets, 3, 0.6)
    assert risk.difference.n == 300
    for name in ("original", "averaged", "difference", "accuracy_gap", "diversity"):
        assert vars(risk)[name].mean == pytest.approx(vars(found.risk)[name].mean, abs=1e-12)
    assert found.original.mean == pytest.approx(1 - risk.original.mean)
    # the gap is (1 - w) times what a view alone loses
    assert risk.accuracy_gap.mean == pytest.approx(0.4 * (found.original.mean - found.view.mean))
    assert found.risk.residual < 1e-10


def test_mistakes_are_explained() -> None:
    with pytest.raises(ConfigError, match="at least one view"):
        view_weights(0)
    with pytest.raises(ConfigError, match="original_weight"):
        view_weights(1, 1.5)
    with pytest.raises(DataError, match="-1 or 1"):
        score_terms(torch.ones(3, 2), torch.zeros(3))
    with pytest.raises(DataError, match="want scores"):
        score_terms(torch.ones(3, 2), torch.ones(4))
    with pytest.raises(DataError, match="want probabilities"):
        class_terms(torch.ones(3, 2), torch.ones(3))
