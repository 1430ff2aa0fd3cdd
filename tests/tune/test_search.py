"""A planted source that helps is found, one that is noise is refused, and what was drawn is never drawn again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from onesdaug.analysis.choice import ClassJudge, ImageJudge, Judge, uses
from onesdaug.augment.config import AugmentConfig
from onesdaug.augment.source import ViewSource
from onesdaug.data.dataset import Dataset
from onesdaug.encoders.base import Encoder
from onesdaug.encoders.preprocess import Preprocess
from onesdaug.errors import DataError
from onesdaug.fewshot.evaluate import ViewUse
from onesdaug.fewshot.heads import build_head
from onesdaug.fewshot.views import Views
from onesdaug.tune.candidates import Candidate
from onesdaug.tune.search import Found, Search, rung_sizes

CLASSES, IMAGES, SIDE = 20, 12, 8
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def data() -> Dataset:
    """Classes are faint patterns under strong noise."""
    rng = np.random.default_rng(0)
    patterns = rng.normal(0, 24, (CLASSES, 1, SIDE, SIDE, 3))
    images = 128 + patterns + rng.normal(0, 60, (CLASSES, IMAGES, SIDE, SIDE, 3))
    labels = np.repeat(np.arange(CLASSES), IMAGES)
    names = tuple(f"c{i:02d}" for i in range(CLASSES))
    ids = tuple(f"{names[c]}/{i}" for i, c in enumerate(labels))
    return Dataset(images.clip(0, 255).astype(np.uint8).reshape(-1, SIDE, SIDE, 3), labels, names, ids, "planted")


@dataclass
class Planted(ViewSource):
    """Views that know the class (a mean over its images), or that are noise."""

    data: Dataset
    helps: bool
    drawn: list[int] = field(default_factory=list)

    def tensors(self, batch: Tensor, k: int, seeds: Sequence[int | str] | None = None) -> Tensor:
        self.drawn.append(len(batch))
        if not self.helps:
            return torch.rand(
                len(batch), k, *batch.shape[1:], generator=torch.Generator().manual_seed(len(self.drawn))
            )
        known = torch.from_numpy(self.data.images).permute(0, 3, 1, 2).float() / 255
        classes = torch.stack([known[self.data.labels == c].mean(0) for c in range(CLASSES)])
        nearest = (batch[:, None] - known).flatten(2).norm(dim=2).argmin(1)
        mine = classes[torch.from_numpy(self.data.labels)[nearest]]
        return (0.5 * batch + 0.5 * mine)[:, None].expand(-1, k, -1, -1, -1)

    def describe(self) -> dict[str, Any]:
        return {"helps": self.helps}


def encoder() -> Encoder:
    preprocess = Preprocess(SIDE, SIDE, (0.5, 0.5, 0.5), (0.25, 0.25, 0.25))
    return Encoder(nn.Flatten(), preprocess, 3 * SIDE * SIDE, "pixels", "pixels")


def few_shot(labels: Tensor) -> list[Judge]:
    return [ClassJudge(labels, build_head("protonet", 3 * SIDE * SIDE), shot) for shot in (1, 3)]


def search(data: Dataset, sources: Sequence[Planted], work: Path, **options: Any) -> Found:
    candidates = [Candidate("helpful" if s.helps else "noise", Views(s, f"planted {s.helps}", CPU)) for s in sources]
    return Search(data, encoder(), candidates, few_shot, work, k=2, fewest=4, **options).run()


def test_a_planted_source_that_helps_is_found(data: Dataset, tmp_path: Path) -> None:
    found = search(data, [Planted(data, False), Planted(data, True)], tmp_path)
    assert found.finalists[found.choice.source].candidate.source == "helpful"
    assert all(use is not None for use in found.choice.uses)
    assert all(gain.difference - gain.ci95 > 0 for gain in found.choice.gains)


def test_noise_is_refused(data: Dataset, tmp_path: Path) -> None:
    found = search(data, [Planted(data, False)], tmp_path)
    assert all(gain.difference - gain.ci95 <= 0 for gain in found.choice.gains)
    assert all(abs(gain.difference) < 0.02 for gain in found.choice.gains)


@dataclass
class Slow(Planted):
    """Every image takes a second of a clock that nothing else moves."""

    now: list[float] = field(default_factory=lambda: [0.0])

    def tensors(self, batch: Tensor, k: int, seeds: Sequence[int | str] | None = None) -> Tensor:
        self.now[0] += len(batch)
        return super().tensors(batch, k, seeds)


@pytest.mark.parametrize(("minutes", "tried", "images"), [(0.1, 1, 4), (8, 3, 10), (10, 3, 12), (60, 4, 12)])
def test_the_time_is_kept(
    data: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, minutes: float, tried: int, images: int
) -> None:
    """20 classes, at a second an image: 20 s for one image of each, 80 s for the four that a first look takes."""
    now = [0.0]
    clock = SimpleNamespace(monotonic=lambda: now[0], perf_counter=lambda: now[0])
    monkeypatch.setattr("onesdaug.tune.search.time", clock)
    slow = [Slow(data, helps, now=now) for helps in (True, False)] * 2
    candidates = [
        Candidate("pocket", Views(source, f"slow {number}", CPU), AugmentConfig(steps=1 + number))
        for number, source in enumerate(slow)
    ]
    candidates.append(Candidate("free", Views(Planted(data, False), "free", CPU)))
    found = Search(data, encoder(), candidates, few_shot, tmp_path, k=2, fewest=4, seconds=60 * minutes).run()
    assert now[0] <= max(60 * minutes, 80)  # the first settings are seen in any case
    assert found.untried == 4 - tried
    assert found.per_class == images and found.hurried is (minutes < 60)
    assert {trial.candidate.source for trial in found.finalists} == {"pocket", "free"}


def test_what_was_drawn_is_taken_up_again(data: Dataset, tmp_path: Path) -> None:
    first, again = Planted(data, True), Planted(data, True)
    one = search(data, [first], tmp_path)
    other = search(data, [again], tmp_path)
    assert sum(first.drawn) == CLASSES * IMAGES and again.drawn == []
    assert one.choice == other.choice


def test_a_choice_does_not_see_the_fold_it_is_measured_on(data: Dataset) -> None:
    judge = ClassJudge(torch.from_numpy(data.labels), build_head("protonet", 1), 1)
    for partition, row in enumerate(judge.folds):
        episodes = judge.units[judge.partition == partition]
        assert all(len(set(row[classes])) == 1 for classes in episodes)  # an episode lies inside one fold
    assert {len(np.unique(row)) for row in judge.folds} == {4}
    assert (ClassJudge(torch.from_numpy(data.labels), build_head("protonet", 1), 3).folds == judge.folds).all()


def test_a_classifier_is_judged_image_by_image() -> None:
    labels = torch.arange(4).repeat(10)
    judge = ImageJudge(labels)
    assert all(np.bincount(row[labels == 0]).tolist() == [2, 2, 2, 2, 2] for row in judge.folds)


def test_the_rungs_fit_images_and_candidates() -> None:
    assert rung_sizes(30, 2, 9) == [4, 10, 30]
    assert rung_sizes(30, 2, 1) == [30] and rung_sizes(6, 2, 40) == [2, 6]
    with pytest.raises(DataError, match="smallest class has 1"):
        rung_sizes(1, 2, 3)


def test_the_uses_hold_the_papers_own() -> None:
    assert ViewUse(3, 3, 0.5) in uses(3, thorough=True) and ViewUse(3, 3, 0.5) in uses(3, thorough=False)


def test_class_scores_are_not_brought_to_length_1() -> None:
    """What `TestTimeEnsemble` refuses must not be chosen."""
    assert not any(use.normalise for use in uses(3, True, ImageJudge.lengths))
    assert {use.normalise for use in uses(3, True, ClassJudge.lengths)} == {False, True}


def test_too_few_classes_are_said(data: Dataset) -> None:
    with pytest.raises(DataError, match="at least 4 classes"):
        ClassJudge(torch.tensor([0, 0, 1, 1, 2, 2]), build_head("protonet", 1), 1)


def test_few_classes_are_judged_by_halves_of_their_images() -> None:
    """Nothing that an episode of one half uses lies in the other, and both halves hold every class."""
    labels = torch.arange(3).repeat_interleave(9)
    judges = [ClassJudge(labels, build_head("protonet", 1), shot) for shot in (1, 3)]
    assert (judges[0].folds == judges[1].folds).all()  # one choice serves both
    for judge in judges:
        assert judge.way == 3 and judge.folds.shape == (6, 6)
        for partition in range(6):
            mine = np.flatnonzero(judge.partition == partition)
            half = judge.folds[partition, judge.units[mine]][:, 0]
            images = torch.cat([judge.episodes.support, judge.episodes.query], dim=2)[mine].flatten(1)
            one, other = (set(images[half == number].flatten().tolist()) for number in (0, 1))
            assert one and other and not one & other
    with pytest.raises(DataError, match="or 2 of 8; there are 3, the smallest with 7"):
        ClassJudge(torch.arange(3).repeat_interleave(7), build_head("protonet", 1), 3)


@pytest.mark.parametrize("helps", [True, False])
def test_three_classes_are_enough_to_tell_help_from_noise(data: Dataset, tmp_path: Path, helps: bool) -> None:
    rows = 3 * IMAGES
    few = Dataset(data.images[:rows], data.labels[:rows], data.class_names[:3], data.ids[:rows], "three")
    candidate = Candidate("planted", Views(Planted(data, helps), f"planted {helps}", CPU))

    def judges(labels: Tensor) -> list[Judge]:
        return [ClassJudge(labels, build_head("protonet", 3 * SIDE * SIDE), 1)]

    found = Search(few, encoder(), [candidate], judges, tmp_path, k=1, fewest=4).run()
    (gain,) = found.choice.gains
    assert (gain.difference - gain.ci95 > 0) is helps
