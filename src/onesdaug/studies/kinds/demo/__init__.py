"""`make demo`: views of photographs, and the accuracy that views bring on the feature banks of this repository.

The photographs come with scikit-image (or are yours, --images), the generator with this package, the banks with the
repository: nothing is fetched. Whatever fails costs only its own part: the page is written all the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

from onesdaug.augment.operator import default_preset, faithful_preset
from onesdaug.common.registry import GENERATORS
from onesdaug.errors import OnesdaugError
from onesdaug.generators.load import has_weights
from onesdaug.report.parts import Note, Part, Plot, SideBySide
from onesdaug.report.result import StudyResult
from onesdaug.studies.context import StudyContext
from onesdaug.studies.kind import Findings, StudyKind
from onesdaug.studies.kinds.demo.banks import TASK, DemoBanks, describe_folder, evaluate_folder
from onesdaug.studies.kinds.demo.photographs import make_photographs
from onesdaug.studies.kinds.fewshot.panels import panels, shared_episodes
from onesdaug.studies.kinds.fewshot.plots import parts_plot
from onesdaug.studies.kinds.fewshot.tables import in_full
from onesdaug.studies.provenance import Facts
from onesdaug.studies.spec import Study

FULL_FIGURES = "docs/generators.md"
SMALL_PRINT = (
    "The views behind the numbers have settings of their own, tuned for accuracy; the page lists them under How this "
    "was made.",
    "The embedded feature banks hold derived features of a small random part of the novel test classes, no images. "
    f"The figures of the full test split are in {FULL_FIGURES}; where they differ, they count.",
    "Neither interval includes the luck of which images the embedded part holds.",
    "Generated views can be wrong for your images: look at them before you trust an average over them.",
)


class DemoStudy(Study):
    model: str = "pocket"
    k: int = 4
    beside: tuple[str, ...] = ()  # generators that are shown beside it, where their weights are
    beside_k: int = 2  # they take seconds a view
    banks: str = "artifacts/demo"  # from where the demo is run
    episodes: int = TASK.episodes or 0


class Kind(StudyKind[DemoStudy]):
    spec = DemoStudy
    complete = True

    def run(self, study: DemoStudy, context: StudyContext, output: Path) -> Findings:
        ready = [name for name in study.beside if has_weights(name)]
        model, *beside = context.settings.generators or (study.model, *ready)
        task = replace(TASK, episodes=context.settings.episodes or study.episodes)
        with context.timed("episodes"):
            try:
                found = evaluate_folder(Path(study.banks), task)
            except OnesdaugError as error:
                found = DemoBanks(problems=[str(error)])
        shown = {
            (name, faithful_preset(name)): f"The views to look at, by {Path(name).name}" for name in (model, *beside)
        }
        # the numbers were made with other settings: their views are shown too, as far as the generators are here
        for name in dict.fromkeys(cell.generator for cell in found.cells):
            if name in GENERATORS and (context.settings.generators is None or name in (model, *beside)):
                shown.setdefault((name, default_preset(name)), f"The views behind the numbers of {name}")
        counts = dict.fromkeys(beside, study.beside_k)
        photographs, notes, problems = make_photographs(shown, study.k, counts, context, output)
        spreads = [
            f"{classifier}: that luck, as the standard deviation of the difference with all views over other random "
            f"parts of this size, in percentage points: {', '.join(f'{s} {100 * value:.2f}' for s, value in known)}."
            for classifier, known in found.spreads.items()
        ]
        return {
            "photographs": photographs,
            "cells": tuple(found.cells),
            "notes": (*notes, *((*SMALL_PRINT, *spreads) if found.cells else ())),
            "missing": (*problems, *found.problems),
        }

    def facts(self, study: DemoStudy, context: StudyContext) -> Facts:
        try:
            return describe_folder(Path(study.banks))
        except OnesdaugError:
            return Facts()  # said among what is missing

    def show(self, result: StudyResult) -> Iterator[Part]:
        """A table for each classifier, then their plots side by side."""
        found = panels(result)
        if not found:
            return
        yield Note(f"{shared_episodes(found)}, the same for all rows of a table.")
        for panel in found:
            yield in_full(panel)
        yield SideBySide(tuple(Plot(panel.title, partial(parts_plot, panel)) for panel in found))
