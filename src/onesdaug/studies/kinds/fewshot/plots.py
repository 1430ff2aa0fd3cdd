"""Gains to look at: over K, over support and query views, row by row, and accuracy over the noise level."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from onesdaug.report.figures import COLOURS, DASHED, ZERO, Chart, Values, drawn, look, looks, tell
from onesdaug.report.plot import AGAINST_NONE, Dot, dot_rows
from onesdaug.report.records import Cell
from onesdaug.report.strings import accuracy, points, signed
from onesdaug.report.table import generator_mark
from onesdaug.studies.kinds.fewshot.panels import Panel, Series, mark, noise_level, series_name

_APART = 0.016  # of the axis between series at the same K, so that whiskers do not hide each other


def gain_scale(panels: Sequence[Panel]) -> list[float]:
    """What the gains of a study reach: its plots stand side by side to be compared, so they share a scale."""
    values = [0.0]
    for panel in panels:
        gains = [cell.gain for series in _series(panel).values() for cell in series if cell.gain]
        values += [100 * end for gain in gains for end in (gain.difference - gain.ci95, gain.difference + gain.ci95)]
        values += _paper(panel).values()
    return values


@drawn
def gain_over_k(panel: Panel, scale: Values) -> Chart | None:
    """One line for each row and generator, the paper's dashed; nothing where only one K was run."""
    series, paper, last = _series(panel), _paper(panel), max(panel.counts, default=0)
    if panel.is_grid or len(panel.counts) < 2 or not series:
        return None
    name = f"Gain over the number of views with 95 % intervals, {panel.title}"
    chart = Chart(name, 190, "K, views behind every image", AGAINST_NONE, signed="y", sides=(38, 22))
    chart.axes.set(xticks=range(last + 1), xlim=(0, last))
    chart.axes.update_datalim([(0, value) for value in scale])
    chart.axes.axhline(0, **ZERO)
    styles = looks([mark(cells[0]) for cells in series.values()])
    for place, (cells, style) in enumerate(zip(series.values(), styles, strict=True)):
        name, shift = series_name(cells), _APART * last * (place - (len(series) - 1) / 2)
        gains = {cell.query: cell.gain for cell in cells if cell.gain}
        x, y = [k + shift for k in gains], [100 * gain.difference for gain in gains.values()]
        chart.line(name, style, [0, *x], [0, *y])
        told = [f"{name}, K = {k}: {points(gain)}" for k, gain in gains.items()]
        chart.dots(style, x, y, told, yerr=[100 * gain.ci95 for gain in gains.values()])
    if paper:
        said = "The paper: " + ", ".join(f"K = {k} {signed(gain)}" for k, gain in paper.items())
        chart.line("the paper", DASHED, [0, *paper], [0, *paper.values()], said)
    return chart


def _series(panel: Panel) -> dict[Series, tuple[Cell, ...]]:
    """What is drawn as lines over K."""
    return {key: cells for key, cells in panel.series.items() if all(c.gain and c.support == c.query for c in cells)}


def _paper(panel: Panel) -> dict[int, float]:
    """K and the paper's gain; it has one generator, so its values stand beside each of ours."""
    cells = [cell for cell in panel.cells if cell.kind == "generative" and cell.support == cell.query]
    return dict(sorted((cell.query, gain) for cell in cells if (gain := panel.paper_gain(cell)) is not None))


@drawn
def heat_map(panel: Panel, series: Series) -> Chart | None:
    """Support views down, query views across: accuracy, difference to no views, and the paper's accuracy."""
    cells = {(c.support, c.query): c for c in panel.series.get(series, ())}
    if not cells:
        return None
    if panel.baseline is not None:
        cells[0, 0] = panel.baseline
    supports, queries = sorted({s for s, _ in cells}), sorted({q for _, q in cells})
    largest = max([abs(c.gain.difference) for c in cells.values() if c.gain is not None] or [0.0]) or 1.0
    name = f"Accuracy by views of support and query, {panel.title}, {series_name(panel.series[series])}"
    across, up = "views behind each query", "views behind each support image"
    chart = Chart(name, 60 * len(supports), across, up, sides=(34, 4))
    chart.axes.set(xlim=(0, len(queries)), ylim=(len(supports), 0))
    chart.axes.set_xticks([place + 0.5 for place in range(len(queries))], [f"+{q}" for q in queries])
    chart.axes.set_yticks([place + 0.5 for place in range(len(supports))], [f"+{s}" for s in supports])
    chart.axes.grid(False)
    for (support, query), cell in cells.items():
        _square(chart, queries.index(query), supports.index(support), cell, largest)
    return chart


