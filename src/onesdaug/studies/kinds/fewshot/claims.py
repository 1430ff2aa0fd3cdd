"""The paper's statements, held against the scores of the same episodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, field_validator

from onesdaug.report.records import Claim, Instance, Verdict, overall
from onesdaug.statistics import Paired, paired
from onesdaug.studies.spec import BASELINE, SpecModel

Scores = NDArray[np.float64]  # one per episode, or a row of them per seed of the views


class Ref(SpecModel):
    """A row with a number of views, as a side of a comparison."""

    row: str
    support: int = 0
    query: int = 0


class ClaimSpec(SpecModel):
    """The paper says that one side beats the other; it is tested wherever both were run.

    Of several on the better side each has to win. With a margin the sentence is "no worse": the difference may be
    negative, but the whole interval has to lie above minus the margin.
    """

    says: str
    better: tuple[Ref, ...]
    than: Ref
    shots: tuple[int, ...] = (1,)
    margin: float = Field(0.0, ge=0)  # percentage points
    classifiers: tuple[str, ...] = ()  # the paper's, where a study has others beside them; empty: all are

    @field_validator("better", mode="before")
    @classmethod
    def _one_or_more(cls, value: Any) -> Any:
        return [value] if isinstance(value, dict | Ref) else value


@dataclass
class EpisodeScores:
    """All scores of one classifier on one benchmark with one number of shots: the same episodes throughout."""

    data: str
    classifier: str
    shot: int
    by_row: dict[tuple[str, str, int, int], Scores] = field(default_factory=dict)  # row, generator, support, query

    @property
    def baseline(self) -> Scores:
        return self.by_row[BASELINE, "", 0, 0]

    def side(self, ref: Ref, generator: str) -> Scores | None:
        """A side of a comparison: the generator's own, or one that has none."""
        place = (ref.row, generator, ref.support, ref.query)
        return self.by_row.get(place, self.by_row.get((ref.row, "", ref.support, ref.query)))


def weigh(spec: ClaimSpec, scored: Sequence[EpisodeScores]) -> Claim:
    """Where all sides were run: which is better, with a paired interval that leaves out zero or does not.

    What came out with other classifiers than the paper's is told where its own are missing, but not judged.
    """
    found = [scores for scores in scored if scores.shot in spec.shots]
    theirs = [scores for scores in found if not spec.classifiers or scores.classifier in spec.classifiers]
    instances = _instances(spec, theirs)
    others = _instances(spec, found) if not instances else ()
    verdict = "other model" if others else overall(instances)
    return Claim(says=spec.says, verdict=verdict, margin=spec.margin, instances=instances or others)


def _instances(spec: ClaimSpec, scored: Sequence[EpisodeScores]) -> tuple[Instance, ...]:
    return tuple(
        instance
        for scores in scored
        for generator in dict.fromkeys(place[1] for place in scores.by_row)
        if (instance := _instance(spec, scores, generator)) is not None
    )


def _instance(spec: ClaimSpec, scores: EpisodeScores, generator: str) -> Instance | None:
    """The comparison with this generator's views; "" where no side has any. Of several the closest one speaks."""
    refs = (*spec.better, spec.than)
    needs_generator = any((ref.row, "", ref.support, ref.query) not in scores.by_row for ref in refs)
    sides = [scores.side(ref, generator) for ref in refs]
    if needs_generator != bool(generator) or any(side is None or side.shape[-1] < 2 for side in sides):
        return None
    *better, than = (side for side in sides if side is not None)
    found = [(paired(side, than), ref.row) for side, ref in zip(better, spec.better, strict=True)]
    difference, row = min(found, key=lambda item: item[0].difference)
    return Instance(
        where=f"{Path(scores.data).name}, {scores.classifier}, {scores.shot}-shot",
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
