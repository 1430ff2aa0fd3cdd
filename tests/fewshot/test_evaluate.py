"""Evaluation: right on data whose accuracy is known, the same as a plain loop, and without leaks."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
import torch
from torch import Tensor

from onesdaug.errors import ConfigError, DataError
from onesdaug.fewshot import evaluate as module
from onesdaug.fewshot.bank import FeatureBank
from onesdaug.fewshot.evaluate import Task, ViewUse, accuracies, answers, evaluate, features_for, margins
from onesdaug.fewshot.heads import HEADS, ProtoNet, build_head
from tests.fewshot.test_bank import make_bank


def gaussian(separation: float, classes: int = 8, per_class: int = 60, dim: int = 16, k: int = 0) -> FeatureBank:
    rng = torch.Generator().manual_seed(0)
    centres = torch.randn(classes, 1, 1, dim, generator=rng) * separation
    features = centres + torch.randn(classes, per_class, 1 + k, dim, generator=rng)
    return make_bank(features.flatten(0, 1), torch.arange(classes).repeat_interleave(per_class))


def test_far_classes_are_always_told_apart_and_equal_ones_never() -> None:
    far = evaluate(gaussian(100.0), ProtoNet(), [Task(episodes=50)], [])
    assert far[0].accuracy.mean == 1.0
    same = evaluate(gaussian(0.0), ProtoNet(), [Task(episodes=2000)], [])[0].accuracy
    assert abs(same.mean - 0.2) < 3 * same.ci95


def test_sure_queries_are_answered_without_views() -> None:
    """At the ends of the threshold nobody or everybody has views; between them each query is one or the other."""
    bank, head = gaussian(0.6, k=2), ProtoNet()
    episodes = Task(episodes=40).sample(bank.labels)

    def right(use: ViewUse) -> np.ndarray:
        return accuracies(head, features_for(bank, episodes, use), episodes)

    every, none = right(ViewUse(2, 2)), right(ViewUse(2, 0))
    assert (every != none).any()
    np.testing.assert_array_equal(right(ViewUse(2, 2, threshold=1.0)), every)
    np.testing.assert_array_equal(right(ViewUse(2, 2, threshold=-1.0)), none)
    known = margins(head, bank, episodes, ViewUse(2, 2))
    assert known.shape == (40, 75) and known.min() >= 0 and known.max() <= 1
    middle = float(known.median())
    features = features_for(bank, episodes, ViewUse(2, 2))
    plain = features_for(bank, episodes, ViewUse(2, 0))
    everything = slice(0, 40)
    with_views = head(features.support(everything), features.query(everything)).argmax(-1)
    alone = head(plain.support(everything), plain.query(everything)).argmax(-1)
    chosen = torch.where(known > middle, alone, with_views)
    expected = (chosen == episodes.targets).double().mean(1).numpy()
    np.testing.assert_allclose(right(ViewUse(2, 2, threshold=middle)), expected)


@pytest.mark.parametrize("threshold", [None, 0.3])
def test_queries_get_views_until_their_answer_is_settled(threshold: float | None) -> None:
    """As the loop over queries and views that one would write: answers and number of views."""
    bank, head, everything = gaussian(0.6, k=3), ProtoNet(), slice(0, 20)
    episodes = Task(episodes=20).sample(bank.labels)
    right, drawn = answers(head, features_for(bank, episodes, ViewUse(3, 3, auto=True, threshold=threshold)), episodes)
    support = features_for(bank, episodes, ViewUse(3, 3)).support(everything)
    queries = [features_for(bank, episodes, ViewUse(3, n)).query(everything) for n in range(4)]
    looks = torch.stack([head(support, query).softmax(-1) for query in queries]).flatten(1, 2)
    found, counts = [], []
    for query in range(looks.shape[1]):
        for number, look in enumerate(looks[:, query]):
            best, second = look.sort(descending=True).values[:2]
            moved = (look - looks[number - 1, query]).abs().sum() if number else 2.0
            moved = moved * number / (number + 1) if number else moved  # what one more like it would
            enough = best - second > (threshold if number == 0 and threshold is not None else moved)
            if enough or number == 3:
                found.append(int(look.argmax()))
                counts.append(number)
                break
    wanted = torch.tensor(found).view(20, -1) == episodes.targets
    np.testing.assert_array_equal(right.sum(1), wanted.sum(1).numpy())
    assert drawn == pytest.approx(np.mean(counts)) and 0 < drawn < 3


def test_two_gaussians_give_the_analytic_accuracy() -> None:
    """N(±1, 1) on a line, S shots: the threshold is the prototypes' midpoint, so Φ(1 / √(1 + 1/2S))."""
    rng, shot = np.random.default_rng(0), 10
    values = np.concatenate([rng.normal(-1, 1, 20_000), rng.normal(1, 1, 20_000)])
    bank = make_bank(torch.tensor(values).float()[:, None, None], torch.arange(2).repeat_interleave(20_000))
    found = evaluate(bank, ProtoNet(), [Task(2, shot, 50, 2000)], [])[0].accuracy
    expected = 0.5 * math.erfc(-1 / math.sqrt(1 + 1 / (2 * shot)) / math.sqrt(2))
    assert found.mean == pytest.approx(expected, abs=0.006)


