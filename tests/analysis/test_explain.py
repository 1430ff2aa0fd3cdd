"""Explanations: the numbers are evaluate's own, and banks made to help or to hurt get the right sentences."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from onesdaug.analysis.explain import Explanation, explain, nothing_to_explain
from onesdaug.errors import ConfigError
from onesdaug.fewshot.bank import BankInfo, FeatureBank
from onesdaug.fewshot.evaluate import Task, ViewUse, evaluate
from onesdaug.fewshot.heads import ProtoNet

TASK = Task(way=5, shot=1, query=5, episodes=60)
CLASSES, EACH, DIM = 8, 20, 16


def make_bank(kind: str, k: int = 2) -> FeatureBank:
    """Class means plus noise; `own` views are fresh draws of the class, `other` of the next one, `copy` the image."""
    g = torch.Generator().manual_seed(0)
    labels = torch.arange(CLASSES).repeat_interleave(EACH)
    means = 3 * torch.eye(CLASSES, DIM)

    def draw(of: Tensor) -> Tensor:
        return means[of] + 1.5 * torch.randn(len(of), DIM, generator=g)

    original = draw(labels)
    make = {"own": lambda: draw(labels), "other": lambda: draw((labels + 1) % CLASSES), "copy": lambda: original}
    columns = [original, *(make[kind]() for _ in range(k))]
    info = BankInfo(
        class_names=tuple(f"class-{c}" for c in range(CLASSES)),
        ids=tuple(str(i) for i in range(len(labels))),
        data="made",
        encoder="none",
        views={"source": kind, "k": k},
        seed=0,
        commit="none",
    )
    return FeatureBank(torch.stack(columns, 1), labels, info)


def of(kind: str, support: int = 2, query: int = 2, weight: float = 0.5) -> Explanation:
    return explain(make_bank(kind), ProtoNet(), TASK, ViewUse(support, query, weight))


@pytest.mark.parametrize(("support", "query"), [(2, 2), (1, 2), (0, 2), (2, 0)])
def test_numbers_are_those_of_evaluate(support: int, query: int) -> None:
    use = ViewUse(support, query, 0.4)
    plain, mixed = evaluate(make_bank("own"), ProtoNet(), [TASK], [use])
    found = explain(make_bank("own"), ProtoNet(), TASK, use)
    assert mixed.gain is not None
    assert found.baseline.mean == pytest.approx(plain.accuracy.mean)
    assert found.accuracy.mean == pytest.approx(mixed.accuracy.mean)
    assert found.gain.difference == pytest.approx(mixed.gain.difference)
    assert found.support_gain.difference + found.query_gain.difference == pytest.approx(found.gain.difference)
    assert found.repaired.mean - found.broken.mean == pytest.approx(found.gain.difference)
    # every class takes part in as many queries per episode: their gains average to the gain
    share = sum(g.difference * g.n for g in found.classes.values()) / (TASK.way * found.gain.n)
    assert share == pytest.approx(found.gain.difference)
    assert (found.votes is None) == (query == 0)
    if found.votes is not None:
        risk = found.votes.risk
        assert risk.residual < 1e-10
        assert risk.difference.mean == pytest.approx(risk.accuracy_gap.mean + risk.diversity.mean, abs=1e-12)


def test_views_of_the_own_class_help() -> None:
    found = of("own")
    text = "\n".join(found.lines())
    assert found.verdict == "helped"
    assert found.lines()[0].startswith("Views helped: 5-way 1-shot accuracy")
    assert f"{100 * found.gain.difference:+.2f}" in found.lines()[0]
    assert "In short: views helped" in text
    assert "features nearer to their class mean" in text
    assert "Pointing the other way" not in text
    assert found.overlap[1] < found.overlap[0]
    assert found.complexity[1].value < found.complexity[0].value
    assert all(any(c.isdigit() for c in line) for line in found.lines())


def test_views_of_another_class_hurt_though_theory_smiles() -> None:
    """Averaging two classes shrinks norms and complexity, and hedges: what the paper counts as gains. It is none."""
    found = of("other", 0, 2)
    text = "\n".join(found.lines())
    assert found.verdict == "hurt"
    assert "In short: views hurt, mostly as queries: a view alone is worse" in text
    assert "the average follows it too often" in text
    assert found.votes is not None
    assert found.votes.risk.accuracy_gap.mean > 0.1
    contrary = found.lines()[-1]
    assert contrary.startswith("Pointing the other way, and so no reason here: largest norm")
    assert all(name in contrary for name in ("complexity", "overlap", "squared risk of the vote"))
    assert found.radius.after < found.radius.before
    assert found.faithfulness.agreement.mean < found.faithfulness.original_agreement.mean / 2


def test_bad_support_is_named() -> None:
    text = "\n".join(of("other", 2, 0, weight=0.2).lines())
    assert "In short: views hurt, mostly as prototypes, which classify the original queries worse" in text
    assert "vote" not in text


def test_copies_change_nothing() -> None:
    found = of("copy")
    assert found.verdict == "made no clear difference"
    assert found.repaired.mean == found.broken.mean == 0
    assert found.votes is not None
    assert found.votes.risk.difference.mean == pytest.approx(0, abs=1e-12)
    assert found.votes.disagreement.mean == 0
    assert "In short: as much was repaired as broken" in found.lines()[-1]
    assert found.complexity[1].value == pytest.approx(found.complexity[0].value)


def test_gain_goes_with_faithfulness() -> None:
    """Half of the images get views of their class, half of another: the split finds which."""
    good, bad = make_bank("own"), make_bank("other")
    even = (torch.arange(len(good.labels)) % 2 == 0).view(-1, 1, 1)
    bank = FeatureBank(torch.where(even, good.features, bad.features), good.labels, good.info)
    splits = {s.quantity: s for s in explain(bank, ProtoNet(), TASK, ViewUse(0, 2)).splits}
    faithful = splits["share of views nearest to the right class"]
    assert faithful.above.mean - faithful.above.ci95 > 0 > faithful.below.mean + faithful.below.ci95
    assert faithful.above.n + faithful.below.n == len(bank.labels)
    assert "diversity of views" in splits
    single = explain(make_bank("own", 1), ProtoNet(), TASK, ViewUse(1, 1))
    assert single.faithfulness.diversity is None
    assert len(single.splits) == 2


def test_nothing_to_explain() -> None:
    bank = make_bank("own")
    assert nothing_to_explain(bank, ViewUse(1, 0)) is None
    for use in (None, ViewUse(0, 0), ViewUse(2, 2, 1.0)):
        assert str(nothing_to_explain(bank, use)).startswith("Nothing to explain")
    with pytest.raises(ConfigError, match="no views were used"):
        explain(bank, ProtoNet(), TASK, ViewUse())
    with pytest.raises(ConfigError, match="two episodes"):
        explain(bank, ProtoNet(), Task(episodes=1, query=5), ViewUse(1, 1))
