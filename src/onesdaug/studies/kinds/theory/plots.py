"""Section 4 to look at: the accuracy–diversity plane, norms before and after, gains by class, the simulated claim."""

from __future__ import annotations

from collections.abc import Sequence

from onesdaug.report.figures import COLOURS, DASHED, SHAPES, ZERO, Chart, Look, drawn, look, looks, tell
from onesdaug.report.plot import Dot, dot_rows
from onesdaug.report.records import Gain, Simulation, Theory
from onesdaug.report.strings import points, signed, small
from onesdaug.report.table import generator_mark
from onesdaug.studies.kinds.theory.tables import setting, theory_name

_MANY = 24  # classes; of more, the best and the worst halves of so many


@drawn
def plane(entries: Sequence[Theory]) -> Chart | None:
    """Accuracy gap across, diversity up; on the line they cancel, below it averaging lowers the risk."""
    if not entries:
        return None
    name, up = "Accuracy gap and diversity term of every classifier and generator", "diversity term × 100"
    chart = Chart(name, 210, "accuracy gap × 100: views alone are worse →", up, signed="xy", sides=(44, 14))
    axes = chart.axes
    axes.axhline(0, **ZERO)
    axes.axvline(0, **ZERO)
    classifiers = list(dict.fromkeys(e.classifier for e in entries))
    shapes = [SHAPES[classifiers.index(e.classifier) % len(SHAPES)] for e in entries]
    styles = looks([generator_mark(e.generator) for e in entries], shapes)
    for e, style in zip(entries, styles, strict=True):
        gap, term = 100 * e.accuracy_gap.mean, 100 * e.diversity.mean
        told = f"{theory_name(e)}, {setting(e)}: accuracy gap {signed(gap)}, diversity {signed(term)}"
        chart.dots(style, [gap], [term], [told], [100 * e.accuracy_gap.ci95], [100 * e.diversity.ci95])
        chart.keys[theory_name(e)] = {**style, "linestyle": "none"}
    (left, right), (bottom, top) = axes.get_xlim(), axes.get_ylim()
    start, end = max(left, -top), min(right, -bottom)  # of the part of y = -x that lies inside the frame
    if start < end:
        chart.line("risk as before", DASHED, [start, end], [-start, -end])
        # a line of the axes ends at the words instead of crossing them
        behind = {"facecolor": COLOURS["card"], "edgecolor": "none", "pad": 2}
        words: Look = {"transform": axes.transAxes, "color": COLOURS["quiet"], "bbox": behind}
        axes.text(0.02, 0.03, "risk falls", **words)
        axes.text(0.98, 0.97, "risk rises", ha="right", va="top", **words)
    return chart


@drawn
def norm_histogram(e: Theory) -> Chart | None:
    """Norms of the features before and after averaging, the largest of each marked."""
    h, count = e.norms, len(e.norms.before)
    if not count or h.high <= h.low:
        return None
    name = f"Feature norms before and after averaging, {theory_name(e)}, {setting(e)}"
    chart = Chart(name, 130, "norm of the feature", "images", sides=(46, 14))
    chart.keys = {"originals": look("before", line=False), "averaged with views": look("after", line=False)}
    edges = [h.low + place * (h.high - h.low) / count for place in range(count + 1)]
    high = max(*h.before, *h.after, 1) / 5
    for kind, counts, radius in (("before", h.before, e.radius_before), ("after", h.after, e.radius_after)):
        colour = look(kind)["color"]
        area = chart.axes.stairs(counts, edges, fill=True, fc=(colour, 0.22), ec=colour, lw=1.4)
        tell([area], f"{kind} averaging")
        tell(chart.axes.plot([radius, radius], [0, high], color=colour, lw=2.5), f"radius {kind}: {small(radius)}")
    return chart


@drawn
def class_gains(e: Theory) -> Chart | None:
    """Bars from the class that gained most to the one that lost most."""
    ranked = sorted(e.classes, key=lambda gain: -gain.mean)
    if not ranked:
        return None
    between = len(ranked) - _MANY
    shown: list[Gain | None] = list(ranked)
    if between > 1:
        shown = [*ranked[: _MANY // 2], None, *ranked[-_MANY // 2 :]]
    name = f"Gain by class with 95 % intervals, {theory_name(e)}, {setting(e)}"
    chart = Chart(name, 17 * len(shown), "points against no views", signed="x", sides=(128, 14))
    axes = chart.axes
    axes.set_yticks(range(len(shown)), [f"… {between} more …" if g is None else _short(g.name) for g in shown])
    axes.set_ylim(len(shown) - 0.5, -0.5)
    axes.grid(False, axis="y")
    axes.grid(axis="x")
    axes.axvline(0, **ZERO)
    bars = {place: gain for place, gain in enumerate(shown) if gain is not None}
    x, half = ([100 * gain.mean for gain in bars.values()], [100 * gain.ci95 for gain in bars.values()])
    colours = [COLOURS["accent" if value > 0 else "warn"] for value in x]
    drawn_bars = axes.hlines(list(bars), 0, x, colours, lw=11, alpha=0.55)
    tell([drawn_bars], *(f"{gain.name}: {points(gain)}" for gain in bars.values()))
    axes.errorbar(x, list(bars), xerr=half, fmt="none", color=COLOURS["ink"], elinewidth=1, capthick=1)
    return chart


def _short(name: str) -> str:
    return name if len(name) <= 15 else f"{name[:14]}…"


def simulation_plot(simulations: Sequence[Simulation]) -> str:
    """The probability of a smaller radius against ½, a dot per number of views."""
    marks = {k: f"g{place % 6}" for place, k in enumerate(sorted({s.views for s in simulations}))}
    rows: dict[str, list[Dot]] = {}
    for s in simulations:
        dot = Dot(s.probability, f"K = {s.views}: {s.probability:.3f} ± {s.ci95:.3f}", marks[s.views], s.ci95)
        rows.setdefault(f"{s.distribution} ({s.assumption})", []).append(dot)
    name, across = (
        "Simulated probability that averaging lowers the radius",
        "P(smaller radius); the paper: more than 0.5",
    )
    keys = [(f"K = {k}", mark) for k, mark in marks.items()]
    return dot_rows(name, list(rows.items()), keys, (0, 0.25, 0.5, 0.75, 1), across, zero=0.5)