def _square(chart: Chart, x: float, y: float, cell: Cell, largest: float) -> None:
    """Coloured by the difference: green above no views, red below, the stronger the further."""
    from matplotlib.patches import FancyBboxPatch

    change, mean = cell.gain.difference if cell.gain is not None else 0.0, f"{100 * cell.accuracy.mean:.2f}"
    told = f"support +{cell.support}, query +{cell.query}: {mean} %"
    told += f", {points(cell.gain)} points" if cell.gain is not None else ", no views"
    told += f"; the paper {cell.paper.value:.2f} %" if cell.paper is not None else ""
    fill = (COLOURS["accent" if change > 0 else "warn"], 0.5 * abs(change) / largest)
    square = FancyBboxPatch((x, y), 1, 1, "round,pad=-0.02,rounding_size=0.06", fc=fill, ec=COLOURS["line"])
    tell([chart.axes.add_patch(square)], told)
    chart.axes.text(x + 0.5, y + 0.27, mean, ha="center", va="center", weight="bold")
    if cell.gain is not None:
        chart.axes.text(x + 0.5, y + 0.53, signed(100 * change), ha="center", va="center")
    if cell.paper is not None:
        chart.axes.text(x + 0.5, y + 0.79, f"({cell.paper.value:.2f})", ha="center", va="center", size=11.5)


def parts_plot(panel: Panel) -> str:
    """One line per row of the study, a dot per generator on it, the paper's difference as a hollow one."""
    together: dict[tuple[str, int, int], list[Cell]] = {}
    for cell in panel.cells:
        if cell.gain is not None:
            together.setdefault((cell.row, cell.support, cell.query), []).append(cell)
    rows = []
    for cells in together.values():
        dots = [Dot(100 * c.gain.difference, points(c.gain), mark(c), 100 * c.gain.ci95) for c in cells if c.gain]
        paper = next((gain for cell in cells if (gain := panel.paper_gain(cell)) is not None), None)
        dots += [Dot(paper, f"the paper {signed(paper)}", "paper")] if paper is not None else []
        # the legend names the generators: with them, long names would run into the numbers
        rows.append((panel.method(cells[0]).replace(f" · {cells[0].generator}", ""), dots))
    marks = [(name, generator_mark(name)) for name in panel.generators]
    if marks and any(cell.kind == "traditional" for cell in panel.cells):
        marks.append(("traditional", "traditional"))
    if any(dot.mark == "paper" for _, dots in rows for dot in dots):
        marks.append(("the paper", "paper"))
    return dot_rows(f"Paired difference to no views with 95 % intervals, {panel.title}", rows, marks)


@drawn
def noise_curve(panel: Panel, settings: Mapping[str, str]) -> Chart | None:
    """Accuracy over the noise level, no views and the reference as lines across; none with fewer than two levels."""
    curves, paper = _curves(panel, settings), _paper_accuracies(panel)
    if not any(len(curve) > 1 for curve in curves.values()):
        return None
    up = "accuracy, %; whiskers: paired to no views"
    chart = Chart(f"Accuracy over the noise level, {panel.title}", 190, "noise level", up)
    chart.axes.set_xlim(0, 1)
    for name, curve in curves.items():
        style, x, y = look(generator_mark(name)), list(curve), [100 * cell.accuracy.mean for cell in curve.values()]
        half = [100 * cell.gain.ci95 if cell.gain is not None else math.nan for cell in curve.values()]
        chart.line(name, style, x, y)
        told = [f"{name}, {cell.label} ({level:g}): {accuracy(cell.accuracy)} %" for level, cell in curve.items()]
        chart.dots(style, x, y, told, yerr=half)
    for cell in panel.cells:
        # the legend names these: the curves cross wherever a label would stand
        if cell.kind == "baseline" or cell.row == panel.reference:
            value, style = 100 * cell.accuracy.mean, {**look(mark(cell)), "marker": "", "linewidth": 1.4}
            said = f"{cell.label}: {accuracy(cell.accuracy)} %"
            chart.line(cell.label.removeprefix("traditional: "), style, [0, 1], [value, value], said)
    if paper:
        said = "The paper, " + ", ".join(f"{level:g}: {value:.2f} %" for level, value in paper.items())
        chart.line("the paper", DASHED, list(paper), list(paper.values()), said)
    return chart


def _curves(panel: Panel, settings: Mapping[str, str]) -> dict[str, dict[float, Cell]]:
    """Per generator, one cell per level: the row named after it before the preset that happens to have it."""
    found: dict[str, dict[float, Cell]] = {}
    for cell in panel.cells:
        level = noise_level(cell, settings.get(cell.generator, ""))
        if cell.kind == "generative" and level is not None:
            levels = found.setdefault(cell.generator, {})
            if level not in levels or cell.row != "full":
                levels[level] = cell
    return {name: dict(sorted(levels.items(), key=lambda item: item[0])) for name, levels in found.items()}


def _paper_accuracies(panel: Panel) -> dict[float, float]:
    known = [(noise_level(cell, ""), cell.paper) for cell in panel.cells]
    return dict(sorted((level, paper.value) for level, paper in known if level is not None and paper is not None))
