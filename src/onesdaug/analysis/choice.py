"""How good a way of using views is, for every class (few-shot) or image (a classifier), and who may see whom.

Units are classes, halves of classes, or images; each partition puts them into folds. What is chosen for a fold has
never seen its units, so that the gain measured there is one to expect on units that nobody chose for (`choose`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from onesdaug.ensemble.combine import COMBINE, view_weights
from onesdaug.ensemble.select import kept_views, stops
from onesdaug.ensemble.select import margins as margins_of
from onesdaug.errors import DataError
from onesdaug.fewshot.bank import FeatureBank
from onesdaug.fewshot.episodes import Episodes, sample_episodes
from onesdaug.fewshot.evaluate import ViewUse, answers, features_for, margins
from onesdaug.fewshot.heads import Head
from onesdaug.statistics import Paired, interval, relative_gain

Floats = NDArray[np.float64]
PARTITIONS, QUERIES = 6, 15
EPISODES = 40  # per group of classes and partition
FEWEST = 2  # classes of an episode
WEIGHTS = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
ROUGH_WEIGHTS = (0.3, 0.5, 0.7, 0.9)
LOSS = 0.001  # accuracy that leaving views out may cost


def uses(k: int, thorough: bool, lengths: tuple[bool, ...] = (False, True), fewer: bool = True) -> list[ViewUse]:
    """How views may enter: their number, the original's weight, lengths, and leaving the least alike ones out."""
    if not thorough:
        return [ViewUse(k, k, weight) for weight in ROUGH_WEIGHTS]
    counts = sorted({1, (k + 1) // 2, k}) if fewer else [k]
    found = [ViewUse(n, n, weight, normalise) for n in counts for normalise in lengths for weight in WEIGHTS]
    if k > 1:
        found += [ViewUse(k, k, weight, lengths[-1], "similarity", 0.5) for weight in WEIGHTS]
    return found


class Judge(ABC):
    """Scores features with views, unit by unit: `score` gives accuracies (P, U) for P partitions and U units."""

    name: str  # of the task, "1-shot"
    folds: NDArray[np.int64]  # (P, U): the fold of each unit in each partition
    lengths: tuple[bool, ...]  # whether outputs may be normalised: features may, class scores may not
    alone: bool  # whether units are independent of each other; classes of an episode compete, their folds do not

    @abstractmethod
    def judge(self, bank: FeatureBank, use: ViewUse) -> tuple[Floats, float]:
        """The accuracies, and how many views a query (an image) takes on average."""

    def score(self, bank: FeatureBank, use: ViewUse) -> Floats:
        return self.judge(bank, use)[0]

    @abstractmethod
    def margins(self, bank: FeatureBank, use: ViewUse) -> Floats:
        """How sure the model is of every answer without views."""

    def base(self, bank: FeatureBank) -> tuple[ViewUse, Floats]:
        """The originals alone, with lengths as they are or all 1, whichever is better: what views have to beat.

        Else a gain of the normalisation would pass for one of the views.
        """
        scored = [(use, self.score(bank, use)) for use in (ViewUse(normalise=one) for one in self.lengths)]
        return max(scored, key=lambda pair: pair[1].mean())


def threshold(judge: Judge, bank: FeatureBank, use: ViewUse) -> float | None:
    """The smallest margin above which views may be left out for at most `LOSS`; None: none may."""
    known, whole = judge.margins(bank, use), judge.score(bank, use).mean()
    for share in np.arange(0.1, 1.0, 0.1):
        found = float(np.quantile(known, share))
        if whole - judge.score(bank, replace(use, threshold=found)).mean() <= LOSS:
            return found
    return None


def images_needed(shot: int, classes: int) -> int:
    """Images of each class for tuning: those of an episode; twice as many where classes are too few to be grouped."""
    return (shot + 1) * _parts(classes)


def _parts(classes: int) -> int:
    """Into how many parts each class's images are cut: fewer than four classes make no two groups of classes."""
    if classes < FEWEST:
        raise DataError(f"few-shot tuning needs at least {FEWEST} classes, there is {classes}: a folder for each")
    return 1 if classes >= 2 * FEWEST else 2


class ClassJudge(Judge):
    """Few-shot episodes inside groups of classes: a fold is a group, and its episodes are nobody else's.

    With fewer than four classes a fold is one half of every class's images.
    """

    lengths, alone = (False, True), False

    def __init__(
        self, labels: Tensor, head: Head, shot: int, way: int = 5, episodes: int = EPISODES, seed: int = 0
    ) -> None:
        sizes = np.bincount(labels.numpy())
        classes, smallest = len(sizes), int(sizes.min())
        if smallest < images_needed(shot, classes):
            raise DataError(
                f"{shot}-shot tuning needs at least {2 * FEWEST} classes of {images_needed(shot, 2 * FEWEST)} images, "
                f"or {FEWEST} of {images_needed(shot, FEWEST)}; there are {classes}, the smallest with {smallest}"
            )
        parts = _parts(classes)
        self.name, self.head, self.way = f"{shot}-shot", head, min(way, classes // 2) if parts == 1 else classes
        queries = min(QUERIES, smallest // parts - shot)
        support, query, units = [], [], []
        self.folds = np.empty((PARTITIONS, classes * parts), dtype=np.int64)
        rng = np.random.default_rng(seed)  # whatever the shot: the same folds, so that one choice can serve all
        for partition in range(PARTITIONS):
            unit = labels.numpy() + classes * (_spread(labels, parts, rng) if parts > 1 else 0)
            whole = rng.permutation(classes) if parts == 1 else np.arange(classes * parts)
            # groups of `way` classes or a few more, none smaller; or the halves of all classes
            for number, group in enumerate(np.array_split(whole, len(whole) // self.way)):
                self.folds[partition, group] = number
                rows = torch.from_numpy(np.flatnonzero(np.isin(unit, group)))
                own = seed + 1000 * partition + number
                drawn = sample_episodes(labels[rows], self.way, shot, queries, episodes, own)
                support.append(rows[drawn.support])
                query.append(rows[drawn.query])
                units.append(unit[support[-1][:, :, 0].numpy()])
        self.episodes = Episodes(torch.cat(support), torch.cat(query), seed)
        self.units = np.concatenate(units)  # (E, N)
        self.partition = np.repeat(np.arange(PARTITIONS), len(self.episodes) // PARTITIONS)

    def judge(self, bank: FeatureBank, use: ViewUse) -> tuple[Floats, float]:
        right, drawn = answers(self.head, features_for(bank, self.episodes, use), self.episodes)
        place = np.broadcast_to(self.partition[:, None], self.units.shape), self.units
        total, count = np.zeros(self.folds.shape), np.zeros(self.folds.shape)
        np.add.at(total, place, right)
        np.add.at(count, place, self.episodes.query.shape[2])
        return np.divide(total, count, where=count > 0, out=np.zeros_like(total)), drawn

    def margins(self, bank: FeatureBank, use: ViewUse) -> Floats:
        return margins(self.head, bank, self.episodes, use).flatten().double().numpy()


class ImageJudge(Judge):
    """A classifier whose classes are the folder's: the bank holds its outputs, a unit is an image."""

    lengths, alone = (False,), True

    def __init__(self, labels: Tensor, combine: str = "probs", folds: int = 5, seed: int = 0) -> None:
        self.name, self.labels, self.combine = "classifier", labels, combine
        rng = np.random.default_rng(seed)
        self.folds = np.empty((PARTITIONS, len(labels)), dtype=np.int64)
        for row in self.folds:
            row[:] = _spread(labels, folds, rng)

    def judge(self, bank: FeatureBank, use: ViewUse) -> tuple[Floats, float]:
        looks = [self._look(bank.features[:, : 1 + views].float(), use) for views in use.looks]
        last = stops(looks, use.threshold)
        best = torch.stack([look.argmax(-1) for look in looks]).gather(0, last[None])[0]
        right = (best == self.labels).double().numpy()
        return np.broadcast_to(right, self.folds.shape), float(torch.tensor(use.looks)[last].double().mean())

    def _look(self, outputs: Tensor, use: ViewUse) -> Tensor:
        weights = view_weights(kept_views(outputs, use.select, use.keep), use.original_weight)
        return COMBINE[self.combine](outputs, weights)

    def margins(self, bank: FeatureBank, use: ViewUse) -> Floats:
        return margins_of(bank.features[:, 0].float()).double().numpy()


def _spread(labels: Tensor, folds: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """A random fold for every image; every class is spread evenly over them."""
    found = np.empty(len(labels), dtype=np.int64)
    order = np.lexsort((rng.random(len(labels)), labels.numpy()))
    found[order] = np.arange(len(labels)) % folds
    return found


@dataclass(frozen=True)
class Choice:
    """The best source of views, the best use of it on each task, and the gain to expect of choosing so."""

    source: int
    uses: tuple[int | None, ...]  # per task; None: no views
    gains: tuple[Paired, ...]  # per task

    def worth(self, task: int) -> int | None:
        """The use, if views are worth it: the lower end of the gain's interval is above zero."""
        gain = self.gains[task]
        return self.uses[task] if gain.difference - gain.ci95 > 0 else None


def choose(judges: Sequence[Judge], scores: Sequence[Floats], bases: Sequence[Floats]) -> Choice:
    """One source of views for all tasks, one use of it for each, from scores (sources, uses, P, U) of every task.

    The gain is nested: for each fold the best on all other folds is taken and measured on this one.
    """
    gains, folds = [mine - base for mine, base in zip(scores, bases, strict=True)], judges[0].folds
    held_out = np.zeros((len(gains), *folds.shape))
    for partition, row in enumerate(folds):
        for fold in np.unique(row):
            inside = row == fold
            source, uses = _best([gain[:, :, partition, ~inside].mean(-1) for gain in gains])
            for task, use in enumerate(uses):
                if use is not None:
                    held_out[task, partition, inside] = gains[task][source, use, partition, inside]
    source, uses = _best([gain.mean((2, 3)) for gain in gains])
    found = (expected(judge, mine, base) for judge, mine, base in zip(judges, held_out, bases, strict=True))
    return Choice(source, uses, tuple(found))


def expected(judge: Judge, gains: Floats, base: Floats) -> Paired:
    """The mean of gains (P, U) with a 95 % interval over what other units of the same kind would give.

    Between disjoint folds nothing is shared, so the spread of their means is that of the whole; each partition gives
    an estimate of it, and their mean is taken. Two folds of images share their classes: then the interval is that of
    other images of these classes.
    """
    units = gains.shape[1]
    freedom = units - 1
    if judge.alone:
        variance = gains.mean(0).var(ddof=1) / units
    else:
        means = [
            [row[fold == number].mean() for number in np.unique(fold)]
            for row, fold in zip(gains, judge.folds, strict=True)
        ]
        variance = np.mean([np.var(groups, ddof=1) / len(groups) for groups in means])
        freedom = min(freedom, sum(len(groups) - 1 for groups in means))
    mean, plain = float(gains.mean()), float(base.mean())
    half, p_value = interval(mean, float(np.sqrt(variance)), freedom)
    return Paired(mean, half, p_value, relative_gain(plain + mean, plain), units)


def _best(means: Sequence[Floats]) -> tuple[int, tuple[int | None, ...]]:
    """From mean gains (sources, uses) of every task; equals go to the first, and to no views."""
    total = np.sum([np.maximum(mean.max(1), 0) for mean in means], axis=0)
    source = int(total.argmax())
    return source, tuple(int(mean[source].argmax()) if mean[source].max() > 0 else None for mean in means)
