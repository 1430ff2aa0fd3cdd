"""Differences as a picture: rows of dots with their 95 % whiskers, zero marked."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

from onesdaug.report.figures import COLOURS, ZERO, Chart, Look, Values, drawn, look, looks

AGAINST_NONE = "percentage points against no views"
_EDGE, _NAME, _APART = 14, 22, 11  # pixels; names stand above the dots instead of beside them: room for both


class Dot(NamedTuple):
    """A value with the half-width of its interval; `shown` is the same as text, `second` of two that share a mark."""

    value: float
    shown: str
    mark: str
    ci95: float = math.nan
    second: bool = False


@drawn
def dot_rows(
    name: str,
    rows: Sequence[tuple[str, Sequence[Dot]]],
    marks: Sequence[tuple[str, str]] = (),
    places: Values = (),
    across: str = AGAINST_NONE,
    zero: float = 0.0,
) -> Chart | None:
    """Named rows of dots on an axis with ticks at `places`, named marks in the legend; nothing without a row."""
    if not rows:
        return None
    *tops, whole = accumulate((_NAME + 8 + _APART * len(dots) for _, dots in rows), initial=0)
    chart = Chart(name, whole, across, signed="x" * (zero == 0), sides=(_EDGE, _EDGE))
    chart.keys = dict(zip([key for key, _ in marks], looks([mark for _, mark in marks], line=False), strict=True))
    axes = chart.axes
    axes.set(yticks=[], ylim=(whole, 0))
    axes.update_datalim([(zero, 0)])
    words: Look = {"transform": axes.get_yaxis_transform(), "va": "center"}
    spots: dict[tuple[str, bool], list[tuple[Dot, float, str]]] = {}  # by mark
    for (row, dots), top in zip(rows, tops, strict=True):
        axes.text(0, top + 13, row, **words)
        if [dot.mark != "paper" for dot in dots].count(True) == 1:
            axes.text(1, top + 13, dots[0].shown, ha="right", color=COLOURS["quiet"], **words)
        for place, dot in enumerate(dots):
            at = top + _NAME + _APART * (place + 0.5)
            spots.setdefault((dot.mark, dot.second), []).append((dot, at, f"{row}: {dot.shown}"))
    for (mark, second), found in spots.items():
        of_mark, y, told = zip(*found, strict=True)
        chart.dots(
            look(mark, second=second), [dot.value for dot in of_mark], y, told, xerr=[dot.ci95 for dot in of_mark]
        )
    # the lines of the grid stop for the names: none is crossed out
    starts, ends = [top + _NAME for top in tops], [end - 4 for end in (*tops[1:], whole)]
    places = places or axes.get_xticks().tolist()
    axes.set(xticks=places, xlim=(places[0], places[-1]))
    for tick in places:
        axes.vlines([tick] * len(rows), starts, ends, color=COLOURS["line"], linewidth=1, zorder=1)
    axes.vlines([zero] * len(rows), starts, ends, **ZERO)
    axes.hlines(tops[1:], *axes.get_xlim(), color=COLOURS["line"], linewidth=0.6)
    return chart
