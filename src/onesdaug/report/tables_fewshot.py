"""Tables of few-shot studies: the paper's own at a glance, then one in full for each panel."""

from __future__ import annotations

from collections.abc import Sequence

from onesdaug.report.panels import TRADITIONAL, Panel, mark, panels
from onesdaug.report.strings import accuracy, data_name, paper, relative, signed
from onesdaug.report.tabular import Entry, Line, Table, direction, of_accuracy, of_gain
from onesdaug.statistics import Paired
from onesdaug.studies.result import Cell, StudyResult

QUOTED = "Others, as quoted by the paper, not run here"


def glance(result: StudyResult) -> Table | None:
    """One line per panel: what views brought, ours beside the paper's; None where a single panel says it all."""
    found = [panel for panel in panels(result) if panel.counts and not panel.is_grid]
    if len(found) < 2:
        return None
    generators = list(dict.fromkeys(name for panel in found for name in panel.generators))
    lines = []
    for panel in found:
        base = panel.baseline
        ways = [(TRADITIONAL, ""), *(("generated", name) for name in generators)]
        ours = [of_gain(_most(panel, row, name)) for row, name in ways]
        entries = (Entry() if base is None else of_accuracy(base.accuracy), *ours, _the_papers(panel))
        lines.append(Line(panel.title, entries))
    most = sorted({max(panel.counts) for panel in found})
    note = (
        f"Accuracy without views in %, then the paired difference to it with K = {' or '.join(map(str, most))} views "
        f"in percentage points. The paper's: without views → with the most views it reports, in %."
    )
    columns = ("classifier, data, task", "no views", "crop + flip", *generators, "paper")
    return Table("At a glance", columns, tuple(lines), note).without_empty_columns()


def _most(panel: Panel, row: str, generator: str) -> Paired | None:
    """The gain with the most views."""
    cells = [c for c in panel.cells if (c.row, c.generator) == (row, generator) and c.support == c.query]
    return max(cells, key=lambda cell: cell.query).gain if cells else None


def _the_papers(panel: Panel) -> Entry:
    known = [c for c in panel.cells if c.kind == "generative" and panel.paper_gain(c) is not None]
    if not known or panel.baseline is None or panel.baseline.paper is None:
        return Entry()
    cell = max(known, key=lambda cell: cell.query)
    assert cell.paper is not None  # it has a gain
    gain = f"{signed(cell.paper.value - panel.baseline.paper.value)}, K = {cell.query}"
    return Entry(f"{panel.baseline.paper.value:.2f} → {cell.paper.value:.2f}", (gain,))


def beside_others(result: StudyResult) -> Table | None:
    """The rows that the paper quotes, and below them ours without views and with the most."""
    if not result.literature:
        return None
    found = panels(result)
    quoted = list(dict.fromkeys(column for row in result.literature for column in row.values))
    columns = list(dict.fromkeys([*(panel.column for panel in found), *quoted]))
    lines = [Line(QUOTED)]
    lines += [
        Line(row.method, tuple(Entry(paper(row.values[c])) if c in row.values else Entry() for c in columns), "quoted")
        for row in result.literature
    ]
    for classifier in dict.fromkeys(panel.classifier for panel in found):
        lines.append(Line(f"{classifier}, run here"))
        lines += _ours([panel for panel in found if panel.classifier == classifier], columns)
    return Table("Beside other methods", ("accuracy, %", *(data_name(c) for c in columns)), tuple(lines))


def _ours(of_classifier: Sequence[Panel], columns: Sequence[str]) -> list[Line]:
    found: dict[str, tuple[str, list[Entry]]] = {}
    for panel in of_classifier:
        most = max(panel.counts, default=0)
        for cell in panel.cells:
            if cell.kind == "baseline" or (cell.kind == "generative" and cell.support == cell.query == most):
                _, entries = found.setdefault(panel.method(cell), (mark(cell), [Entry()] * len(columns)))
                entries[columns.index(panel.column)] = of_accuracy(cell.accuracy)
    return [Line(name, tuple(entries), colour) for name, (colour, entries) in found.items()]


def in_full(panel: Panel) -> Table:
    """Every row of a panel with both paired differences and the paper's value."""
    lines = []
    for cell in panel.cells:
        entries = (
            of_accuracy(cell.accuracy),
            of_gain(cell.gain),
            of_gain(cell.over_tta),
            Entry(signed(100 * cell.gain.relative_gain)) if cell.gain is not None else Entry(),
            _in_paper(panel, cell),
        )
        lines.append(Line(panel.method(cell), entries, mark(cell)))
    columns = ("views", "accuracy, %", "to no views, points", "to crop + flip, points", "relative gain, %", "paper, %")
    return Table(panel.title, columns, tuple(lines)).without_empty_columns()


def _in_paper(panel: Panel, cell: Cell) -> Entry:
    """The paper's value with its relative gain in brackets, as the paper prints it."""
    if cell.paper is None:
        return Entry()
    gain = panel.paper_relative(cell)
    return Entry(paper(cell.paper) + (f" ({relative(gain)})" if gain is not None else ""))


def grid(panel: Panel, generator: str) -> Table:
    """Support views down, query views across, as the paper prints it."""
    cells = {(c.support, c.query): c for c in panel.cells if c.generator == generator and c.kind == "generative"}
    if panel.baseline is not None:
        cells[0, 0] = panel.baseline
    queries = sorted({query for _, query in cells})
    lines = []
    for support in sorted({support for support, _ in cells}):
        row = [cells.get((support, query)) for query in queries]
        lines.append(Line(f"support +{support}", tuple(Entry() if c is None else _in_grid(c) for c in row)))
    note = "Accuracy in %, beneath it the paired difference to no views in points, then the paper's accuracy."
    return Table(f"{panel.title}, {generator}", ("", *(f"query +{q}" for q in queries)), tuple(lines), note)


def _in_grid(cell: Cell) -> Entry:
    notes = [of_gain(cell.gain).value] if cell.gain is not None else []
    if cell.paper is not None:
        notes.append(f"paper {paper(cell.paper)}")
    return Entry(accuracy(cell.accuracy), tuple(notes), direction(cell.gain))
