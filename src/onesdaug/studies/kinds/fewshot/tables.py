"""Tables of few-shot studies: the paper's own at a glance, then one in full for each panel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from onesdaug.report.records import CONDITION_ALONE, Cell
from onesdaug.report.result import StudyResult
from onesdaug.report.strings import accuracy, data_name, direction, of_accuracy, of_gain, paper, relative, signed
from onesdaug.report.table import Entry, Line, Table
from onesdaug.studies.kinds.fewshot.panels import Panel, Series, mark, panels, series_name

QUOTED = "Others, as quoted by the paper, not run here"
BY_VIEWS = "by views"


def glance(result: StudyResult) -> Table | None:
    """One line per panel: what views brought, ours beside the paper's; None where a single panel says it all."""
    found = [panel for panel in panels(result) if panel.counts and not panel.is_grid]
    if len(found) < 2:
        return None
    columns: dict[Series, list[Cell]] = {}
    for panel in found:
        for key, cells in panel.series.items():
            columns.setdefault(key, []).append(max(cells, key=lambda cell: cell.query))
    lines, by_views = [], _by_views(result)
    for panel in found:
        base = panel.baseline
        most = {key: max(cells, key=lambda cell: cell.query) for key, cells in panel.series.items()}
        ours = [_brought(most.get(key), columns[key], by_views) for key in columns]
        entries = (Entry() if base is None else of_accuracy(base.accuracy), *ours, _the_papers(panel))
        lines.append(Line(panel.title, entries))
    most_views = sorted({max(panel.counts) for panel in found})
    note = (
        f"Accuracy without views in %, then the paired difference to it with K = {' or '.join(map(str, most_views))} "
        f"views in percentage points."
    )
    if any(note.startswith(BY_VIEWS) for line in lines for entry in line.entries for note in entry.notes):
        note += (
            " Tuned rows may bring features to length 1, which needs no views: where that counts, theirs is beneath."
        )
    if any(line.entries[-1] != Entry() for line in lines):
        note += " The paper's: without views → with the most views it reports, in %."
    names = ("classifier, data, task", "no views", *(series_name(cells) for cells in columns.values()), "paper")
    return Table("At a glance", names, tuple(lines), note).without_empty_columns()


def _brought(cell: Cell | None, column: Sequence[Cell], by_views: Mapping[tuple[Any, ...], float]) -> Entry:
    """The gain with the most views; what its setting is, where the heading cannot say it for all panels."""
    if cell is None:
        return Entry()
    if cell.original_weight == 1:  # a tuned row that uses none
        return Entry("0.00", ("no views",))
    gain = of_gain(cell.gain)
    alone = by_views.get((cell.data, cell.classifier, cell.shot, cell.generator, cell.label))
    if alone is not None and cell.gain is not None and abs(cell.gain.difference - alone) > cell.gain.ci95:
        return Entry(gain.value, (f"{BY_VIEWS} {signed(100 * alone)}",), gain.mark)
    shared = len({(other.label, other.noise_level) for other in column}) == 1
    told = cell.label if cell.label == CONDITION_ALONE else f"noise {cell.noise_level:g}" if cell.noise_level else ""
    return gain if shared or not told else Entry(gain.value, (told,), gain.mark)


def _by_views(result: StudyResult) -> dict[tuple[Any, ...], float]:
    """What tuned rows gain over originals whose features are treated alike."""
    return {
        (one["data"], one["classifier"], one["shot"], one["generator"], one["row"]): one["gain"]["difference"]
        for one in result.details.get("tuned", [])
        if one["gain"]
    }


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
    against = f"to {panel.against}, points"
    columns = ("views", "accuracy, %", "to no views, points", against, "relative gain, %", "paper, %")
    return Table(panel.title, columns, tuple(lines)).without_empty_columns()


def _in_paper(panel: Panel, cell: Cell) -> Entry:
    """The paper's value with its relative gain in brackets, as the paper prints it."""
    if cell.paper is None:
        return Entry()
    gain = panel.paper_relative(cell)
    return Entry(paper(cell.paper) + (f" ({relative(gain)})" if gain is not None else ""))


def grid(panel: Panel, series: Series) -> Table:
    """Support views down, query views across, as the paper prints it."""
    cells = {(c.support, c.query): c for c in panel.series[series]}
    if panel.baseline is not None:
        cells[0, 0] = panel.baseline
    queries = sorted({query for _, query in cells})
    lines = []
    for support in sorted({support for support, _ in cells}):
        row = [cells.get((support, query)) for query in queries]
        lines.append(Line(f"support +{support}", tuple(Entry() if c is None else _in_grid(c) for c in row)))
    note = "Accuracy in %, beneath it the paired difference to no views in points, then the paper's accuracy."
    title = f"{panel.title}, {series_name(panel.series[series])}"
    return Table(title, ("", *(f"query +{q}" for q in queries)), tuple(lines), note)


def _in_grid(cell: Cell) -> Entry:
    notes = [of_gain(cell.gain).value] if cell.gain is not None else []
    if cell.paper is not None:
        notes.append(f"paper {paper(cell.paper)}")
    return Entry(accuracy(cell.accuracy), tuple(notes), direction(cell.gain))
