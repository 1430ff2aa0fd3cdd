"""The combinations, by hand."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from onesdaug.ensemble.combine import COMBINE, probabilities, view_weights, vote
from onesdaug.errors import ConfigError

HALF = torch.tensor([[0.5, 0.25, 0.25]])


def equal_votes(outputs: torch.Tensor) -> torch.Tensor:
    kept = torch.ones(outputs.shape[0], outputs.shape[1] - 1, dtype=torch.bool)
    return view_weights(kept, None)


def ballots(*classes: int, of: int = 3, sure: tuple[float, ...] = ()) -> torch.Tensor:
    """One image whose original and views predict these classes, each with its own probability."""
    p = torch.zeros(1, len(classes), of)
    for v, c in enumerate(classes):
        top = sure[v] if sure else 0.9
        p[0, v] = (1 - top) / (of - 1)
        p[0, v, c] = top
    return p


@pytest.mark.parametrize("name", ["embedding", "logits"])
def test_averages_give_half_to_the_original(name: str) -> None:
    outputs = torch.tensor([[[4.0, 0.0], [0.0, 8.0], [2.0, 4.0]]])
    assert COMBINE[name](outputs, HALF).tolist() == [[2.5, 3.0]]


def test_probs_are_averaged_after_the_softmax() -> None:
    third = torch.log(torch.tensor([[[3.0, 1.0], [1.0, 1.0], [1.0, 3.0]]]))
    got = COMBINE["probs"](third, HALF)
    torch.testing.assert_close(got, torch.tensor([[0.5 * 0.75 + 0.25 * 0.5 + 0.25 * 0.25, 0.4375]]))


def test_probs_that_are_probs_stay_as_they_are() -> None:
    p = torch.tensor([[[0.9, 0.1], [0.2, 0.8], [0.4, 0.6]]])
    torch.testing.assert_close(COMBINE["probs"](p, HALF), torch.tensor([[0.6, 0.4]]))
    assert probabilities(p) is p
    assert probabilities(p * 2) is not p


def test_a_dropped_view_cannot_spoil_the_mean() -> None:
    outputs = torch.tensor([[[1.0, 2.0], [float("inf"), float("nan")], [3.0, 4.0]]])
    got = COMBINE["embedding"](outputs, torch.tensor([[0.5, 0.0, 0.5]]))
    assert got.tolist() == [[2.0, 3.0]]


def test_vote_majority_beats_the_original_odd() -> None:
    shares = vote(p := ballots(0, 1, 1), equal_votes(p))
    torch.testing.assert_close(shares, torch.tensor([[1 / 3, 2 / 3, 0.0]]))


def test_vote_tie_even_original_decides() -> None:
    shares = vote(p := ballots(2, 0, 0, 2), equal_votes(p))
    assert shares.argmax(-1).item() == 2
    torch.testing.assert_close(shares, torch.tensor([[0.495, 0.0, 0.505]]))


def test_vote_tie_odd_all_different_original_decides() -> None:
    shares = vote(p := ballots(1, 0, 2, sure=(0.4, 0.9, 0.9)), equal_votes(p))
    assert shares.argmax(-1).item() == 1
    assert shares.sum().item() == pytest.approx(1)


def test_vote_tie_without_the_original_goes_to_the_larger_probability() -> None:
    # the original says 0; views say 1, 1, 2, 2, the 2s more surely
    shares = vote(p := ballots(0, 1, 1, 2, 2, sure=(0.9, 0.6, 0.6, 0.9, 0.9)), equal_votes(p))
    assert shares.argmax(-1).item() == 2
    # equal probability too: the lowest index
    shares = vote(p := ballots(0, 2, 2, 1, 1), equal_votes(p))
    assert shares.argmax(-1).item() == 1


def test_vote_tie_survives_bfloat16() -> None:
    p = ballots(2, 0, 0, 2)
    assert vote(p, equal_votes(p)).bfloat16().argmax(-1).item() == 2


@pytest.mark.parametrize("broken", [float("nan"), float("inf")])
@pytest.mark.parametrize("name", ["embedding", "logits", "probs", "vote"])
def test_what_is_no_number_is_no_vote_either(name: str, broken: float) -> None:
    outputs = torch.tensor([[[1.0, 2.0, 3.0]] * 3] * 2)
    outputs[1, 2, 0] = broken
    weights = equal_votes(outputs)
    got = COMBINE[name](outputs, weights)
    assert got[0].isfinite().all() and not got[1].isfinite().all()
    weights[:, 2] = 0.0  # unless that view was dropped
    assert COMBINE[name](outputs, weights).isfinite().all()


def test_a_broken_row_does_not_make_scores_of_the_others_probabilities() -> None:
    outputs = torch.tensor([[[0.2, 0.8]], [[float("nan"), 0.5]]])
    assert torch.equal(probabilities(outputs)[0], outputs[0])


def test_one_column_is_refused() -> None:
    with pytest.raises(ConfigError, match="one column per class"):
        vote(torch.zeros(1, 3, 1), HALF)


@given(st.data())
def test_the_order_of_views_does_not_matter(data: st.DataObject) -> None:
    k, classes = data.draw(st.integers(1, 5)), data.draw(st.integers(2, 4))
    logits = st.lists(st.integers(-3, 3), min_size=classes, max_size=classes)
    outputs = torch.tensor([data.draw(st.lists(logits, min_size=1 + k, max_size=1 + k))], dtype=torch.float32)
    order = torch.tensor([0, *(1 + i for i in data.draw(st.permutations(range(k))))])
    weights = view_weights(torch.ones(1, k, dtype=torch.bool), data.draw(st.sampled_from([None, 0.5])))
    for combine in COMBINE.values():
        before, after = combine(outputs, weights), combine(outputs[:, order], weights[:, order])
        torch.testing.assert_close(after, before)
