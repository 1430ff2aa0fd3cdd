"""What a view costs: seconds over the noise level."""

from __future__ import annotations

from collections.abc import Sequence

from onesdaug.report.figures import DASHED, Chart, Values, drawn, look, looks
from onesdaug.report.panels import generator_mark
from onesdaug.report.records import Timing
from onesdaug.report.strings import seconds


@drawn
def time_plot(timings: Sequence[Timing]) -> Chart | None:
    """A line per generator and solver, the paper's dashed; powers of ten up, because machines differ by factors."""
    if not timings:
        return None
    curves: dict[tuple[str, str, int], list[Timing]] = {}
    paper: dict[str, dict[float, float]] = {}
    for t in sorted(timings, key=lambda t: t.noise_level):
        curves.setdefault((t.generator, t.solver, t.steps), []).append(t)
        if t.paper is not None:
            paper.setdefault(t.solver, {})[t.noise_level] = t.paper
    name, up = "Seconds per image over the noise level", "per image, one at a time"
    chart = Chart(name, 190, "noise level", up, sides=(52, 16))
    styles = looks([generator_mark(generator) for generator, _, _ in curves])
    for curve, style in zip(curves.values(), styles, strict=True):
        name, x, y = (
            f"{curve[0].generator}, {curve[0].solver}",
            [t.noise_level for t in curve],
            [t.seconds for t in curve],
        )
        told = [f"{name}, noise level {t.noise_level:g}, {t.steps_run} steps: {seconds(t.seconds)}" for t in curve]
        chart.line(name, style, x, y)
        chart.dots(style, x, y, told)
    for solver, levels in paper.items():
        said = f"The paper, {solver}, " + ", ".join(f"{level:g}: {seconds(value)}" for level, value in levels.items())
        chart.line("the paper", DASHED, list(levels), list(levels.values()), said)
        if len(levels) == 1:
            chart.dots(look("paper"), list(levels), list(levels.values()), [said])
    marks = _marks([t.seconds for t in timings] + [value for levels in paper.values() for value in levels.values()])
    chart.axes.set(xlim=(0, 1), yscale="log", ylim=(marks[0], marks[-1]))
    shown = marks if marks[-1] <= 100 * marks[0] else [m for m in marks if f"{m:e}"[0] == "1"]
    chart.axes.set_yticks(shown, [seconds(mark) for mark in shown])
    chart.axes.minorticks_off()
    return chart


def _marks(values: Values) -> list[float]:
    """Each 1, 2 or 5 times a power of ten from below the least to above the greatest."""
    marks = [m * 10.0**power for power in range(-7, 7) for m in (1, 2, 5)]
    low = max([m for m in marks if m <= min(values) * 1.001] or marks[:1])
    high = min([m for m in marks if m > low and m >= max(values) * 0.999] or marks[-1:])
    return [m for m in marks if low <= m <= high]
