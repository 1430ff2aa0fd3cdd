"""Numbers as text, once for page and document: both show the same strings."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from onesdaug.report.records import Gain, Paper
from onesdaug.report.table import Entry
from onesdaug.statistics import Paired, Summary

_DATA = {"miniimagenet": "miniImageNet", "tieredimagenet": "tieredImageNet", "cub": "CUB", "animals": "Animals"}


def data_name(name: str) -> str:
    """Benchmarks as papers spell them, wherever they stand: "miniimagenet 1-shot" too."""
    return re.sub(rf"\b({'|'.join(_DATA)})\b", lambda found: _DATA[found[1]], name)


def signed(value: float, digits: int = 2) -> str:
    """+1.30, -0.25, and a plain 0.00 for what rounds to nothing; a dash for what is no number."""
    if not math.isfinite(value):
        return "–"
    shown = f"{value:+.{digits}f}"
    return shown[1:] if float(shown) == 0 else shown


def percent(value: float, digits: int = 2) -> str:
    """A share in percent, without the sign of it."""
    return f"{100 * value:.{digits}f}" if math.isfinite(value) else "–"


def relative(value: float) -> str:
    """A relative gain; a dash where the baseline was 0."""
    return f"{signed(100 * value)} %" if math.isfinite(value) else "–"


def points(gain: Paired | Gain) -> str:
    """A difference in percentage points with its interval."""
    mean = gain.difference if isinstance(gain, Paired) else gain.mean
    return f"{signed(100 * mean)} ± {percent(gain.ci95)}"


def accuracy(summary: Summary) -> str:
    return f"{percent(summary.mean)} ± {percent(summary.ci95)}"


def paper(value: Paper) -> str:
    return f"{value.value:.2f}" + (f" ± {value.ci95:.2f}" if value.ci95 is not None else "")


def seconds(value: float) -> str:
    """Three digits that say something: 0.00123 s is 1.23 ms."""
    if not math.isfinite(value):
        return "–"
    if value < 1:
        return f"{1000 * value:.3g} ms"
    return f"{value:.3g} s" if value < 1000 else f"{value:,.0f} s"


def small(value: float) -> str:
    """Three significant digits."""
    return f"{value:.3g}" if math.isfinite(value) else "–"


def p_value(value: float) -> str:
    return "< 0.0001" if value < 1e-4 else f"{value:.4f}"


def of_accuracy(summary: Summary, notes: Sequence[str] = ()) -> Entry:
    return Entry(accuracy(summary), tuple(notes))


def of_gain(gain: Paired | None) -> Entry:
    """A paired difference; green or red where its interval leaves out zero."""
    return Entry() if gain is None else Entry(points(gain), mark=direction(gain))


def direction(gain: Paired | None) -> str:
    if gain is None or not abs(gain.difference) > gain.ci95:
        return ""
    return "up" if gain.difference > 0 else "down"
