"""The gains as a picture: one dot per method with its 95 % whisker, as SVG that takes its colours from the page."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from html import escape

from onesdaug.report.table import Block, Row, cells

# Drawn for the width of a phone, labels above the whiskers instead of beside them: scaled down, text would be lost.
_WIDTH, _EDGE, _ROW, _TOP, _AXIS = 360, 14, 40, 2, 34
_TICKS = 6


def gain_plots(blocks: Sequence[Block]) -> list[str]:
    """One SVG per block, all on the same scale; "" for a block with nothing to compare."""
    low, high, step = _scale([row for block in blocks for row in block.rows])
    return [_plot(block, low, high, step) for block in blocks]


def _scale(rows: Sequence[Row]) -> tuple[float, float, float]:
    """Range and tick distance in percentage points that hold every whisker and zero."""
    gains = [row.result.gain for row in rows if row.result.gain is not None]
    low = min([0.0, *(100 * (g.difference - g.ci95) for g in gains)])
    high = max([0.0, *(100 * (g.difference + g.ci95) for g in gains)])
    if high - low < 1e-9:
        low, high = -1.0, 1.0
    rough = (high - low) / _TICKS
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(m * power for m in (1, 2, 5, 10) if m * power >= rough)
    return math.floor(low / step) * step, math.ceil(high / step) * step, step


def _plot(block: Block, low: float, high: float, step: float) -> str:
    rows = [row for row in block.rows if row.result.gain is not None]
    if not rows:
        return ""

    def x(value: float) -> str:
        return f"{_EDGE + (value - low) / (high - low) * (_WIDTH - 2 * _EDGE):.1f}"

    bottom = _TOP + len(rows) * _ROW + 4
    parts = [
        f'<svg class="plot" viewBox="0 0 {_WIDTH} {bottom + _AXIS}" role="img" '
        f'aria-label="Paired difference to the baseline with 95 % intervals, {escape(block.classifier)}">'
    ]
    count = round((high - low) / step)
    digits = max(0, -math.floor(math.log10(step) + 1e-9))
    for tick in (low + i * step for i in range(count + 1)):
        zero = abs(tick) < step / 2
        parts.append(
            f'<line class="{"zero" if zero else "grid"}" x1="{x(tick)}" x2="{x(tick)}" y1="0" y2="{bottom}"/>'
        )
        label = "0" if zero else f"{tick:+.{digits}f}"
        parts.append(f'<text class="tick" x="{x(tick)}" y="{bottom + 14}" text-anchor="middle">{label}</text>')
    parts.append(
        f'<text class="tick" x="{_WIDTH / 2}" y="{bottom + 30}" text-anchor="middle">'
        "percentage points against no views</text>"
    )
    parts += [_whisker(row, _TOP + place * _ROW, x) for place, row in enumerate(rows)]
    return "\n".join([*parts, "</svg>"])


def _whisker(row: Row, top: int, x: Callable[[float], str]) -> str:
    """Label and number above, interval and dot below."""
    gain, text = row.result.gain, cells(row)
    assert gain is not None  # rows without one are not drawn
    low, middle, high = (
        x(100 * v) for v in (gain.difference - gain.ci95, gain.difference, gain.difference + gain.ci95)
    )
    name, y = escape(text.method), top + 26
    return (
        f'<g class="{row.kind}"><title>{name}: {text.gain} ± {text.gain_ci}</title>'
        f'<line class="row" x1="{_EDGE}" x2="{_WIDTH - _EDGE}" y1="{top + _ROW - 3}" y2="{top + _ROW - 3}"/>'
        f'<text class="label" x="{_EDGE}" y="{top + 14}">{name}</text>'
        f'<text class="label number" x="{_WIDTH - _EDGE}" y="{top + 14}" text-anchor="end">'
        f"{text.gain} ± {text.gain_ci}</text>"
        f'<path class="whisker" d="M{low} {y}H{high}M{low} {y - 4}v8M{high} {y - 4}v8"/>'
        f'<circle class="dot" cx="{middle}" cy="{y}" r="4.5"/></g>'
    )
