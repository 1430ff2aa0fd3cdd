"""Differences as a picture: lines of dots with their 95 % whiskers, zero marked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from onesdaug.report.axes import WIDTH, Key, Scale, dot, fit_scale, flat_whisker, label, legend, line, svg, text

_EDGE, _ROW, _APART, _AXIS = 14, 40, 11, 38  # names stand above the whiskers instead of beside them: room for both
AGAINST_NONE = "percentage points against no views"


@dataclass(frozen=True)
class Dot:
    """A difference in percentage points with the half-width of its interval; `shown` is the same as text."""

    value: float
    ci95: float
    shown: str
    mark: str


@dataclass(frozen=True)
class DotRow:
    """What is compared, by one dot or by one for each generator; `ghost` is what the paper reports."""

    name: str
    dots: tuple[Dot, ...]
    ghost: float | None = None


def whiskers(
    rows: Sequence[DotRow], name: str, scale: Scale | None = None, keys: Sequence[Key] = (), axis: str = AGAINST_NONE
) -> str:
    """One line per row; "" where there is nothing to compare."""
    if not rows:
        return ""
    scale = scale or whisker_scale(rows)
    parts, top = legend(keys, 0) if keys else ([], 2.0)
    heights = [_ROW + _APART * (len(row.dots) - 1) for row in rows]
    bottom = top + sum(heights) + 4

    def x(value: float) -> float:
        return _EDGE + scale.share(value) * (WIDTH - 2 * _EDGE)

    for value, tick in scale.ticks():
        parts.append(line(x(value), top - 2, x(value), bottom, "zero" if value == 0 else "grid"))
        parts.append(label(x(value), bottom + 15, tick))
    parts.append(label(WIDTH / 2, bottom + 32, axis))
    for row, height in zip(rows, heights, strict=True):
        parts.append(line(_EDGE, top + height - 3, WIDTH - _EDGE, top + height - 3, "row"))
        parts.append(label(_EDGE, top + 14, row.name, "label", "start"))
        if len(row.dots) == 1:
            parts.append(label(WIDTH - _EDGE, top + 14, row.dots[0].shown, "label number", "end"))
        if row.ghost is not None:
            y = top + (26 + height - 14) / 2
            shown = f"{row.name}, the paper: {row.ghost:+.2f}"
            parts.append(f'<g class="paper"><title>{text(shown)}</title>{dot(x(row.ghost), y, "paper")}</g>')
        for place, item in enumerate(row.dots):
            y = top + 26 + _APART * place
            parts.append(
                f'<g class="{text(item.mark)}"><title>{text(row.name)}: {text(item.shown)}</title>'
                + flat_whisker(y, x(item.value - item.ci95), x(item.value + item.ci95))
                + f"{dot(x(item.value), y, item.mark)}</g>"
            )
        top += height
    return svg(bottom + _AXIS, name, parts)


def whisker_scale(rows: Sequence[DotRow]) -> Scale:
    """Holds every whisker, every value of the paper and zero."""
    ends = [v for row in rows for d in row.dots for v in (d.value - d.ci95, d.value + d.ci95)]
    return fit_scale([0.0, *ends, *(row.ghost for row in rows if row.ghost is not None)], signed=True)
