"""Votes, ties, unknowns and errors; and voting against the binomial formula."""

from __future__ import annotations

from math import comb

import numpy as np
import pytest
import torch

from onesdaug.ensemble.combine import vote as ensemble_vote
from onesdaug.errors import ConfigError
from onesdaug.vlm.answers import ERROR, NO, UNKNOWN, YES, Codes, check_weights, mean_margin, vote

Y, N, U, E = YES, NO, UNKNOWN, ERROR


def codes(*rows: list[int]) -> Codes:
    return np.array(rows, dtype=np.int8)


@pytest.mark.parametrize(
    ("answers", "decision"),
    [
        ([Y], Y),
        ([U], U),
        ([N, Y, Y], Y),
        ([Y, N], Y),  # a tie is the original's
        ([N, Y], N),
        ([N, N, Y, Y], N),
        ([U, Y, N], U),  # also where it does not know
        ([U, Y, Y], Y),
        ([Y, U, U], Y),  # an unknown casts no vote
        ([N, U, Y], N),
        ([U, U], U),
        ([Y, Y, E], E),  # an error is no answer
        ([E, Y, Y], E),
    ],
)
def test_votes(answers: list[int], decision: int) -> None:
    assert vote(codes(answers)).tolist() == [decision]


def test_weights_of_votes() -> None:
    answers = codes([N, Y, Y, N, Y])
    assert vote(answers).tolist() == [Y]
    assert vote(answers, original_weight=2.5).tolist() == [N]
    assert vote(answers, original_weight=2.0).tolist() == [N]  # 3 to 3: the original
    assert vote(answers, view_weight=0.0).tolist() == [N]
    assert vote(answers, original_weight=0.0).tolist() == [Y]
    assert vote(codes([N] + [Y] * 10), original_weight=1.0, view_weight=0.1).tolist() == [N]  # 0.1 · 10 is a tie
    assert vote(codes([Y]), original_weight=0.0).tolist() == [Y]  # without views the original decides anyway


def test_it_is_the_ensembles_vote() -> None:
    """The same decisions as `ensemble.combine.vote` gives for the same ballots."""
    rng = np.random.default_rng(0)
    for columns in (1, 2, 3, 4, 5):
        answers = rng.integers(0, 2, (200, columns)).astype(np.int8)
        ballots = torch.nn.functional.one_hot(torch.from_numpy(answers).long(), 2).float()
        shares = ensemble_vote(ballots, torch.full((200, columns), 1 / columns))
        assert vote(answers).tolist() == shares.argmax(-1).tolist()


def test_mean_margins() -> None:
    nan = np.nan
    margins = np.array([[1.0, -3.0, 1.0], [-1.0, 3.0, -1.0], [2.0, -2.0, 0.0], [nan, 1.0, nan], [nan] * 3, [0.0] * 3])
    assert mean_margin(margins, np.zeros_like(margins, dtype=np.int8)).tolist() == [N, Y, Y, Y, U, U]
    lost = codes(*([[Y, Y, E]] * 6))
    assert mean_margin(margins, lost).tolist() == [E] * 6
    one = np.array([[3.0, -1.0, -1.0, -1.0, -1.0]])
    fine = codes([Y] * 5)
    assert mean_margin(one, fine).tolist() == [N]
    assert mean_margin(one, fine, original_weight=2.0).tolist() == [Y]
    assert mean_margin(one, fine, view_weight=0.5).tolist() == [Y]


@pytest.mark.parametrize("weights", [(-1.0, 1.0), (0.0, 0.0), (float("nan"), 1.0), (1.0, float("inf"))])
def test_weights_that_cannot_work(weights: tuple[float, float]) -> None:
    with pytest.raises(ConfigError, match="weights"):
        check_weights(*weights)


def majority_error(e: float, votes: int) -> float:
    """P(more than half of independent votes are wrong); half of the ties are, as either side holds the original."""
    probability = [comb(votes, wrong) * e**wrong * (1 - e) ** (votes - wrong) for wrong in range(votes + 1)]
    tie = probability[votes // 2] if votes % 2 == 0 else 0.0
    return sum(probability[votes // 2 + 1 :]) + tie / 2


@pytest.mark.parametrize("k", [0, 1, 2, 3, 4, 5, 8])
@pytest.mark.parametrize("e", [0.1, 0.25, 0.4])
def test_independent_votes_follow_the_binomial_formula(k: int, e: float) -> None:
    n = 20_000
    rng = np.random.default_rng(1000 * k + int(100 * e))
    truth = rng.integers(0, 2, n)
    wrong = rng.random((n, 1 + k)) < e
    answers = np.where(wrong, 1 - truth[:, None], truth[:, None]).astype(np.int8)
    expected = majority_error(e, 1 + k)
    measured = float((vote(answers) != truth).mean())
    assert abs(measured - expected) < 2.6 * np.sqrt(expected * (1 - expected) / n)  # its 99 % interval
    if k % 2:  # the odd view out: with ties to the original, K views do as well as K − 1
        assert expected == pytest.approx(majority_error(e, k))
