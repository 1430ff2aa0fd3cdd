"""Section 4 to look at: the accuracy–diversity plane, norms before and after, gains by class, the simulated claim."""

from __future__ import annotations

from collections.abc import Sequence

from onesdaug.report.axes import (
    SHAPES,
    WIDTH,
    Frame,
    Key,
    Scale,
    dot,
    fit_scale,
    flat_whisker,
    label,
    legend,
    line,
    path,
    svg,
    text,
    upright_whisker,
)
from onesdaug.report.panels import generator_mark
from onesdaug.report.records import Gain, Simulation, Theory
from onesdaug.report.strings import points, setting, signed, small, theory_name

_MANY = 24  # classes; of more, the best and the worst halves of so many


def plane(entries: Sequence[Theory]) -> str:
    """Accuracy gap across, diversity up; on the line they cancel, below it averaging lowers the risk."""
    if not entries:
        return ""
    shapes = {name: SHAPES[n % len(SHAPES)] for n, name in enumerate(dict.fromkeys(e.classifier for e in entries))}
    marks = [f"{generator_mark(e.generator)}{' second' * _again(e, entries)}" for e in entries]
    keys = [Key(theory_name(e), m, shape=shapes[e.classifier]) for e, m in zip(entries, marks, strict=True)]
    parts, top = legend([*dict.fromkeys(keys), Key("risk as before", "paper", dashed=True)], 0)
    gaps = [100 * (e.accuracy_gap.mean + s * e.accuracy_gap.ci95) for e in entries for s in (-1, 1)]
    terms = [100 * (e.diversity.mean + s * e.diversity.ci95) for e in entries for s in (-1, 1)]
    frame = Frame(
        fit_scale([0.0, *gaps], 5, signed=True), fit_scale([0.0, *terms], 5, signed=True), top + 26, 210, 44, 14
    )
    across, up = frame.across, frame.up
    assert isinstance(across, Scale) and isinstance(up, Scale)
    parts += frame.draw("accuracy gap × 100: views alone are worse →", "diversity term × 100")
    parts.append(line(frame.x(0), frame.top, frame.x(0), frame.bottom, "zero"))
    # the part of y = -x that lies inside the frame
    start, end = max(across.low, -up.high), min(across.high, -up.low)
    if start < end:
        parts.append(line(frame.x(start), frame.y(-start), frame.x(end), frame.y(-end), "dashed"))
        parts.append(label(frame.left + 6, frame.bottom - 6, "risk falls", "label tick", "start"))
        parts.append(label(WIDTH - frame.right - 4, frame.top + 14, "risk rises", "label tick", "end"))
    parts += [_place(e, frame, shapes[e.classifier], m) for e, m in zip(entries, marks, strict=True)]
    return svg(frame.bottom + 42, "Accuracy gap and diversity term of every classifier and generator", parts)


def _again(e: Theory, entries: Sequence[Theory]) -> bool:
    """Whether another row of the same classifier and generator came before: the later one is drawn hollow."""
    return next(o for o in entries if (o.classifier, o.generator) == (e.classifier, e.generator)) is not e


def _place(e: Theory, frame: Frame, shape: str, kind: str) -> str:
    gap, term = 100 * e.accuracy_gap.mean, 100 * e.diversity.mean
    x, y = frame.x(gap), frame.y(term)
    told = f"{theory_name(e)}, {setting(e)}: accuracy gap {signed(gap)}, diversity {signed(term)}"
    return (
        f'<g class="{kind}"><title>{text(told)}</title>'
        + flat_whisker(y, frame.x(gap - 100 * e.accuracy_gap.ci95), frame.x(gap + 100 * e.accuracy_gap.ci95))
        + upright_whisker(x, frame.y(term - 100 * e.diversity.ci95), frame.y(term + 100 * e.diversity.ci95))
        + f"{dot(x, y, generator_mark(e.generator), shape)}</g>"
    )


def norm_histogram(e: Theory) -> str:
    """Norms of the features before (shaded) and after averaging (outlined), the largest of each marked."""
    h = e.norms
    count = len(h.before)
    if not count or h.high <= h.low:
        return ""
    parts, top = legend([Key("originals", "before"), Key("averaged with views", "after")], 0)
    peak = max(*h.before, *h.after, 1)
    frame = Frame(
        fit_scale([h.low, h.high, e.radius_before, e.radius_after], 5),
        fit_scale([0.0, float(peak)], 4),
        top + 26,
        130,
        46,
        14,
    )
    parts += frame.draw("norm of the feature", "images")
    width = (h.high - h.low) / count
    for kind, counts in (("before", h.before), ("after", h.after)):
        steps = [(h.low, 0.0)]
        for place, height in enumerate(counts):
            steps += [(h.low + place * width, float(height)), (h.low + (place + 1) * width, float(height))]
        corners = [(frame.x(v), frame.y(height)) for v, height in [*steps, (h.high, 0.0)]]
        parts.append(f'<g class="{kind}"><title>{kind} averaging</title>{path(corners, "area")}</g>')
    for kind, radius in (("before", e.radius_before), ("after", e.radius_after)):
        mark = line(frame.x(radius), frame.bottom - 26, frame.x(radius), frame.bottom, "radius")
        parts.append(f'<g class="{kind}"><title>radius {kind}: {small(radius)}</title>{mark}</g>')
    return svg(frame.bottom + 42, f"Feature norms before and after averaging, {theory_name(e)}, {setting(e)}", parts)


