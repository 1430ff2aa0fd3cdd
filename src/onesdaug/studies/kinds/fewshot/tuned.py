"""Rows that are tuned: settings and use of views chosen on validation classes, scored on the study's own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onesdaug.analysis.choice import ClassJudge, choose, threshold, uses
from onesdaug.augment.config import AugmentConfig
from onesdaug.common.progress import log
from onesdaug.fewshot.evaluate import Task, ViewUse
from onesdaug.report.result import StudyResult
from onesdaug.report.strings import data_name, points, signed
from onesdaug.report.table import Entry, Line, Table
from onesdaug.statistics import Paired, paired
from onesdaug.studies.banks import BankRequest
from onesdaug.studies.context import StudyContext
from onesdaug.studies.spec import TUNED, VALIDATION, FeatureStudy, ViewRow

NO_VIEWS = "no views"


@dataclass(frozen=True)
class TunedRow:
    """What was chosen for one generator, classifier, benchmark and number of shots, and how it scores."""

    row: ViewRow
    request: BankRequest  # whose views are used
    shot: int
    k: int  # views there could have been
    settings: str
    use: ViewUse | None  # None: no views
    expected: Paired  # the gain that the validation classes promised
    scores: NDArray[np.float64]
    views: float  # that a query takes on average
    plain: ViewUse  # the originals alone, lengths as they are or all 1: whichever was better on validation classes
    gain: Paired | None  # over those: what changing the lengths alone would bring is not the views' gain

    @property
    def generator(self) -> str:
        return Path(self.request.generator).name

    def facts(self) -> dict[str, Any]:
        return {
            "row": self.row.label,
            "data": Path(self.request.data).name,
            "classifier": self.request.classifier.name,
            "shot": self.shot,
            "generator": self.generator,
            "settings": self.settings,
            "use": None if self.use is None else vars(self.use),
            "views": self.views,
            "plain": {"normalise": self.plain.normalise},
            "expected": {"difference": self.expected.difference, "ci95": self.expected.ci95},
            "gain": None if self.gain is None else {"difference": self.gain.difference, "ci95": self.gain.ci95},
        }


def tuned_rows(
    study: FeatureStudy, context: StudyContext, shot: int, groups: Sequence[Sequence[BankRequest]]
) -> Iterator[TunedRow]:
    """The tuned rows of one classifier on one benchmark; `groups` holds its other rows, a request for each seed."""
    if context.settings.split == VALIDATION:
        return
    known: dict[tuple[tuple[str, ...], str], Chosen] = {}
    for row in (row for row in study.rows if row.views == TUNED):
        k = max(max(use) for use in row.uses or study.uses)
        for generator in context.generators_of(study):
            mine = [group for group in groups if group[0].row.id in row.among and group[0].generator == generator]
            if not mine or not all(context.banks.is_there(replace(group[0], split=VALIDATION)) for group in mine):
                continue
            key = row.among, generator
            if key not in known:
                known[key] = _choose(context, mine, shot, k)
            chosen, use = known[key], known[key].use
            if use is not None:
                use = replace(use, auto=True) if row.sparing else replace(use, threshold=None)
            yield _scored(study, context, row, replace(chosen, use=use), shot, k)


@dataclass(frozen=True)
class Chosen:
    """On validation classes."""

    group: Sequence[BankRequest]  # of the best row, a request for each seed
    use: ViewUse | None
    plain: ViewUse
    expected: Paired


def _choose(context: StudyContext, groups: Sequence[Sequence[BankRequest]], shot: int, k: int) -> Chosen:
    """The row with the best use of its views, and the gain to expect of it."""
    request = groups[0][0]
    _, head = context.classifier(request.classifier, request.data)
    banks = [context.banks.at(context.banks.path(replace(group[0], split=VALIDATION))) for group in groups]
    with context.timed("choosing on validation classes"):
        judge = ClassJudge(banks[0].labels, head, shot, seed=context.settings.seed)
        plain, base = judge.base(banks[0])
        ways = uses(k, thorough=True, fewer=False)
        choice = choose([judge], [np.array([[judge.score(bank, use) for use in ways] for bank in banks])], [base])
        group, worth, expected = groups[choice.source], choice.worth(0), choice.gains[0]
        use = None if worth is None else ways[worth]
        if use is not None:
            use = replace(use, threshold=threshold(judge, banks[choice.source], use))
    chosen = NO_VIEWS if use is None else f"{group[0].row.id}, weight {use.original_weight:g}"
    task = f"{request.data}, {request.classifier.name}, {shot}-shot, {Path(request.generator).name}"
    log.info(f"{task}: {chosen}, expected {points(expected)}")
    return Chosen(group, use, plain, expected)


def _scored(study: FeatureStudy, context: StudyContext, row: ViewRow, chosen: Chosen, shot: int, k: int) -> TunedRow:
    group, use = chosen.group, chosen.use
    task = Task(shot=shot, episodes=context.settings.episodes or study.episodes, seed=context.settings.seed)
    plain = context.banks.scores(group[0], task, chosen.plain if use else ViewUse())
    made = [context.banks.scored(request, task, use or ViewUse()) for request in group]
    scores = np.stack([one for one, _ in made]) if group[1:] and use else made[0][0]
    config = context.config(group[0].row, group[0].generator)
    return TunedRow(
        row=row,
        request=group[0],
        shot=shot,
        k=k,
        settings=NO_VIEWS if use is None else _told(config),
        use=use,
        expected=chosen.expected,
        plain=chosen.plain,
        scores=scores,
        views=float(np.mean([views for _, views in made])),
        gain=paired(scores, plain) if scores.shape[-1] > 1 else None,
    )


def _told(config: AugmentConfig) -> str:
    level = f"noise {config.noise_level:g} ({config.noise_map})"
    return ", ".join([*([config.mode] if config.mode else []), level, f"guidance {config.guidance:g}"])


def chosen_table(result: StudyResult) -> Table | None:
    """What was chosen on validation classes, what it promised there, and what each tuned row gave here."""
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for one in result.details.get("tuned", []):
        task = f"{one['classifier']}, {data_name(one['data'])}, {one['shot']}-shot, {one['generator']}"
        found.setdefault(task, {})[one["row"]] = one
    if not found:
        return None
    labels = list(dict.fromkeys(label for rows in found.values() for label in rows))
    lines = [Line(task, _chosen(rows, labels), "generative") for task, rows in found.items()]
    columns = ("", "chosen", "weight", "expected, points", *(f"{label}, points" for label in labels))
    note = (
        "Chosen on validation classes alone, among the settings of the rows above, weights, lengths and selection. "
        "Expected: what the choice gave on validation classes that had no part in it. All three are gains over the "
        "originals alone, with features as they are or of length 1, whichever was better on validation classes; "
        "beneath them how many views a query takes."
    )
    return Table("Tuned on validation classes", columns, tuple(lines), note)


def _chosen(rows: Mapping[str, dict[str, Any]], labels: Sequence[str]) -> tuple[Entry, ...]:
    first = next(iter(rows.values()))
    use = first["use"]
    if use is None:
        return Entry(NO_VIEWS), Entry(), Entry(_with_interval(first["expected"])), *([Entry()] * len(labels))
    extras = [*(["length 1"] * use["normalise"]), *(["half of the views"] * (use["select"] != "all"))]
    gains = [
        Entry(_with_interval(row["gain"]), (f"{row['views']:.2f} views",))
        if (row := rows.get(label)) and row["gain"]
        else Entry()
        for label in labels
    ]
    told = Entry(first["settings"], tuple(extras)), Entry(f"{use['original_weight']:g}")
    return *told, Entry(_with_interval(first["expected"])), *gains


def _with_interval(gain: dict[str, float]) -> str:
    return f"{signed(100 * gain['difference'])} ± {100 * gain['ci95']:.2f}"
