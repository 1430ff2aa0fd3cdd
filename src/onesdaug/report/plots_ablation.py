"""What each part contributes: a dot per part and generator, and accuracy over the noise level."""

from __future__ import annotations

from collections.abc import Mapping

from onesdaug.report.axes import WIDTH, Frame, Key, dot, fit_scale, legend, line, path, svg, text, upright_whisker
from onesdaug.report.panels import TRADITIONAL, Panel, generator_mark, mark, noise_level
from onesdaug.report.plot import Dot, DotRow, whiskers
from onesdaug.report.records import Cell
from onesdaug.report.strings import accuracy, points

_HEIGHT = 190


def parts_plot(panel: Panel) -> str:
    """One line per row of the study, a dot per generator on it, the paper's difference as a hollow one."""
    rows: dict[tuple[str, int, int], list[Cell]] = {}
    for cell in panel.cells:
        if cell.gain is not None:
            rows.setdefault((cell.row, cell.support, cell.query), []).append(cell)
    shown, ghosts = [], False
    for cells in rows.values():
        ghost = next((g for cell in cells if (g := panel.paper_gain(cell)) is not None), None)
        ghosts = ghosts or ghost is not None
        shown.append(DotRow(_row_name(panel, cells), tuple(_dot(cell) for cell in cells), ghost))
    keys = [Key(name, generator_mark(name)) for name in panel.generators]
    if keys and any(cell.kind == "traditional" for cell in panel.cells):
        keys.append(Key("traditional", "traditional"))
    if ghosts:
        keys.append(Key("the paper", "paper"))
    return whiskers(shown, f"Paired difference to no views with 95 % intervals, {panel.title}", keys=keys)


def _row_name(panel: Panel, cells: list[Cell]) -> str:
    first = cells[0]
    if len(cells) == 1:
        return panel.method(first)
    return panel.method(first).replace(f" · {first.generator}", "")


def _dot(cell: Cell) -> Dot:
    assert cell.gain is not None  # rows without one are not drawn
    return Dot(100 * cell.gain.difference, 100 * cell.gain.ci95, points(cell.gain), mark(cell))


def noise_curve(panel: Panel, settings: Mapping[str, str]) -> str:
    """Accuracy over the noise level, no views and crop + flip as lines across; "" with fewer than two levels."""
    curves, paper = _curves(panel, settings), _paper(panel)
    if not any(len(curve) > 1 for curve in curves.values()):
        return ""
    across = [c for c in panel.cells if c.kind == "baseline" or c.row == TRADITIONAL]
    values = [100 * cell.accuracy.mean for cell in across] + [value for _, value in paper]
    for curve in curves.values():
        for _, cell in curve:
            half = 100 * cell.gain.ci95 if cell.gain is not None else 0.0
            values += [100 * cell.accuracy.mean - half, 100 * cell.accuracy.mean + half]
    keys = [Key(name, generator_mark(name)) for name in curves]
    keys += [Key(cell.label.removeprefix("traditional: "), mark(cell)) for cell in across]
    parts, top = legend([*keys, *([Key("the paper", "paper", dashed=True)] if paper else [])], 0)
    frame = Frame(fit_scale([0.0, 1.0], 5), fit_scale(values), top + 26, _HEIGHT)
    parts += frame.draw("noise level", "accuracy, %; whiskers: paired to no views")
    parts += [_level(cell, frame) for cell in across]
    if paper:
        listed = ", ".join(f"{level:g}: {value:.2f} %" for level, value in paper)
        parts.append(f'<g class="paper"><title>The paper, {listed}</title>')
        parts.append(path([(frame.x(level), frame.y(value)) for level, value in paper], "dashed") + "</g>")
    for name, curve in curves.items():
        parts.append(f'<g class="{generator_mark(name)}">')
        parts.append(path([(frame.x(level), frame.y(100 * cell.accuracy.mean)) for level, cell in curve]))
        parts += [_spot(cell, level, frame) for level, cell in curve]
        parts.append("</g>")
    return svg(frame.bottom + 42, f"Accuracy over the noise level, {panel.title}", parts)


def _curves(panel: Panel, settings: Mapping[str, str]) -> dict[str, list[tuple[float, Cell]]]:
    """Per generator, one cell per level: the row named after it before the preset that happens to have it."""
    found: dict[str, dict[float, Cell]] = {}
    for cell in panel.cells:
        level = noise_level(cell, settings.get(cell.generator, ""))
        if cell.kind == "generative" and level is not None:
            levels = found.setdefault(cell.generator, {})
            if level not in levels or cell.row != "full":
                levels[level] = cell
    return {name: sorted(levels.items(), key=lambda item: item[0]) for name, levels in found.items()}


def _paper(panel: Panel) -> list[tuple[float, float]]:
    found = {}
    for cell in panel.cells:
        level = noise_level(cell, "")
        if cell.paper is not None and level is not None:
            found[level] = cell.paper.value
    return sorted(found.items())


def _level(cell: Cell, frame: Frame) -> str:
    """A line across; the legend names it, because the curves cross wherever a label would stand."""
    y = frame.y(100 * cell.accuracy.mean)
    return (
        f'<g class="{mark(cell)}"><title>{text(cell.label)}: {accuracy(cell.accuracy)} %</title>'
        + line(frame.left, y, WIDTH - frame.right, y, "level")
        + "</g>"
    )


def _spot(cell: Cell, level: float, frame: Frame) -> str:
    x, value = frame.x(level), 100 * cell.accuracy.mean
    half = 100 * cell.gain.ci95 if cell.gain is not None else 0.0
    return (
        f"<g><title>{text(cell.generator)}, {text(cell.label)} ({level:g}): {accuracy(cell.accuracy)} %</title>"
        + upright_whisker(x, frame.y(value - half), frame.y(value + half))
        + f"{dot(x, frame.y(value), mark(cell))}</g>"
    )
