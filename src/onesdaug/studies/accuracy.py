"""The few-shot tables: every row of a study on the same episodes, and the paper's claims held against them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from onesdaug.augment.config import AugmentConfig
from onesdaug.fewshot.evaluate import Task, ViewUse
from onesdaug.statistics import Paired, mean_ci, paired
from onesdaug.studies.result import CONDITION_ALONE, OPERATOR, Cell, Claim, Instance, Kind, Paper, Verdict
from onesdaug.studies.spec import BASELINE, BY_GENERATOR, SAME_FOR_ALL_SEEDS, TRADITIONAL, ClaimSpec, Ref, Row, Study
from onesdaug.studies.workshop import Missing, Want, Workshop

KINDS: dict[str, Kind] = {"generated": "generative", "round-trip": "generative", "oracle": "oracle"}
Scores = NDArray[np.float64]  # one per episode, or a row of them per seed of the views


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
    first = shop.settings.seed
    return [
        Want(data, classifier, study.row_on(row, data, generator), generator, k, first + number)
        for data in study.data
        for classifier in study.classifiers
        if data in classifier.encoder
        for row in study.rows
        for generator in (generators_of(study, shop) if row.views in BY_GENERATOR else ("",))
        for k in [max(max(use) for use in row.uses or study.uses)]
        for number in range(1 if row.views in SAME_FOR_ALL_SEEDS else shop.settings.seeds or study.seeds)
    ]


def tables(study: Study, shop: Workshop) -> tuple[tuple[Cell, ...], tuple[Claim, ...]]:
    """Score all rows whose banks are there, then test the claims on them."""
    cells: list[Cell] = []
    blocks: list[Block] = []
    there = [group for group in _by_row(wants_of(study, shop)) if all(_is_there(want, shop) for want in group)]
    for data in study.data:
        for classifier in study.classifiers:
            groups = [g for g in there if (g[0].data, g[0].classifier.name) == (data, classifier.name)]
            for shot in study.shots if groups else ():
                block = Block(data, classifier.name, shot)
                found = list(_scored(study, shop, block, groups))
                blocks.append(block)
                cells += _cells(study, shop, block, found)
    return tuple(cells), tuple(weigh(spec, blocks) for spec in study.claims) if blocks else ()


def _by_row(wants: Sequence[Want]) -> list[list[Want]]:
    """The wants of one row, a want for each seed."""
    groups: dict[tuple[str, str, str, str], list[Want]] = {}
    for want in wants:
        groups.setdefault((want.data, want.classifier.name, want.row.id, want.generator), []).append(want)
    return list(groups.values())


def _is_there(want: Want, shop: Workshop) -> bool:
    try:
        return shop.path(want).is_file()
    except Missing:
        return False


def _scored(
    study: Study, shop: Workshop, block: Block, groups: Sequence[Sequence[Want]]
) -> Iterator[tuple[Want, int, int]]:
    """Score every row; yields what was."""
    task = Task(shot=block.shot, episodes=shop.settings.episodes or study.episodes, seed=shop.settings.seed)
    block.scores[BASELINE, "", 0, 0] = shop.scores(groups[0][0], task, ViewUse())
    for group in groups:
        want, generator = group[0], Path(group[0].generator).name
        for support, query in want.row.uses or study.uses:
            use = ViewUse(support, query, want.row.original_weight)
            of_seeds = [shop.scores(of_seed, task, use) for of_seed in group]
            block.scores[want.row.id, generator, support, query] = np.stack(of_seeds) if group[1:] else of_seeds[0]
            yield want, support, query


def _cells(study: Study, shop: Workshop, block: Block, found: Sequence[tuple[Want, int, int]]) -> Iterator[Cell]:
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
    for want, support, query in found:
        row, generator = want.row, Path(want.generator).name
        config = shop.config(row, want.generator) if row.views == "generated" else None
        mine = block.scores[row.id, generator, support, query]
        tta = block.scores.get((TRADITIONAL, "", support, query))
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
            gain=compare(mine, block.baseline),
            over_tta=None if tta is None or row.id == TRADITIONAL else compare(mine, tta),
            paper=paper(row.id, support, query),
        )


def label_of(row: Row, config: AugmentConfig | None) -> str:
    """The row's own; but what is drawn from the condition alone is not the paper's operator, and not called so."""
    return CONDITION_ALONE if row.label == OPERATOR and config and config.from_condition_alone else row.label


def compare(mine: Scores, other: Scores) -> Paired | None:
    return paired(mine, other) if mine.shape[-1] > 1 else None


def weigh(spec: ClaimSpec, blocks: Sequence[Block]) -> Claim:
    """Where all sides were run: which is better, with a paired interval that leaves out zero or does not."""
    instances = [
        instance
        for block in blocks
        if block.shot in spec.shots and (not spec.classifiers or block.classifier in spec.classifiers)
        for generator in dict.fromkeys(place[1] for place in block.scores)
        if (instance := _instance(spec, block, generator)) is not None
    ]
    kinds = {instance.verdict for instance in instances}
    overall = "not tested here" if not kinds else kinds.pop() if len(kinds) == 1 else "mixed"
    return Claim(says=spec.says, verdict=overall, margin=spec.margin, instances=tuple(instances))


def _instance(spec: ClaimSpec, block: Block, generator: str) -> Instance | None:
    """The comparison with this generator's views; "" where no side has any. Of several the closest one speaks."""
    refs = (*spec.better, spec.than)
    needs_generator = any((ref.row, "", ref.support, ref.query) not in block.scores for ref in refs)
    sides = [block.side(ref, generator) for ref in refs]
    if needs_generator != bool(generator) or any(side is None or side.shape[-1] < 2 for side in sides):
        return None
    *better, than = (side for side in sides if side is not None)
    found = [(paired(side, than), ref.row) for side, ref in zip(better, spec.better, strict=True)]
    difference, row = min(found, key=lambda item: item[0].difference)
    return Instance(
        where=f"{Path(block.data).name}, {block.classifier}, {block.shot}-shot",
        generator=generator,
        row=row if len(better) > 1 else "",
        difference=difference,
        verdict=verdict_of(difference, spec.margin),
    )


def verdict_of(difference: Paired, margin: float = 0.0) -> Verdict:
    """By the whole interval: above minus the margin (in points) the sentence holds, below it does not."""
    line = -margin / 100
    if difference.difference - difference.ci95 > line:
        return "agrees"
    return "differs" if difference.difference + difference.ci95 < line else "no clear difference"
