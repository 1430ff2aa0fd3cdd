"""The forecast: ridge regression as scikit-learn has it, and a gain exactly where the condition knows something."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.linear_model import Ridge

from benchmarks import forecast as benchmark
from benchmarks.ridge_forecast import Looks, as_bank, fit, forecast, target_of, unit
from onesdaug.data.dataset import Dataset
from onesdaug.data.registry import BENCHMARKS
from onesdaug.errors import ConfigError, DataError
from onesdaug.fewshot.evaluate import Task, ViewUse, evaluate
from onesdaug.fewshot.heads import ProtoNet

TASK = Task(episodes=300)


def world(novel: bool, knows: bool, classes: int = 40, per_class: int = 30) -> Looks:
    """Classes are points u; the classifier sees B·u with much noise, the condition A·u with little or nothing of u."""
    fixed = torch.Generator().manual_seed(0)
    a, b = torch.randn(8, 24, generator=fixed), torch.randn(8, 16, generator=fixed)
    rng = torch.Generator().manual_seed(1 + novel)
    u = torch.randn(classes, 8, generator=rng).repeat_interleave(per_class, 0)
    classifier = u @ b + 4 * torch.randn(len(u), 16, generator=rng)
    condition = (u @ a if knows else 0) + 0.5 * torch.randn(len(u), 24, generator=rng)
    return Looks(condition, classifier, torch.arange(classes).repeat_interleave(per_class))


@pytest.mark.parametrize(("n", "ridge"), [(200, 0.1), (200, 3.0), (10, 0.5)])
def test_the_regression_is_scikit_learns_ridge(n: int, ridge: float) -> None:
    rng = np.random.default_rng(0)
    c, y, new = rng.normal(2, 3, (n, 20)), rng.normal(-1, 2, (n, 7)), rng.normal(2, 3, (15, 20))
    rows = c / np.linalg.norm(c, axis=1, keepdims=True)
    alpha = ridge * rows.var(0).mean() * n  # ours is relative to the mean variance and per image
    expected = Ridge(alpha=alpha).fit(rows, y).predict(new / np.linalg.norm(new, axis=1, keepdims=True))
    found = fit(torch.from_numpy(c), torch.from_numpy(y), ridge)
    assert found.weights.dtype == torch.float64
    assert np.allclose(found.predict(torch.from_numpy(new)).numpy(), expected, atol=1e-10)


def test_scale_of_the_condition_does_not_matter_and_amplification_goes_on_from_the_mean() -> None:
    base = world(novel=False, knows=True)
    base = replace(base, condition=base.condition.double())
    one = fit(base.condition, base.classifier, 0.1)
    big = fit(base.condition * 1000, base.classifier, 0.1)
    plain = one.predict(base.condition)
    assert torch.allclose(plain, big.predict(base.condition * 7))
    assert torch.allclose(one.predict(base.condition, 3.0) - one.mean_target, 3 * (plain - one.mean_target))
    assert torch.allclose(one.predict(base.condition, 0.0), base.classifier.double().mean(0).expand_as(plain))
    assert torch.allclose(unit(base.condition).norm(dim=1), torch.ones(1200, dtype=torch.float64))


def test_targets_are_the_image_itself_or_its_class_mean() -> None:
    features, labels = torch.tensor([[1.0, 0], [3, 0], [0, 5], [2, 4]]), torch.tensor([7, 7, 2, 7])
    assert target_of("self", features, labels) is features
    expected = torch.tensor([[2, 4 / 3], [2, 4 / 3], [0, 5], [2, 4 / 3]], dtype=torch.float64)
    assert torch.allclose(target_of("class", features, labels), expected)
    with pytest.raises(ConfigError, match="self, class"):
        target_of("other", features, labels)  # type: ignore[arg-type]


def test_a_condition_that_knows_the_class_helps_and_one_that_knows_nothing_does_not() -> None:
    settings = {"ridges": (0.1,), "amplifications": (1.0, 2.0), "tasks": (TASK,)}
    known = forecast(world(False, True), world(True, True), ProtoNet("cosine"), "knows", **settings)  # type: ignore[arg-type]
    random = forecast(world(False, False), world(True, False), ProtoNet("cosine"), "noise", **settings)  # type: ignore[arg-type]
    assert [(r.target, r.amplification) for r in known] == [("self", 1), ("self", 2), ("class", 1), ("class", 2)]
    for row in known:
        assert row.gain.difference > 0.1 and row.gain.p_value < 1e-6
        assert row.accuracy.mean - row.baseline.mean == pytest.approx(row.gain.difference)
        assert row.relative_percent == pytest.approx(100 * row.gain.difference / row.baseline.mean)
    for row in random:
        assert row.gain.difference < 0.01
    assert known[0].baseline.mean == pytest.approx(random[0].baseline.mean, abs=0.05)


def test_the_gain_is_that_of_the_plain_mean_of_both_features() -> None:
    base, novel = world(False, True), world(True, True)
    row = forecast(
        base, novel, ProtoNet(), "x", targets=("self",), ridges=(1.0,), amplifications=(2.0,), tasks=(TASK,)
    )
    predicted = fit(base.condition, base.classifier, 1.0).predict(novel.condition, 2.0)
    mean = (0.5 * novel.classifier.double() + 0.5 * predicted).float()
    alone = evaluate(as_bank(mean, mean, novel.labels, "x"), ProtoNet(), [TASK], [ViewUse()])[0]
    assert row[0].accuracy.mean == pytest.approx(alone.accuracy.mean, abs=1e-4)


def test_bad_input_is_said_at_once() -> None:
    looks = world(False, True)
    with pytest.raises(DataError, match="N labels"):
        replace(looks, labels=looks.labels[:-1])
    with pytest.raises(ConfigError, match="ridge must be positive"):
        fit(looks.condition, looks.classifier, 0.0)
    with pytest.raises(ConfigError, match="two episodes"):
        forecast(looks, looks, ProtoNet(), "x", tasks=(Task(episodes=1),))


# -- the benchmark ----------------------------------------------------------------------------------------------------


def test_the_sample_is_balanced_random_and_repeatable() -> None:
    labels = np.tile(np.arange(3), 20)
    images = np.arange(60, dtype=np.uint8).reshape(-1, 1, 1, 1).repeat(3, axis=3)
    data = Dataset(images, labels, ("a", "b", "c"), tuple(str(i) for i in range(60)), "mark")
    part, again = (benchmark.sample(data, 5, np.random.default_rng(0)) for _ in range(2))
    assert part.counts().tolist() == [5, 5, 5] and part.ids == again.ids
    assert part.ids != data.take(5).ids and part.fingerprint.startswith("mark[")
    rows = [int(i) for i in part.ids]
    assert rows == sorted(set(rows)) and part.images[:, 0, 0, 0].tolist() == rows
    assert (part.labels == labels[rows]).all()
    assert benchmark.sample(data, 5, np.random.default_rng(1)).fingerprint != part.fingerprint


@pytest.mark.parametrize("name", ["forecast", "forecast-lite2", "forecast-cub"])
def test_the_documents_tables_are_made_from_the_results(name: str) -> None:
    record = json.loads(benchmark.RESULTS.with_stem(name).read_text())
    splits = BENCHMARKS["cub" if name == "forecast-cub" else "miniimagenet"].splits
    for split in ("train", "val"):
        assert record["data"][split]["fingerprint"] in splits[split].fingerprints
    document = benchmark.DOCS.read_text()
    assert (
        benchmark.with_tables(document, {f"benchmarks/results/{name}.json": f"\n{benchmark.table(record)}\n"})
        == document
    )
    assert not any(path in json.dumps(record) for path in ("/tmp", "/work", "/home", "/root"))


def test_two_conditions_look_side_by_side() -> None:
    one, other = (as_bank(x, x, torch.tensor([0, 1]), "x") for x in (torch.tensor([[3.0, 4], [0, 2]]), torch.eye(2)))
    both = benchmark._beside(one, other)
    assert torch.allclose(both.features[:, 0], torch.tensor([[0.6, 0.8, 1, 0], [0, 1, 0, 1]]))
