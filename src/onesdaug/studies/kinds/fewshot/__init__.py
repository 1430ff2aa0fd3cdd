"""The few-shot tables: every row of a study on the same episodes, and the paper's claims held against them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import product
from pathlib import Path

import numpy as np
from pydantic import model_validator

from onesdaug.augment.config import AugmentConfig
from onesdaug.common.progress import progress
from onesdaug.fewshot.evaluate import Task, ViewUse
from onesdaug.report.parts import Folded, InText, Note, OnPage, Part, Plot, SideBySide
from onesdaug.report.records import CONDITION_ALONE, OPERATOR, Cell, CellKind, Literature, Paper
from onesdaug.report.result import StudyResult
from onesdaug.statistics import Paired, mean_ci, paired
from onesdaug.studies.banks import BankRequest, check_classes, requests, to_choose_from
from onesdaug.studies.context import StudyContext
from onesdaug.studies.kind import Findings, StudyKind
from onesdaug.studies.kinds.fewshot.claims import ClaimSpec, EpisodeScores, Ref, Scores, weigh
from onesdaug.studies.kinds.fewshot.panels import Panel, panels, series_name, shared_episodes, told_episodes
from onesdaug.studies.kinds.fewshot.plots import gain_over_k, gain_scale, heat_map, noise_curve, parts_plot
from onesdaug.studies.kinds.fewshot.tables import beside_others, glance, grid, in_full
from onesdaug.studies.kinds.fewshot.tuned import TunedRow, chosen_table, tuned_rows
from onesdaug.studies.spec import BASELINE, FeatureStudy, SpecModel, ViewRow

KINDS: dict[str, CellKind] = {"generated": "generative", "round-trip": "generative", "oracle": "oracle"}
COLOURS = "Green and red differences: the 95 % interval leaves out zero."


class PaperValue(SpecModel):
    data: str
    classifier: str
    shot: int = 1
    row: str = "generated"
    support: int = 0
    query: int = 0
    value: float
    ci95: float | None = None


class FewshotStudy(FeatureStudy):
    claims: tuple[ClaimSpec, ...] = ()
    paper_values: tuple[PaperValue, ...] = ()
    literature: tuple[Literature, ...] = ()

    @model_validator(mode="after")
    def _refer_to_rows(self) -> FewshotStudy:
        known = {row.id for row in self.rows} | {BASELINE}
        named = [ref.row for claim in self.claims for ref in (*claim.better, claim.than)]
        named += [value.row for value in self.paper_values] + [self.reference or BASELINE]
        if unknown := sorted(set(named) - known):
            raise ValueError(f"no row called {', '.join(unknown)}; rows are {', '.join(sorted(known))}")
        return self

    def paper_value(self, data: str, classifier: str, shot: int, row: str, support: int, query: int) -> Paper | None:
        named = {c.name: c.of_paper for c in self.classifiers if c.of_paper}
        wanted = (data, named.get(classifier, classifier), shot, row, support, query)
        for v in self.paper_values:
            if (v.data, v.classifier, v.shot, v.row, v.support, v.query) == wanted:
                return Paper(value=v.value, ci95=v.ci95)
        return None


class Kind(StudyKind[FewshotStudy]):
    """Accuracies on episodes of stored features."""

    spec = FewshotStudy

    def banks(self, study: FewshotStudy, context: StudyContext) -> list[BankRequest]:
        check_classes(study, context)
        return [*requests(study, context), *to_choose_from(study, context)]

    def run(self, study: FewshotStudy, context: StudyContext, output: Path) -> Findings:
        """Score all rows whose banks are there, then test the claims on them."""
        requested = requests(study, context)
        there = [group for group in _by_row(requested) if all(context.banks.is_there(one) for one in group)]
        cells: list[Cell] = []
        scored: list[EpisodeScores] = []
        tables: dict[tuple[str, str], list[list[BankRequest]]] = {}
        for group in there:
            tables.setdefault((group[0].data, group[0].classifier.name), []).append(group)
        order = [(data, classifier.name) for data in study.data for classifier in study.classifiers]
        tuned: list[TunedRow] = []
        rows = len(study.shots) * sum(len(group[0].row.uses or study.uses) for group in there)
        with progress(rows, "rows", f"{study.name}: scoring episodes", parts=1) as bar:
            for key, shot in product([key for key in order if key in tables], study.shots):
                scores, found = EpisodeScores(*key, shot), []
                for one in _scored(study, context, scores, tables[key]):
                    found.append(one)
                    bar.advance()
                scored.append(scores)
                cells += _cells(study, context, scores, found)
                chosen = list(tuned_rows(study, context, shot, tables[key]))
                cells += [_tuned_cell(study, scores, one) for one in chosen]
                tuned += chosen
        return {
            "cells": tuple(cells),
            "claims": tuple(weigh(claim, scored) for claim in study.claims) if scored else (),
            "literature": study.literature,
            "reference": study.reference,
            "missing": context.banks.missing([*requested, *to_choose_from(study, context)]),
            "details": {"tuned": [one.facts() for one in tuned]} if tuned else {},
        }

    def show(self, result: StudyResult) -> Iterator[Part]:
        """The whole at a glance, then its plots side by side, then every number."""
        found = panels(result)
        if found:
            told = told_episodes(found)
            shared = f"{shared_episodes(found)} behind every accuracy, the same for all rows of a table."
            yield OnPage(Note(f"{shared} {COLOURS} {told}"))
            yield InText(Note(told))
        yield from filter(None, [glance(result), chosen_table(result)])
        scale = gain_scale(found)
        single = [panel for panel in found if not panel.is_grid and len(panel.counts) < 2]
        curves = [Plot(panel.title, partial(gain_over_k, panel, scale)) for panel in found]
        curves += [Plot(f"Each row: {panel.title}", partial(parts_plot, panel)) for panel in single]
        levels = result.made.generators
        curves += [
            Plot(f"Over the noise level: {panel.title}", partial(noise_curve, panel, levels)) for panel in single
        ]
        yield SideBySide(tuple(curves))
        for panel in found:
            yield from _of_panel(panel)
        yield from filter(None, [beside_others(result)])


def _of_panel(panel: Panel) -> Iterator[Part]:
    """Of a grid the picture holds the numbers; their intervals are in the table beneath."""
    table = in_full(panel)
    if not panel.is_grid:
        yield OnPage(table)
        yield InText(table.with_note(f"{shared_episodes([panel]).rstrip(',')}, the same for all rows."))
        return
    note = "Accuracy in %; beneath it the difference to no views in points; in brackets the paper's accuracy."
    yield OnPage(Note(note))
    maps = [
        Plot(f"{panel.title}, {series_name(cells)}", partial(heat_map, panel, key))
        for key, cells in panel.series.items()
    ]
    yield SideBySide(tuple(maps))
    yield OnPage(Folded("All numbers with their intervals", (table,)))
    yield from (InText(grid(panel, key)) for key in panel.series)


def _by_row(requested: Sequence[BankRequest]) -> list[list[BankRequest]]:
    """The requested of one row, a request for each seed."""
    groups: dict[tuple[str, str, str, str], list[BankRequest]] = {}
    for request in requested:
        groups.setdefault((request.data, request.classifier.name, request.row.id, request.generator), []).append(
            request
        )
    return list(groups.values())


def _scored(
    study: FewshotStudy, context: StudyContext, scores: EpisodeScores, groups: Sequence[Sequence[BankRequest]]
) -> Iterator[tuple[BankRequest, int, int]]:
    """Score every row; yields what was."""
    task = Task(shot=scores.shot, episodes=context.settings.episodes or study.episodes, seed=context.settings.seed)
    scores.by_row[BASELINE, "", 0, 0] = context.banks.scores(groups[0][0], task, ViewUse())
    for group in groups:
        request, generator = group[0], Path(group[0].generator).name
        for support, query in request.row.uses or study.uses:
            use = ViewUse(support, query, request.row.original_weight)
            of_seeds = [context.banks.scores(of_seed, task, use) for of_seed in group]
            scores.by_row[request.row.id, generator, support, query] = np.stack(of_seeds) if group[1:] else of_seeds[0]
            yield request, support, query


def _cells(
    study: FewshotStudy, context: StudyContext, scores: EpisodeScores, found: Sequence[tuple[BankRequest, int, int]]
) -> Iterator[Cell]:
    def paper(row: str, support: int = 0, query: int = 0) -> Paper | None:
        return study.paper_value(scores.data, scores.classifier, scores.shot, row, support, query)

    where = {"data": Path(scores.data).name, "classifier": scores.classifier, "shot": scores.shot}
    yield Cell(
        **where,
        row=BASELINE,
        label="no views",
        kind="baseline",
        accuracy=mean_ci(scores.baseline),
        paper=paper(BASELINE),
    )
    for request, support, query in found:
        row, generator = request.row, Path(request.generator).name
        config = context.config(row, request.generator) if row.views == "generated" else None
        mine = scores.by_row[row.id, generator, support, query]
        other = scores.side(Ref(row=study.reference, support=support, query=query), generator)
        yield Cell(
            **where,
            row=row.id,
            label=label_of(row, config),
            kind=KINDS.get(row.views, "traditional"),
            generator=generator,
            support=support,
            query=query,
            original_weight=row.original_weight,
            noise_level=None if config is None else config.noise_level,
            accuracy=mean_ci(mine),
            gain=compare(mine, scores.baseline),
            over_tta=None if other is None or row.id == study.reference else compare(mine, other),
            paper=paper(row.id, support, query),
        )


def _tuned_cell(study: FewshotStudy, scores: EpisodeScores, one: TunedRow) -> Cell:
    """Its K is that of the row, the most there could have been: what was chosen stands in a table of its own."""
    mine, k = one.scores, one.k
    scores.by_row[one.row.id, one.generator, k, k] = mine
    other = scores.side(Ref(row=study.reference, support=k, query=k), one.generator)
    return Cell(
        data=Path(scores.data).name,
        classifier=scores.classifier,
        shot=scores.shot,
        row=one.row.id,
        label=one.row.label,
        kind="generative",
        generator=one.generator,
        support=k,
        query=k,
        original_weight=1.0 if one.use is None else one.use.original_weight,
        accuracy=mean_ci(mine),
        gain=compare(mine, scores.baseline),
        over_tta=None if other is None else compare(mine, other),
    )


def label_of(row: ViewRow, config: AugmentConfig | None) -> str:
    """The row's own; but what is drawn from the condition alone is not the paper's operator, and not called so."""
    return CONDITION_ALONE if row.label == OPERATOR and config and config.from_condition_alone else row.label


def compare(mine: Scores, other: Scores) -> Paired | None:
    return paired(mine, other) if mine.shape[-1] > 1 else None