def class_gains(e: Theory) -> str:
    """Bars from the class that gained most to the one that lost most."""
    ranked = sorted(e.classes, key=lambda gain: -gain.mean)
    if not ranked:
        return ""
    between = len(ranked) - _MANY
    shown: list[Gain | None] = list(ranked)
    if between > 1:
        shown = [*ranked[: _MANY // 2], None, *ranked[-_MANY // 2 :]]
    scale = fit_scale([0.0, *(100 * (g.mean + s * g.ci95) for g in ranked for s in (-1, 1))], 5, signed=True)
    left, row, top = 128, 17, 4
    bottom = top + row * len(shown) + 2

    def x(value: float) -> float:
        return left + scale.share(value) * (WIDTH - left - 14)

    parts = []
    for value, tick in scale.ticks():
        parts.append(line(x(value), 0, x(value), bottom, "zero" if value == 0 else "grid"))
        parts.append(label(x(value), bottom + 15, tick))
    parts.append(label((left + WIDTH) / 2, bottom + 32, "points against no views"))
    for place, gain in enumerate(shown):
        y = top + row * place
        if gain is None:
            parts.append(label(left - 8, y + 13, f"… {between} more …", anchor="end"))
            continue
        start, end = sorted((x(0), x(100 * gain.mean)))
        name = gain.name if len(gain.name) <= 15 else f"{gain.name[:14]}…"
        parts.append(
            f'<g class="{"rise" if gain.mean > 0 else "fall"}"><title>{text(gain.name)}: {points(gain)}</title>'
            + label(left - 8, y + 13, name, anchor="end")
            + f'<rect class="bar" x="{start:.1f}" y="{y + 3}" width="{max(end - start, 0.5):.1f}" height="{row - 6}"/>'
            + flat_whisker(y + row / 2, x(100 * (gain.mean - gain.ci95)), x(100 * (gain.mean + gain.ci95))).replace(
                "whisker", "whisker thin"
            )
            + "</g>"
        )
    return svg(bottom + 40, f"Gain by class with 95 % intervals, {theory_name(e)}, {setting(e)}", parts)


def simulation_plot(simulations: Sequence[Simulation]) -> str:
    """The probability of a smaller radius against ½, a dot per number of views."""
    if not simulations:
        return ""
    counts = sorted({s.views for s in simulations})
    marks = {k: f"g{place % 6}" for place, k in enumerate(counts)}
    parts, top = legend([Key(f"K = {k}", marks[k]) for k in counts], 0)
    names = list(dict.fromkeys(s.distribution for s in simulations))
    row, edge = 42, 14
    bottom = top + row * len(names) + 2
    scale = Scale(0, 1, 0.25)

    def x(value: float) -> float:
        return edge + scale.share(value) * (WIDTH - 2 * edge)

    for value, tick in scale.ticks():
        parts.append(line(x(value), top, x(value), bottom, "zero" if value == 0.5 else "grid"))
        parts.append(label(x(value), bottom + 15, tick.rstrip("0").rstrip(".") or "0"))
    parts.append(label(WIDTH / 2, bottom + 32, "P(smaller radius); the paper: more than 0.5"))
    for place, name in enumerate(names):
        of_name = [s for s in simulations if s.distribution == name]
        y = top + row * place
        parts.append(label(edge, y + 14, f"{name} ({of_name[0].assumption})", "label", "start"))
        parts.append(line(edge, y + row - 3, WIDTH - edge, y + row - 3, "row"))
        for s in of_name:
            at = y + 26 + 5 * (counts.index(s.views) - (len(counts) - 1) / 2)
            told = f"{name}, K = {s.views}: {s.probability:.3f} ± {s.ci95:.3f}"
            parts.append(
                f'<g class="{marks[s.views]}"><title>{text(told)}</title>'
                + flat_whisker(at, x(max(0.0, s.probability - s.ci95)), x(min(1.0, s.probability + s.ci95)))
                + f"{dot(x(s.probability), at, marks[s.views])}</g>"
            )
    return svg(bottom + 40, "Simulated probability that averaging lowers the radius", parts)