@pytest.mark.parametrize("name", HEADS)
def test_chunks_and_threads_change_nothing(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CHUNK_BYTES", 20_000)  # three or so episodes at a time
    bank, use = gaussian(0.5, k=2), ViewUse(2, 1)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        head = build_head(name, 16).eval()
    episodes = Task(shot=3, episodes=40).sample(bank.labels)
    found = accuracies(head, features_for(bank, episodes, use), episodes)
    f = bank.features
    support, query = 0.5 * f[:, 0] + 0.25 * (f[:, 1] + f[:, 2]), 0.5 * f[:, 0] + 0.5 * f[:, 1]
    for i in range(40):
        logits = head(support[episodes.support[i]][None], query[episodes.query[i].flatten()][None])[0]
        assert found[i] == pytest.approx((logits.argmax(1) == episodes.targets).double().mean().item())
    assert torch.get_num_threads() > 0


def test_oracle_equals_a_loop_over_its_views() -> None:
    bank = dataclasses.replace(gaussian(0.5))
    bank = make_bank(bank.features, bank.labels, source="oracle", k=3)
    episodes, use = Task(episodes=10).sample(bank.labels), ViewUse(2, 3, 0.4)
    features = features_for(bank, episodes, use)
    assert features.oracle is not None
    f = bank.features[:, 0]
    images, views = episodes.query[4, 1, 2], features.oracle.query[4, 1, 2]
    expected = 0.4 * f[images] + 0.6 * f[views].mean(0)
    assert torch.allclose(features.query(slice(4, 5))[0, 1 * 15 + 2], expected, atol=1e-6)
    gains = evaluate(bank, ProtoNet(), [Task(episodes=300)], [use])
    assert gains[1].gain is not None
    assert gains[1].gain.difference > 0.05  # real images of the class do help
    assert gains[1].gain.p_value < 1e-6


def test_oracle_views_of_pure_noise_do_not_help() -> None:
    """If a support image could meet a query's companion, noise would become 'recognisable'."""
    bank = gaussian(0.0, per_class=40)
    oracle = make_bank(bank.features, bank.labels, source="oracle", k=3)
    with pytest.raises(ConfigError, match="none is selected"):
        evaluate(oracle, ProtoNet(), [Task(episodes=2)], [ViewUse(3, 3, select="similarity")])
    found = evaluate(oracle, ProtoNet(), [Task(episodes=2000)], [ViewUse(3, 3)])[1].accuracy
    assert abs(found.mean - 0.2) < 3 * found.ci95


def test_a_leaked_query_is_refused() -> None:
    bank = gaussian(1.0)
    episodes = Task(episodes=5).sample(bank.labels)
    query = episodes.query.clone()
    query[2, 0, 0] = episodes.support[2, 0, 0]
    with pytest.raises(DataError, match="uses an image twice"):
        features_for(bank, dataclasses.replace(episodes, query=query), ViewUse())


def test_views_that_denoise_gain_and_the_gain_is_paired() -> None:
    bank = gaussian(0.5, k=3)
    rows = evaluate(bank, ProtoNet(), [Task(shot=s) for s in (1, 5)], [ViewUse(n, n) for n in range(4)])
    assert [(r.task.shot, r.use.support, r.baseline) for r in rows[:4]] == [
        (1, 0, True), (1, 1, False), (1, 2, False), (1, 3, False),
    ]  # fmt: skip
    assert len(rows) == 8
    assert rows[0].accuracy.n == 200  # 15,000 queries, 75 an episode
    for row in rows:
        assert row.episodes["fingerprint"] == rows[0 if row.task.shot == 1 else 4].episodes["fingerprint"]
        if row.gain is not None:
            base = rows[0 if row.task.shot == 1 else 4].accuracy.mean
            assert row.gain.difference == pytest.approx(row.accuracy.mean - base)
    assert rows[0].accuracy.mean < rows[1].accuracy.mean < rows[3].accuracy.mean
    assert dataclasses.asdict(rows[3])["gain"]["p_value"] < 0.01


def test_against_another_bank() -> None:
    bank, other = gaussian(0.5, k=2), gaussian(0.5, k=1)
    rows = evaluate(bank, ProtoNet(), [Task(episodes=20)], [ViewUse(0, 0), ViewUse(2, 2)], other)
    assert [(r.use.support, r.baseline) for r in rows] == [(1, True), (0, False), (2, False)]
    with pytest.raises(DataError, match="other images"):
        evaluate(bank, ProtoNet(), [Task()], [], gaussian(0.5, per_class=50))
    with pytest.raises(DataError, match="d = 8"):
        evaluate(bank, ProtoNet(), [Task()], [], gaussian(0.5, dim=8))


def test_bad_uses_are_refused() -> None:
    bank = gaussian(0.5, k=1)
    episodes = Task(episodes=2).sample(bank.labels)
    with pytest.raises(ConfigError, match="the bank has 1 per image"):
        features_for(bank, episodes, ViewUse(2, 1))
    with pytest.raises(ConfigError, match="original_weight"):
        features_for(bank, episodes, ViewUse(1, 1, -0.1))


def test_a_failing_head_is_heard_and_threads_come_back() -> None:
    class Broken(ProtoNet):
        def predict(self, support: Tensor, query: Tensor) -> Tensor:
            raise RuntimeError("broken head")

    bank, threads = gaussian(0.5), torch.get_num_threads()
    episodes = Task(episodes=2).sample(bank.labels)
    with pytest.raises(RuntimeError, match="broken head"):
        accuracies(Broken(), features_for(bank, episodes, ViewUse()), episodes)
    assert torch.get_num_threads() == threads
