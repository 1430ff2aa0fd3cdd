"""What a view costs: seconds over the noise level."""

from __future__ import annotations

from collections.abc import Sequence

from onesdaug.report.axes import Frame, Key, dot, fit_scale, fit_seconds, legend, path, svg, text
from onesdaug.report.panels import generator_mark
from onesdaug.report.records import Timing
from onesdaug.report.strings import seconds


def time_plot(timings: Sequence[Timing]) -> str:
    """A line per generator and solver, the paper's dashed; powers of ten up, because machines differ by factors."""
    if not timings:
        return ""
    keys = list(dict.fromkeys((t.generator, t.solver, t.steps) for t in timings))
    paper: dict[str, dict[float, float]] = {}
    for t in timings:
        if t.paper is not None:
            paper.setdefault(t.solver, {})[t.noise_level] = t.paper
    marks = {key: generator_mark(key[0]) for key in keys}
    names = [
        Key(f"{g}, {solver}", f"{marks[g, solver, n]}{' second' * _later(keys, (g, solver, n))}")
        for g, solver, n in keys
    ]
    if paper:
        names.append(Key("the paper", "paper", dashed=True))
    parts, top = legend(names, 0)
    values = [t.seconds for t in timings] + [v for levels in paper.values() for v in levels.values()]
    frame = Frame(fit_scale([0.0, 1.0], 4), fit_seconds(values), top + 26, 190, 52, 16)
    parts += frame.draw("noise level", "per image, one at a time")
    for solver, levels in paper.items():
        spots = [(frame.x(level), frame.y(value)) for level, value in sorted(levels.items())]
        listed = ", ".join(f"{level:g}: {seconds(value)}" for level, value in sorted(levels.items()))
        shown = path(spots, "dashed") if len(spots) > 1 else dot(*spots[0], "paper")
        parts.append(f'<g class="paper"><title>The paper, {text(solver)}, {listed}</title>{shown}</g>')
    for key in keys:
        curve = sorted((t for t in timings if (t.generator, t.solver, t.steps) == key), key=lambda t: t.noise_level)
        kind = f"{marks[key]}{' second' * _later(keys, key)}"
        parts.append(f'<g class="{kind}">{path([(frame.x(t.noise_level), frame.y(t.seconds)) for t in curve])}')
        for t in curve:
            told = (
                f"{t.generator}, {t.solver}, noise level {t.noise_level:g}, {t.steps_run} steps: {seconds(t.seconds)}"
            )
            spot = dot(frame.x(t.noise_level), frame.y(t.seconds), marks[key])
            parts.append(f"<g><title>{text(told)}</title>{spot}</g>")
        parts.append("</g>")
    return svg(frame.bottom + 42, "Seconds per image over the noise level", parts)


def _later(keys: Sequence[tuple[str, str, int]], key: tuple[str, str, int]) -> bool:
    """Whether another solver of the same generator came before: the later ones are drawn hollow."""
    return next(k for k in keys if k[0] == key[0]) != key
