"""The few-shot tables: every row of a study on the same episodes, and the paper's claims held against them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from onesdaug.fewshot.evaluate import Task, ViewUse
from onesdaug.statistics import Paired, mean_ci, paired
from onesdaug.studies.result import Cell, Claim, Instance, Kind, Paper, Verdict
from onesdaug.studies.spec import BASELINE, TRADITIONAL, ClaimSpec, Classifier, Ref, Row, Study
from onesdaug.studies.workshop import Missing, Want, Workshop

KINDS: dict[str, Kind] = {"generated": "generative", "oracle": "oracle"}
Scores = NDArray[np.float64]


@dataclass
class Block:
    """All scores of one classifier on one benchmark with one number of shots: the same episodes throughout."""

    data: str
    classifier: str
    shot: int
    scores: dict[tuple[str, str, int, int], Scores] = field(default_factory=dict)  # row, generator, support, query

    @property
    def baseline(self) -> Scores:
        return self.scores[BASELINE, "", 0, 0]

    def side(self, ref: Ref, generator: str) -> Scores | None:
        """A side of a comparison: the generator's own, or one that has none."""
        place = (ref.row, generator, ref.support, ref.query)
        return self.scores.get(place, self.scores.get((ref.row, "", ref.support, ref.query)))


def generators_of(study: Study, shop: Workshop) -> tuple[str, ...]:
    return study.generators if shop.settings.generators is None else shop.settings.generators


def generators_here(study: Study, shop: Workshop) -> tuple[list[str], list[str]]:
    """Those that are there, loaded, and one line for each that is not."""
    found, problems = [], []
    for generator in generators_of(study, shop):
        try:
            shop.augmenter(generator)
        except Missing as missing:
            problems.append(str(missing))
        else:
            found.append(generator)
    return found, problems


def wants_of(study: Study, shop: Workshop) -> list[Want]:
    """Every feature bank the study looks at."""
    return [
        Want(data, classifier, study.row_on(row, data, generator), generator, k)
        for data in study.data
        for classifier in study.classifiers
        if data in classifier.encoder
        for row in study.rows
        for generator in (generators_of(study, shop) if row.views == "generated" else ("",))
        for k in [max(max(use) for use in row.uses or study.uses)]
    ]


def tables(study: Study, shop: Workshop) -> tuple[tuple[Cell, ...], tuple[Claim, ...]]:
    """Score all rows whose banks are there, then test the claims on them."""
    cells: list[Cell] = []
    blocks: list[Block] = []
    for data in study.data:
        for classifier in study.classifiers:
            for shot in study.shots:
                block = Block(data, classifier.name, shot)
                found = list(_rows(study, shop, block, classifier))
                if found:
                    blocks.append(block)
                    cells += _cells(study, block, found)
    return tuple(cells), tuple(claim for spec in study.claims if (claim := weigh(spec, blocks)) is not None)


def _rows(study: Study, shop: Workshop, block: Block, classifier: Classifier) -> Iterator[tuple[Row, str, int, int]]:
    """Score every row that can be scored; yields what was."""
    for want in wants_of(study, shop):
        if (want.data, want.classifier.name) != (block.data, classifier.name):
            continue
        row, generator = want.row, Path(want.generator).name
        task = Task(shot=block.shot, episodes=shop.settings.episodes or study.episodes, seed=shop.settings.seed)
        try:
            if not shop.path(want).is_file():
                continue
        except Missing:
            continue
        if (BASELINE, "", 0, 0) not in block.scores:
            block.scores[BASELINE, "", 0, 0] = shop.scores(want, task, ViewUse())
        for support, query in row.uses or study.uses:
            use = ViewUse(support, query, row.original_weight)
            block.scores[row.id, generator, support, query] = shop.scores(want, task, use)
            yield row, generator, support, query


def _cells(study: Study, block: Block, found: Sequence[tuple[Row, str, int, int]]) -> Iterator[Cell]:
    def paper(row: str, support: int = 0, query: int = 0) -> Paper | None:
        return study.paper_value(block.data, block.classifier, block.shot, row, support, query)

    where = {"data": Path(block.data).name, "classifier": block.classifier, "shot": block.shot}
    yield Cell(
        **where,
        row=BASELINE,
        label="no views",
        kind="baseline",
        accuracy=mean_ci(block.baseline),
        paper=paper(BASELINE),
    )
    for row, generator, support, query in found:
        mine = block.scores[row.id, generator, support, query]
        tta = block.scores.get((TRADITIONAL, "", support, query))
        yield Cell(
            **where,
            row=row.id,
            label=row.label,
            kind=KINDS.get(row.views, "traditional"),
            generator=generator,
            support=support,
            query=query,
            original_weight=row.original_weight,
            accuracy=mean_ci(mine),
            gain=compare(mine, block.baseline),
            over_tta=None if tta is None or row.id == TRADITIONAL else compare(mine, tta),
            paper=paper(row.id, support, query),
        )


def compare(mine: Scores, other: Scores) -> Paired | None:
    return paired(mine, other) if mine.size > 1 else None


def weigh(spec: ClaimSpec, blocks: Sequence[Block]) -> Claim | None:
    """Where both sides were run: which is better, with a paired interval that leaves out zero or does not."""
    instances = []
    for block in blocks:
        if block.shot not in spec.shots:
            continue
        for generator in dict.fromkeys(place[1] for place in block.scores):
            needs_generator = any(
                (ref.row, "", ref.support, ref.query) not in block.scores for ref in (spec.better, spec.than)
            )
            if needs_generator != bool(generator):
                continue
            better, than = block.side(spec.better, generator), block.side(spec.than, generator)
            if better is None or than is None or better.size < 2:
                continue
            difference = paired(better, than)
            where = f"{Path(block.data).name}, {block.classifier}, {block.shot}-shot"
            verdict = verdict_of(difference)
            instances.append(Instance(where=where, generator=generator, difference=difference, verdict=verdict))
    if not instances:
        return None
    kinds = {instance.verdict for instance in instances}
    overall = kinds.pop() if len(kinds) == 1 else "mixed"
    return Claim(says=spec.says, verdict=overall, instances=tuple(instances))


def verdict_of(difference: Paired) -> Verdict:
    if difference.p_value >= 0.05:
        return "no clear difference"
    return "agrees" if difference.difference > 0 else "differs"
