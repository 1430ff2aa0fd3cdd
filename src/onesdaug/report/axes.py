"""Scales, axes, marks and legends of the plots: SVG that takes its colours from the page.

Everything is drawn for the width of a phone: scaled down, text would be lost.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Protocol

from onesdaug.report.strings import seconds

WIDTH = 360
_CHARACTER = 7.0  # pixels of an average one at the size of a label
_SHAPES = {
    "traditional": "square",
    "g1": "diamond",
    "g2": "triangle",
    "g4": "square",
    "g5": "diamond",
    "oracle": "triangle",
}


SHAPES = ("circle", "square", "diamond", "triangle")


def text(value: object) -> str:
    """Escaped; file names may hold bytes that are no characters."""
    return escape(str(value).encode("utf-8", "replace").decode())


class Ruler(Protocol):
    def share(self, value: float) -> float: ...
    def ticks(self) -> list[tuple[float, str]]: ...


@dataclass(frozen=True)
class Scale:
    """A range that begins and ends on a tick."""

    low: float
    high: float
    step: float
    signed: bool = False

    def share(self, value: float) -> float:
        return (value - self.low) / (self.high - self.low)

    def ticks(self) -> list[tuple[float, str]]:
        digits = max(0, -math.floor(math.log10(self.step) + 1e-9))
        digits += abs(round(self.step, digits) - self.step) > 1e-9  # a quarter has two
        found = []
        for place in range(round((self.high - self.low) / self.step) + 1):
            value = self.low + place * self.step
            zero = abs(value) < self.step / 2
            found.append((0.0, "0") if zero else (value, f"{value:{'+' * self.signed}.{digits}f}"))
        return found


def fit_scale(values: Iterable[float], ticks: int = 6, signed: bool = False) -> Scale:
    """The narrowest such range that holds all values, with about `ticks` ticks at 1, 2 or 5 times a power of ten."""
    finite = [value for value in values if math.isfinite(value)] or [0.0]
    low, high = min(finite), max(finite)
    if high - low < 1e-9:
        low, high = low - 1.0, high + 1.0
    rough = (high - low) / ticks
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(m * power for m in (1, 2, 5, 10) if m * power >= rough * (1 - 1e-9))
    return Scale(math.floor(low / step + 1e-9) * step, math.ceil(high / step - 1e-9) * step, step, signed)


@dataclass(frozen=True)
class SecondsScale:
    """Seconds, each tick a fixed factor above the one below: from a millisecond to a minute on one axis."""

    low: float
    high: float

    def share(self, value: float) -> float:
        return math.log(max(value, self.low) / self.low) / math.log(self.high / self.low)

    def ticks(self) -> list[tuple[float, str]]:
        first, last = math.floor(math.log10(self.low)), math.ceil(math.log10(self.high))
        steps = (1, 2, 5) if last - first < 3 else (1,)
        found = [m * 10.0**p for p in range(first, last + 1) for m in steps]
        return [(v, seconds(v)) for v in found if self.low * 0.999 <= v <= self.high * 1.001]


def fit_seconds(values: Sequence[float]) -> SecondsScale:
    """From a 1, 2 or 5 below the least to one above the greatest."""
    marks = [m * 10.0**p for p in range(-7, 7) for m in (1, 2, 5)]
    low = max([m for m in marks if m <= min(values) * 1.001] or marks[:1])
    high = min([m for m in marks if m > low and m >= max(values) * 0.999] or marks[-1:])
    return SecondsScale(low, high)


@dataclass(frozen=True)
class Frame:
    """The rectangle that data is drawn in."""

    across: Ruler
    up: Ruler
    top: float
    height: float
    left: float = 40
    right: float = 12

    @property
    def bottom(self) -> float:
        return self.top + self.height

    def x(self, value: float) -> float:
        return self.left + self.across.share(value) * (WIDTH - self.left - self.right)

    def y(self, value: float) -> float:
        return self.bottom - self.up.share(value) * self.height

    def draw(self, across: str, up: str) -> list[str]:
        """Grid, ticks and titles; the upright one stands above its axis, where it needs no turned head."""
        parts = [label(2, self.top - 10, up, anchor="start")]
        for value, name in self.up.ticks():
            kind = "zero" if value == 0 else "grid"
            parts.append(line(self.left, self.y(value), WIDTH - self.right, self.y(value), kind))
            parts.append(label(self.left - 6, self.y(value) + 4, name, anchor="end"))
        for value, name in self.across.ticks():
            parts.append(line(self.x(value), self.bottom, self.x(value), self.bottom + 4, "grid"))
            parts.append(label(self.x(value), self.bottom + 17, name))
        parts.append(label((self.left + WIDTH - self.right) / 2, self.bottom + 34, across))
        return parts


def svg(height: float, name: str, parts: Iterable[str]) -> str:
    """The plot with its description for those who cannot see it."""
    return "\n".join(
        [
            f'<svg class="plot" viewBox="0 0 {WIDTH} {height:.0f}" role="img" aria-label="{text(name)}">',
            f"<title>{text(name)}</title>",
            *parts,
            "</svg>",
        ]
    )


def line(x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
    return f'<line class="{kind}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'


def label(x: float, y: float, words: str, kind: str = "tick", anchor: str = "middle") -> str:
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{text(words)}</text>'


def path(points: Sequence[tuple[float, float]], kind: str = "curve") -> str:
    return f'<path class="{kind}" d="M{"L".join(f"{x:.1f} {y:.1f}" for x, y in points)}"/>' if points else ""


def upright_whisker(x: float, low: float, high: float) -> str:
    return (
        f'<path class="whisker" d="M{x:.1f} {low:.1f}V{high:.1f}M{x - 3:.1f} {low:.1f}h6M{x - 3:.1f} {high:.1f}h6"/>'
    )


def flat_whisker(y: float, low: float, high: float) -> str:
    return (
        f'<path class="whisker" d="M{low:.1f} {y:.1f}H{high:.1f}M{low:.1f} {y - 4:.1f}v8M{high:.1f} {y - 4:.1f}v8"/>'
    )


def dot(x: float, y: float, mark: str, shape: str = "") -> str:
    """A shape for each colour, for those who do not tell colours apart."""
    shape = shape or _SHAPES.get(mark.partition(" ")[0], "circle")
    if shape == "square":
        return f'<path class="dot" d="M{x - 4:.1f} {y - 4:.1f}h8v8h-8z"/>'
    if shape == "diamond":
        return f'<path class="dot" d="M{x:.1f} {y - 5.5:.1f}l5.5 5.5l-5.5 5.5l-5.5 -5.5z"/>'
    if shape == "triangle":
        return f'<path class="dot" d="M{x:.1f} {y - 5.5:.1f}l5.5 9.5h-11z"/>'
    return f'<circle class="dot" cx="{x:.1f}" cy="{y:.1f}" r="4.5"/>'


@dataclass(frozen=True)
class Key:
    """A line of the legend: a name and the dot or the dashed line it stands for."""

    name: str
    mark: str
    dashed: bool = False
    shape: str = ""


def legend(keys: Sequence[Key], top: float) -> tuple[list[str], float]:
    """The keys side by side as far as they fit, and where the next thing may begin."""
    parts, x, y = [], 2.0, top + 8
    for key in keys:
        before = 24 if key.dashed else 15
        width = before + _CHARACTER * len(key.name) + 12
        if x > 2 and x + width > WIDTH:
            x, y = 2.0, y + 18
        sign = line(x, y, x + 18, y, "dashed") if key.dashed else dot(x + 6, y, key.mark, key.shape)
        parts.append(f'<g class="{text(key.mark)}">{sign}{label(x + before, y + 4, key.name, "label", "start")}</g>')
        x += width
    return parts, y + 12
