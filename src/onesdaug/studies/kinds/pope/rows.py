"""A model of one's own on POPE's photographs, with several sources of views, threshold and weights set elsewhere.

The first photographs (by name) are kept for setting the threshold and choosing tuned rows; every number is of the
others.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from onesdaug.augment.config import AugmentConfig, preset
from onesdaug.common.own import code_mark
from onesdaug.ensemble.sources import Source, as_source, find_views
from onesdaug.errors import ConfigError
from onesdaug.studies.context import StudyContext
from onesdaug.studies.kinds.pope.margins import Asker, Photographs, Said
from onesdaug.studies.kinds.pope.spec import PopeStudy, ViewsRow
from onesdaug.studies.spec import TUNED
from onesdaug.vlm.answers import NO, YES, Codes, Floats, mean_margin, vote
from onesdaug.vlm.metrics import Resamples, compare, measure
from onesdaug.vlm.model import find_model
from onesdaug.vlm.questions import Question, read_questions
from onesdaug.vlm.score import LOGITS, Score
from onesdaug.vlm.settings import Asking

SHARES = (0.8, 0.65, 0.5, 0.35, 0.2)  # of the original in the whole weight, that tuned rows choose from
RULES = ("vote", "margin")
SEED = 1234  # the paper's


@dataclass(frozen=True)
class Split:
    """The questions of one file about photographs that are here, or of several together."""

    name: str
    questions: tuple[Question, ...]

    @cached_property
    def labels(self) -> np.ndarray:
        return np.array([q.label == "yes" for q in self.questions])

    @cached_property
    def resamples(self) -> Resamples:
        return Resamples([q.image for q in self.questions], SEED)

    def about(self, names: Sequence[str]) -> Split:
        known = set(names)
        return Split(self.name, tuple(q for q in self.questions if q.image in known))


def joined(splits: Sequence[Split]) -> Split:
    return Split("all", tuple(q for split in splits for q in split.questions))


@dataclass(frozen=True)
class Made:
    """A row of the table: a source of views, and what is done with them. `share` None: everything weighs the same."""

    row: ViewsRow
    generator: str = ""
    drawn: ViewsRow | None = None  # whose views these are; None: none
    share: float | None = None
    shift: float | None = None  # what mean margins are measured from; None: as without views

    def weights(self, k: int) -> tuple[float, float]:
        """Of the original and of each view."""
        return (1.0, 1.0) if self.share is None else (self.share, (1 - self.share) / max(1, k))


@dataclass(frozen=True)
class Choice:
    """What was best on the first photographs, for one number of views and one rule."""

    made: Made
    k: int
    rule: str
    accuracy: float  # there
    plain: float  # and without views

    def facts(self) -> dict[str, Any]:
        made, drawn = self.made, self.made.drawn
        told = {"settings": drawn.label if drawn else "no views", "share": made.share, "shift": made.shift}
        where = {"row": made.row.id, "generator": Path(made.generator).name, "k": self.k, "rule": self.rule}
        return {**where, **told, "accuracy": self.accuracy, "plain": self.plain}


class Photo:
    """All that one study asks: who, about what, and what was said."""

    def __init__(self, study: PopeStudy, context: StudyContext) -> None:
        self.study, self.context, root = study, context, context.root or Path()
        photographs = Photographs(root / study.images)
        files = [read_questions(root / "pope" / name) for name in study.files]
        here = set(photographs.members)
        self.splits = [Split(one.split, tuple(q for q in one.items if q.image in here)) for one in files]
        self.fingerprints = {one.split: one.fingerprint for one in files}
        names = sorted({q.image for split in self.splits for q in split.questions})
        if len(names) <= study.calibrate:
            raise ConfigError(
                f"{len(names)} photographs are here, and the threshold is set on {study.calibrate}: nothing is left"
            )
        self.first, self.others = names[: study.calibrate], names[study.calibrate :]
        size: dict[str, Any] = {"batch_size": study.batch_size} if study.batch_size else {}
        asking = Asking(seed=SEED, suffix="")
        about, load = find_model(study.model, asking, device=context.settings.device, **size)
        model = load()
        function = getattr(model, "function", model)
        self.about = {**about, "code": getattr(function, "code", None) or code_mark(function)}
        texts: dict[str, dict[str, None]] = {name: {} for name in names}
        for question in joined(self.splits).questions:
            texts[question.image][question.text] = None
        self.asker = Asker(
            model,
            self.about,
            photographs,
            {name: list(asked) for name, asked in texts.items()},
            context.settings.work / "pope",
            SEED,
        )
        self.generators, self.missing = context.generators_here(study)
        self._choices: dict[tuple[str, str, int, str], Choice] = {}
        self._sources: dict[tuple[str, str], Source] = {}

    @cached_property
    def shift(self) -> float:
        """Where most answers about the first photographs are right: what margins are measured from."""
        split = joined(self.splits).about(self.first)
        values = self._values(split, self._said(None, "", self.first))[:, 0]
        return best_threshold(values, split.labels)

    def rows(self) -> Iterator[tuple[ViewsRow, str]]:
        """Those of the table, each for every generator it needs."""
        for row in self.study.rows:
            yield from ((row, generator) for generator in self._generators(row) if not row.to_choose)

    def _generators(self, row: ViewsRow) -> Sequence[str]:
        views = self.study.by_id[row.among[0]].views if row.among else row.views
        return self.generators if views == "generated" else [""]

    def made(self, row: ViewsRow, generator: str, k: int, rule: str) -> Made:
        if row.views != TUNED:
            return Made(row, generator, row)
        return self.choice(row, generator, k, rule).made

    def choice(self, row: ViewsRow, generator: str, k: int, rule: str) -> Choice:
        key = row.id, generator, k, rule
        if key not in self._choices:
            self._choices[key] = self._choose(row, generator, k, rule)
        return self._choices[key]

    @property
    def choices(self) -> list[Choice]:
        return list(self._choices.values())

    def _choose(self, row: ViewsRow, generator: str, k: int, rule: str) -> Choice:
        """The best on the first photographs; of equally good ones the first, and no views before all.

        Views may lower every margin alike: where margins are averaged, their threshold is set anew as well.
        """
        split = joined(self.splits).about(self.first)
        plain = found = self.accuracy(split, Made(row, generator), 0, rule)
        best = Made(row, generator)
        for candidate in (self.study.by_id[name] for name in row.among):
            for share in SHARES:
                made = Made(row, generator, candidate, share)
                if rule == "margin":
                    (own, each), margins = made.weights(k), self._margins(split, made, k)
                    means = own * margins[:, 0] + each * margins[:, 1:].sum(1)
                    made = replace(made, shift=best_threshold(means, split.labels))
                value = self.accuracy(split, made, k, rule)
                if value > found:
                    best, found = made, value
        return Choice(best, k, rule, found, plain)

    def accuracy(self, split: Split, made: Made, k: int, rule: str) -> float:
        return float(np.mean((self.decided(split, made, k, rule) == YES) == split.labels))

    def decided(self, split: Split, made: Made, k: int, rule: str, worse: tuple[str, float] = ("", 0.0)) -> Codes:
        """The answer to every question; `split` holds those about the first photographs, or about the others."""
        values = self._margins(split, made, k, worse) - (self.shift if made.shift is None else made.shift)
        codes = np.where(values > 0, YES, NO).astype(np.int8)
        return vote(codes, *made.weights(k)) if rule == "vote" else mean_margin(values, codes, *made.weights(k))

    def _margins(self, split: Split, made: Made, k: int, worse: tuple[str, float] = ("", 0.0)) -> Floats:
        """(n, 1 + K), as the model gives them."""
        names = sorted({q.image for q in split.questions})
        said = [self._said(None, "", names, worse)]
        if made.drawn is not None and k:
            said.append(self._said(made.drawn, made.generator, names, worse))
        return self._values(split, *said)[:, : 1 + k]

    def _values(self, split: Split, *said: Mapping[str, Said]) -> Floats:
        """(n, 1 + K) margins of the questions, the original's first."""
        return np.array([[m for table in said for m in table[q.image].margins[q.text]] for q in split.questions])

    def _said(
        self, row: ViewsRow | None, generator: str, names: Sequence[str], worse: tuple[str, float] = ("", 0.0)
    ) -> dict[str, Said]:
        label = f"{worse[0]} {worse[1]:g} " if worse[0] else ""
        if row is None:
            return self.asker.ask(names, f"{label}no views", worse=worse)
        label += " ".join(filter(None, [Path(generator).name, row.label]))
        return self.asker.ask(names, label, self.source(row, generator), max(self.study.counts), worse)

    def source(self, row: ViewsRow, generator: str) -> Source:
        key = row.id, generator
        if key not in self._sources:
            if row.views in ("generated", "shape"):
                views: Any = self.context.augmenter(generator or "shape", settings_of(row))
            else:
                views = find_views(row.views, device=self.context.settings.device)
            self._sources[key] = as_source(views)
        return self._sources[key]

    def seconds(self, row: ViewsRow | None = None, generator: str = "") -> float:
        """For one question, with all views where there is a row: the median photograph, shared by its questions."""
        tables = [self._said(None, "", self.others)] + ([self._said(row, generator, self.others)] if row else [])
        each = [[(t[n].drawing + t[n].asking) / len(t[n].margins) for t in tables] for n in self.others]
        return float(median(map(sum, each)))

    def score(self, split: Split, made: Made, k: int, rule: str) -> Score:
        found = self.decided(split, made, k, rule)
        metrics = measure(found, split.labels, split.resamples)
        base = None if k == 0 else self.decided(split, Made(made.row), 0, rule)
        gain = None if base is None else compare(found, base, split.labels, split.resamples)
        return Score(made.row.label, LOGITS, None, rule, k, metrics, gain)


def settings_of(row: ViewsRow) -> AugmentConfig:
    """`shape = false`: no tweak."""
    changes = {name: None if value is False and name == "shape" else value for name, value in row.config.items()}
    return preset(row.preset, **changes)


def best_threshold(margins: Floats, labels: np.ndarray) -> float:
    """Between the margins of two questions, where most answers are right; the lowest of equally good ones."""
    places = np.unique(margins)
    middles = np.concatenate([[places[0] - 1], (places[1:] + places[:-1]) / 2, [places[-1] + 1]])
    order, positive = np.sort(margins), np.sort(margins[labels])
    above = len(positive) - np.searchsorted(positive, middles)  # questions answered yes, rightly
    below = np.searchsorted(order, middles) - np.searchsorted(positive, middles)  # answered no, rightly
    return float(middles[int(np.argmax(above + below))])
