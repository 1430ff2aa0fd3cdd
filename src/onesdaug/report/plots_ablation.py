"""What each part contributes: a dot per part and generator, and accuracy over the noise level."""

from __future__ import annotations

import math
from collections.abc import Mapping

from onesdaug.report.figures import DASHED, Chart, drawn, look
from onesdaug.report.panels import TRADITIONAL, Panel, generator_mark, mark, noise_level
from onesdaug.report.plot import Dot, dot_rows
from onesdaug.report.records import Cell
from onesdaug.report.strings import accuracy, points, signed


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
        name = panel.method(cells[0])
        rows.append((name if len(cells) == 1 else name.replace(f" · {cells[0].generator}", ""), dots))
    marks = [(name, generator_mark(name)) for name in panel.generators]
    if marks and any(cell.kind == "traditional" for cell in panel.cells):
        marks.append(("traditional", "traditional"))
    if any(dot.mark == "paper" for _, dots in rows for dot in dots):
        marks.append(("the paper", "paper"))
    return dot_rows(f"Paired difference to no views with 95 % intervals, {panel.title}", rows, marks)


@drawn
def noise_curve(panel: Panel, settings: Mapping[str, str]) -> Chart | None:
    """Accuracy over the noise level, no views and crop + flip as lines across; nothing with fewer than two levels."""
    curves, paper = _curves(panel, settings), _paper(panel)
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
        if cell.kind == "baseline" or cell.row == TRADITIONAL:
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


def _paper(panel: Panel) -> dict[float, float]:
    known = [(noise_level(cell, ""), cell.paper) for cell in panel.cells]
    return dict(sorted((level, paper.value) for level, paper in known if level is not None and paper is not None))
