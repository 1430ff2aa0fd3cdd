"""How many views: the gain over K, and the grid of support and query views."""

from __future__ import annotations

from collections.abc import Sequence

from onesdaug.report.axes import (
    WIDTH,
    Frame,
    Key,
    Scale,
    dot,
    fit_scale,
    label,
    legend,
    path,
    svg,
    text,
    upright_whisker,
)
from onesdaug.report.panels import Panel, Series, mark, series_name
from onesdaug.report.records import Cell
from onesdaug.report.strings import points, signed

_HEIGHT = 190
_APART = 5  # pixels between series at the same K, so that whiskers do not hide each other


def gain_scale(panels: Sequence[Panel]) -> Scale:
    """One scale for the plots of a study: they stand side by side to be compared."""
    values = [0.0]
    for panel in panels:
        for series in _series(panel).values():
            for cell in series:
                values += [100 * v for g in [cell.gain] if g for v in (g.difference - g.ci95, g.difference + g.ci95)]
        values += [gain for _, gain in _paper(panel)]
    return fit_scale(values, signed=True)


def gain_over_k(panel: Panel, scale: Scale) -> str:
    """Lines per generator and of crop + flip, the paper's dashed; "" where only one K was run."""
    series, paper = _series(panel), _paper(panel)
    if panel.is_grid or len(panel.counts) < 2 or not series:
        return ""
    keys = [Key(series_name(cells), _mark(panel, key)) for key, cells in series.items()]
    parts, top = legend([*keys, *([Key("the paper", "paper", dashed=True)] if paper else [])], 0)
    frame = Frame(Scale(0, max(panel.counts), 1), scale, top + 26, _HEIGHT, left=38, right=22)
    parts += frame.draw("K, views behind every image", "percentage points against no views")
    if paper:
        parts.append(f'<g class="paper"><title>The paper: {_listed(paper)}</title>')
        parts.append(path([(frame.x(0), frame.y(0)), *((frame.x(k), frame.y(g)) for k, g in paper)], "dashed"))
        parts.append("</g>")
    for place, (key, cells) in enumerate(series.items()):
        shift = _APART * (place - (len(series) - 1) / 2)
        parts.append(_curve(cells, frame, shift, _mark(panel, key)))
    name = f"Gain over the number of views with 95 % intervals, {panel.title}"
    return svg(frame.bottom + 42, name, parts)


def _series(panel: Panel) -> dict[Series, tuple[Cell, ...]]:
    """What is drawn as lines over K."""
    return {key: cells for key, cells in panel.series.items() if all(c.gain and c.support == c.query for c in cells)}


def _mark(panel: Panel, series: Series) -> str:
    """A further row of the same generator, or of no generator, has its dots hollow and its line dotted."""
    cells = panel.series[series]
    first = next(key for key, others in panel.series.items() if mark(others[0]) == mark(cells[0]))
    return f"{mark(cells[0])}{' second' * (first != series)}"


def _paper(panel: Panel) -> list[tuple[int, float]]:
    """K and the paper's gain; it has one generator, so its values stand beside each of ours."""
    found = {}
    for cell in panel.cells:
        gain = panel.paper_gain(cell)
        if gain is not None and cell.kind == "generative" and cell.support == cell.query:
            found[cell.query] = gain
    return sorted(found.items())


def _listed(paper: Sequence[tuple[int, float]]) -> str:
    return ", ".join(f"K = {k} {signed(gain)}" for k, gain in paper)


def _curve(cells: Sequence[Cell], frame: Frame, shift: float, colour: str) -> str:
    name = series_name(cells)
    spots = [(frame.x(c.query) + shift, 100 * c.gain.difference, 100 * c.gain.ci95, c.gain) for c in cells if c.gain]
    shown = [path([(frame.x(0), frame.y(0)), *((x, frame.y(value)) for x, value, _, _ in spots)])]
    for cell, (x, value, half, gain) in zip(cells, spots, strict=True):
        shown.append(
            f"<g><title>{text(name)}, K = {cell.query}: {points(gain)}</title>"
            + upright_whisker(x, frame.y(value - half), frame.y(value + half))
            + f"{dot(x, frame.y(value), mark(cell))}</g>"
        )
    return f'<g class="{text(colour)}">' + "\n".join(shown) + "</g>"


def heat_map(panel: Panel, series: Series) -> str:
    """Support views down, query views across: accuracy, difference to no views, and the paper's accuracy."""
    cells = {(c.support, c.query): c for c in panel.series.get(series, ())}
    if not cells:
        return ""
    if panel.baseline is not None:
        cells[0, 0] = panel.baseline
    supports, queries = sorted({s for s, _ in cells}), sorted({q for _, q in cells})
    largest = max([abs(c.gain.difference) for c in cells.values() if c.gain is not None] or [0.0]) or 1.0
    left, top, tall = 30, 44, 60
    wide = (WIDTH - left - 4) / len(queries)
    parts = [label(left + wide * len(queries) / 2, 14, "views behind each query")]
    parts += [label(left + wide * (i + 0.5), 34, f"+{q}", "label") for i, q in enumerate(queries)]
    for row, support in enumerate(supports):
        parts.append(label(4, top + tall * (row + 0.5) + 4, f"+{support}", "label", "start"))
        for column, query in enumerate(queries):
            if (cell := cells.get((support, query))) is not None:
                parts.append(_square(cell, left + wide * column, top + tall * row, wide, tall, largest))
    bottom = top + tall * len(supports)
    parts.append(label(4, bottom + 18, "rows: views behind each support image", anchor="start"))
    name = f"Accuracy by views of support and query, {panel.title}, {series_name(panel.series[series])}"
    return svg(bottom + 28, name, parts)


def _square(cell: Cell, x: float, y: float, wide: float, tall: float, largest: float) -> str:
    """Coloured by the difference: green above no views, red below, the stronger the further."""
    change = cell.gain.difference if cell.gain is not None else 0.0
    kind = "rise" if change > 0 else "fall"
    strength = 0.5 * abs(change) / largest
    middle = x + wide / 2
    lines = [label(middle, y + 20, f"{100 * cell.accuracy.mean:.2f}", "label strong")]
    if cell.gain is not None:
        lines.append(label(middle, y + 36, signed(100 * change), "label"))
    if cell.paper is not None:
        lines.append(label(middle, y + 52, f"({cell.paper.value:.2f})", "label small"))
    told = f"support +{cell.support}, query +{cell.query}: {100 * cell.accuracy.mean:.2f} %"
    told += f", {points(cell.gain)} points" if cell.gain is not None else ", no views"
    told += f"; the paper {cell.paper.value:.2f} %" if cell.paper is not None else ""
    return (
        f'<g class="{kind}"><title>{text(told)}</title><rect class="back" x="{x + 1:.1f}" y="{y + 1:.1f}" '
        f'width="{wide - 2:.1f}" height="{tall - 2}" rx="4"/><rect class="heat" x="{x + 1:.1f}" y="{y + 1:.1f}" '
        f'width="{wide - 2:.1f}" height="{tall - 2}" rx="4" fill-opacity="{strength:.2f}"/>{"".join(lines)}</g>'
    )
