"""The cells of a few-shot study by what they share: one panel per data set, classifier and number of shots."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from onesdaug.report.records import CONDITION_ALONE, OPERATOR, Cell
from onesdaug.report.result import StudyResult
from onesdaug.report.strings import data_name
from onesdaug.report.table import generator_mark

Series = tuple[str, str]  # row, generator


@dataclass(frozen=True)
class Panel:
    """Cells on the same episodes, in the order of the study."""

    data: str
    classifier: str
    shot: int
    cells: tuple[Cell, ...]
    reference: str = ""  # the row that others are compared with

    @property
    def column(self) -> str:
        """Names the data and the task, as literature rows do."""
        return f"{self.data} {self.shot}-shot"

    @property
    def title(self) -> str:
        return f"{self.classifier}, {data_name(self.data)}, {self.shot}-shot"

    @property
    def baseline(self) -> Cell | None:
        return next((cell for cell in self.cells if cell.kind == "baseline"), None)

    @property
    def against(self) -> str:
        """What the reference is called in a heading."""
        found = next((cell.label for cell in self.cells if cell.row == self.reference), "")
        return found.removeprefix("traditional: ")

    @property
    def is_grid(self) -> bool:
        """Whether support and query have numbers of views of their own."""
        return any(cell.support != cell.query for cell in self.cells)

    @property
    def counts(self) -> tuple[int, ...]:
        """K of the cells with as many views behind support and query."""
        return tuple(sorted({cell.query for cell in self.cells if cell.query and cell.support == cell.query}))

    @property
    def generators(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(cell.generator for cell in self.cells if cell.kind == "generative"))

    @property
    def series(self) -> dict[Series, tuple[Cell, ...]]:
        """The cells of each row with each generator, the baseline apart, by their number of views."""
        found: dict[Series, list[Cell]] = {}
        for cell in self.cells:
            if cell.kind != "baseline":
                found.setdefault((cell.row, cell.generator), []).append(cell)
        return {key: tuple(sorted(cells, key=lambda cell: (cell.support, cell.query))) for key, cells in found.items()}

    def method(self, cell: Cell) -> str:
        """`1S-DAug-2 · pocket, noise 0.85` as the paper counts views; other rows by their label."""
        if cell.kind == "baseline":
            return cell.label
        name = f"{cell.label} · {cell.generator}" if cell.generator else cell.label
        if self.is_grid:
            return f"{name}{_level(cell)}, support +{cell.support}, query +{cell.query}"
        if cell.label == OPERATOR:
            return f"{OPERATOR}-{cell.query} · {cell.generator}{_level(cell)}"
        if cell.label == CONDITION_ALONE:
            return f"{CONDITION_ALONE}, K = {cell.query} · {cell.generator}"
        return f"{name}, K = {cell.query}" if len(self.counts) > 1 else name

    def paper_gain(self, cell: Cell) -> float | None:
        """The paper's difference to its own baseline, in percentage points."""
        base = self.baseline
        if cell.paper is None or base is None or base.paper is None or cell is base:
            return None
        return cell.paper.value - base.paper.value

    def paper_relative(self, cell: Cell) -> float | None:
        """The same over its baseline, as the paper prints it in brackets."""
        base, gain = self.baseline, self.paper_gain(cell)
        if gain is None or base is None or base.paper is None or not base.paper.value:
            return None
        return gain / base.paper.value


def _level(cell: Cell) -> str:
    known = cell.noise_level is not None and cell.label == OPERATOR
    return f", noise {cell.noise_level:g}" if known else ""


def series_name(cells: Sequence[Cell]) -> str:
    """What the cells of one row and generator share, for a column or a line: `pocket at 0.7`."""
    first, labels = cells[0], {cell.label for cell in cells}
    if not first.generator:
        return first.label
    if not labels <= {OPERATOR, CONDITION_ALONE}:
        return f"{first.label} · {first.generator}"
    levels = {cell.noise_level for cell in cells}
    if labels == {CONDITION_ALONE}:
        return f"{first.generator}, {CONDITION_ALONE}"
    return first.generator + (f" at {first.noise_level:g}" if len(levels) == 1 and first.noise_level else "")


def panels(result: StudyResult) -> list[Panel]:
    return panels_of(result.cells, result.reference)


def panels_of(cells: Iterable[Cell], reference: str = "") -> list[Panel]:
    found: dict[tuple[str, str, int], list[Cell]] = {}
    for cell in cells:
        found.setdefault((cell.data, cell.classifier, cell.shot), []).append(cell)
    return [Panel(*key, tuple(cells), reference) for key, cells in found.items()]


def mark(cell: Cell) -> str:
    """The class that colours a cell's row and its dot."""
    return generator_mark(cell.generator) if cell.kind == "generative" else cell.kind


def noise_level(cell: Cell, settings: str) -> float | None:
    """From the row's name (`noise-0.7`); for `full`, from the generator's own settings."""
    if named := re.fullmatch(r"noise-(\d+(?:\.\d+)?)", cell.row):
        return float(named[1])
    if cell.row == "full" and (found := re.search(r"noise_level[ =:]+(\d+(?:\.\d+)?)", settings)):
        return float(found[1])
    return None


def shared_episodes(panel_list: Sequence[Panel]) -> str:
    """How many episodes stand behind the accuracies, and with how many draws of the views."""
    cells = [cell for panel in panel_list for cell in panel.cells]
    counts = " or ".join(f"{n:,}" for n in sorted({cell.accuracy.n for cell in cells}))
    seeds = max(cell.accuracy.seeds for cell in cells)
    return f"{counts} episodes" + (f", each with {seeds} draws of the views," if seeds > 1 else "")


def implied_episodes(panel_list: Sequence[Panel]) -> tuple[int, int] | None:
    """How many episodes the paper's intervals stand for, from and to, if its spread over episodes is ours.

    ci95 = 1.96·std/√n, so n = n_ours · (ci_ours / ci_paper)²; read off the rows without views.
    """
    found = [
        round(base.accuracy.n * (100 * base.accuracy.ci95 / base.paper.ci95) ** 2)
        for panel in panel_list
        if (base := panel.baseline) is not None and base.paper is not None and base.paper.ci95
    ]
    return (min(found), max(found)) if found else None


def told_episodes(panel_list: Sequence[Panel]) -> str:
    """The same in a sentence: "15,000 queries" can be read as 200 episodes, which these intervals do not bear out."""
    if (found := implied_episodes(panel_list)) is None:
        return ""
    low, high = (f"{n:,}" for n in found)
    return (
        f"The paper says 15,000 queries, which would make 200 episodes of 75. Its intervals are as wide as those of "
        f"{low if low == high else f'{low} to {high}'} episodes with the spread that ours have."
    )
