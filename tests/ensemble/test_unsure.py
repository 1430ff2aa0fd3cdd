"""Views only where they pay: the original answers alone where it is sure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from onesdaug import Augmenter, TestTimeEnsemble
from onesdaug.augment.source import ViewSource
from onesdaug.data.pixels import to_pil, to_uint8
from onesdaug.ensemble.select import settled, stops
from onesdaug.ensemble.sources import as_source, find_views
from onesdaug.errors import ConfigError


@dataclass
class Counting(ViewSource):
    seen: list[int] = field(default_factory=list)

    def tensors(self, batch: Tensor, k: int, seeds: Sequence[int | str] | None = None) -> Tensor:
        self.seen.append(len(batch))
        return (1 - batch)[:, None].expand(-1, k, -1, -1, -1)


class Brightness(nn.Module):
    """Two classes by brightness: the further from grey, the surer."""

    def forward(self, x: Tensor) -> Tensor:
        far = 8 * (x.mean((1, 2, 3)) - 0.5)
        return torch.stack([-far, far], dim=1)


BATCH = torch.stack([torch.full((3, 4, 4), value) for value in (0.05, 0.48, 0.95, 0.44)])


@pytest.mark.parametrize("combine", ["logits", "probs"])
@pytest.mark.parametrize("pictures", [False, True])
def test_views_are_made_for_the_unsure_alone(combine: str, pictures: bool) -> None:
    fed = to_pil(BATCH) if pictures else BATCH
    some, every = Counting(), Counting()
    model = Brightness().eval()
    sure = TestTimeEnsemble(model, some, k=2, combine=combine, when="unsure", threshold=0.5)
    full = TestTimeEnsemble(model, every, k=2, combine=combine)
    found, whole = sure(fed, return_details=True), full(fed, return_details=True)
    assert sum(some.seen) == 2 and sum(every.seen) == 4
    assert found.kept.any(1).tolist() == [False, True, False, True]
    torch.testing.assert_close(found.output[[1, 3]], whole.output[[1, 3]])
    alone = TestTimeEnsemble(model, every, k=0, combine=combine)(fed)
    torch.testing.assert_close(found.output[[0, 2]], alone[[0, 2]])
    assert found.weights.sum(1).tolist() == [1.0] * 4 and [len(v) for v in found.views] == (
        [0, 2, 0, 2] if pictures else [2] * 4
    )


def test_the_ends_of_the_threshold() -> None:
    none, all_of_them = Counting(), Counting()
    model = Brightness().eval()
    TestTimeEnsemble(model, none, k=2, combine="probs", when="unsure", threshold=0.0)(BATCH)
    TestTimeEnsemble(model, all_of_them, k=2, combine="probs", when="unsure", threshold=1.0)(BATCH)
    assert none.seen == [] and all_of_them.seen == [4]


def test_features_have_no_margin() -> None:
    with pytest.raises(ConfigError, match=r"when='unsure'\) needs class scores"):
        TestTimeEnsemble(Brightness(), Counting(), when="unsure")
    with pytest.raises(ConfigError, match="when='often' is not known"):
        TestTimeEnsemble(Brightness(), Counting(), combine="probs", when="often")


@dataclass
class Brighter(ViewSource):
    """View n is n tenths brighter; remembers which views were asked for alone."""

    asked: list[tuple[int, int]] = field(default_factory=list)

    def tensors(self, batch: Tensor, k: int, seeds: Sequence[int | str] | None = None) -> Tensor:
        self.asked += [(number, len(batch)) for number in range(1, k + 1)]
        return torch.stack([(batch + number / 10).clamp(0, 1) for number in range(1, k + 1)], dim=1)

    def nth(self, batch: Tensor, number: int, seeds: Sequence[int | str] | None = None) -> Tensor:
        self.asked.append((number, len(batch)))
        return (batch + number / 10).clamp(0, 1)


@pytest.mark.parametrize("combine", ["logits", "probs", "vote"])
@pytest.mark.parametrize("pictures", [False, True])
def test_views_are_drawn_until_the_answer_is_settled(combine: str, pictures: bool) -> None:
    fed = to_pil(BATCH) if pictures else BATCH
    source, model = Brighter(), Brightness().eval()
    found = TestTimeEnsemble(model, source, k="auto", at_most=3, combine=combine)(fed, return_details=True)
    drawn = found.drawn.tolist()
    assert len(set(drawn)) > 1 and max(drawn) <= 3 and min(drawn) >= 1
    wanted = [n for n in (1, 2, 3) for count in drawn if count >= n]  # never one that was not needed, none twice
    assert sorted(number for number, rows in source.asked for _ in range(rows)) == wanted
    for row, count in enumerate(drawn):  # with as many views as it took, it is the plain ensemble
        plain = TestTimeEnsemble(model, Brighter(), k=count, combine=combine)(fed, return_details=True)
        torch.testing.assert_close(found.output[row], plain.output[row])
        torch.testing.assert_close(found.weights[row, : 1 + count], plain.weights[row])
        assert not found.weights[row, 1 + count :].any() and found.per_view[row, 1 + count :].isnan().all()
        assert len(found.views[row]) == (count if pictures else 3)
        looks = [TestTimeEnsemble(model, Brighter(), k=k, combine=combine)(fed) for k in range(count + 1)]
        assert stops(looks)[row] == count  # nor was there too few: the rule, written down once, says the same


def test_a_settled_answer_could_only_be_changed_by_a_larger_step() -> None:
    before = torch.tensor([[0.5, 0.3, 0.2], [0.5, 0.3, 0.2], [0.35, 0.65, 0.0]])
    now = torch.tensor([[0.6, 0.25, 0.15], [0.4, 0.35, 0.25], [0.55, 0.45, 0.0]])
    assert settled(before, now, 1).tolist() == [True, False, False]  # they moved by 0.2, 0.2, 0.4
    closer = torch.tensor([[0.45, 0.55, 0.0]]), torch.tensor([[0.56, 0.44, 0.0]])  # moved by 0.22, leads by 0.12
    assert settled(*closer, 1) and not settled(*closer, 2)  # a second view moves half as much, a third two thirds
    looks = [before, now, now]
    assert stops(looks).tolist() == [1, 2, 2] and stops(looks, threshold=0.19).tolist() == [0, 0, 0]
    assert stops(looks, threshold=0.5).tolist() == [1, 2, 2]


def test_sure_ones_get_none_and_the_others_as_many_as_they_need() -> None:
    source = Brighter()
    both = TestTimeEnsemble(
        Brightness(), source, k="auto", at_most=3, combine="probs", when="unsure", threshold=0.5
    ).eval()
    assert both(BATCH, return_details=True).drawn.tolist()[::2] == [0, 0] and source.asked[0] == (1, 2)


@pytest.mark.parametrize(
    "options", [{"k": "auto"}, {"k": "auto", "at_most": 0}, {"k": 2, "at_most": 3}, {"k": "some"}]
)
def test_the_number_of_views_is_checked(options: Any) -> None:
    with pytest.raises(ConfigError, match="k="):
        TestTimeEnsemble(Brightness(), Counting(), combine="probs", **options)
    with pytest.raises(ConfigError, match=r"k='auto' or .* needs class scores"):
        TestTimeEnsemble(Brightness(), Counting(), k="auto", at_most=2)


class Own:
    """Not one of ours: an object with the two methods."""

    def __init__(self) -> None:
        self.asked: list[int] = []

    def tensors(self, batch: Tensor, k: int, seeds: Any) -> Tensor:
        return torch.stack([self.nth(batch, number, seeds) for number in range(1, k + 1)], dim=1)

    def nth(self, batch: Tensor, number: int, seeds: Any) -> Tensor:
        self.asked.append(number)
        return (batch + number / 10).clamp(0, 1)


def test_an_object_of_ones_own_is_asked_for_one_view_where_it_can() -> None:
    own = Own()
    settings: Any = {"k": "auto", "at_most": 3, "combine": "probs"}
    found = TestTimeEnsemble(Brightness(), own, **settings).eval()(BATCH, return_details=True)
    assert own.asked == [1, 2, 3] and found.drawn.max() == 3
    plain = TestTimeEnsemble(Brightness(), own.tensors, **settings).eval()(BATCH, return_details=True)
    assert own.asked[3:] == [1, 1, 2, 1, 2, 3] and torch.equal(plain.output, found.output)
    with pytest.raises(ConfigError, match=r"must give a tensor \(1, 3, 4, 4\) for one view, but gave \(1, 3, 4, 2\)"):
        TestTimeEnsemble(Brightness(), Small(), **settings).eval()(BATCH)


class Small(Brighter):
    def nth(self, batch: Tensor, number: int, seeds: Sequence[int | str] | None = None) -> Tensor:
        return batch[..., :2]


@pytest.mark.parametrize("name", ["pocket", "shape", "crop-flip", "traditional"])
def test_a_view_alone_is_the_one_among_many(name: str) -> None:
    found = find_views(name, None, "cpu")
    if isinstance(found, Augmenter):
        found = Augmenter(found.generator, found.config.model_copy(update={"steps": 2}))
    source = as_source(found).views
    batch = torch.rand(2, 3, 40, 36, generator=torch.Generator().manual_seed(0))
    whole, pictures = source.tensors(batch, 3, ["a", "b"]), to_pil(batch)
    many = source.pictures(pictures, 3, 5)
    for number in (1, 2, 3):
        one, among = source.nth(batch, number, ["a", "b"]), whole[:, number - 1]
        # kernels of other batch sizes round otherwise: what lies between two levels may become either
        assert (one - among).abs().max() < 2e-5 if name == "pocket" else (to_uint8(one) == to_uint8(among)).all()
        for view, views in zip(source.nth_pictures(pictures, number, 5), many, strict=True):
            apart = np.abs(np.asarray(view, int) - np.asarray(views[number - 1], int)).max()
            assert apart <= (1 if name == "pocket" else 0)
