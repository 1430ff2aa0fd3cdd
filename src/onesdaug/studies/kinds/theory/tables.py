"""Tables of section 4: risk, radius and complexity, what the views are like, and the simulated radius claim."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from onesdaug.report.records import CONDITION_ALONE, Gain, Simulation, Theory
from onesdaug.report.result import StudyResult
from onesdaug.report.strings import data_name, percent, points, signed, small
from onesdaug.report.table import Entry, Line, Table, generator_mark
from onesdaug.statistics import Summary

Column = Callable[[Theory], str]
Described = tuple[str, dict[str, Column], str]


def theory_tables(result: StudyResult) -> list[Table]:
    entries = result.theory
    if not entries:
        return []
    gaps = [_table(*GAP, entries)] if all(entry.gap for entry in entries) else []
    off = (
        f"Measured on its own, the right side differs from the left by at most {max(e.residual for e in entries):.1g}."
    )
    risk = _table(*RISK, entries)
    return [risk.with_note(f"{risk.note} {off}"), _table(*RADIUS, entries), *gaps, _table(*VIEWS, entries)]


def theory_name(entry: Theory) -> str:
    how = entry.label if entry.label == CONDITION_ALONE else f"noise {entry.noise_level:g}"
    return f"{entry.classifier} · {entry.generator}, {how}"


def setting(entry: Theory) -> str:
    return f"{data_name(entry.data)}, {entry.shot}-shot, K = {entry.k}"


def _table(title: str, columns: Mapping[str, Column], note: str, entries: Sequence[Theory]) -> Table:
    """What all entries share stands in the title, else beside each name."""
    settings = list(dict.fromkeys(setting(e) for e in entries))
    alone = len(settings) == 1
    lines = []
    for entry in entries:
        name = theory_name(entry) if alone else f"{theory_name(entry)}, {setting(entry)}"
        values = tuple(Entry(column(entry)) for column in columns.values())
        lines.append(Line(name, values, generator_mark(entry.generator)))
    names = ("classifier and generator", *columns)
    return Table(f"{title} ({settings[0]})" if alone else title, names, tuple(lines), note)


def _term(summary: Summary) -> str:
    return f"{signed(100 * summary.mean)} ± {percent(summary.ci95)}"


def _change(before: float, after: float) -> str:
    return f"{small(before)} → {small(after)}"


def _unit(summary: Summary | None) -> str:
    return "–" if summary is None else f"{summary.mean:.3f} ± {summary.ci95:.3f}"


def _of_gap(before: str, after: str) -> Column:
    return lambda e: _change(getattr(e.gap, before), getattr(e.gap, after))


# title, columns with what stands in them, note
RISK: Described = (
    "Risk",
    {
        "measured gain, points": lambda e: points(e.gain),
        "accuracy gap": lambda e: _term(e.accuracy_gap),
        "diversity term": lambda e: _term(e.diversity),
        "sum: change of risk": lambda e: _term(e.risk_difference),
    },
    "Accuracy gap + diversity term = change of the vote's squared risk, all times 100; a fall is good.",
)
RADIUS: Described = (
    "Radius and complexity",
    {
        "radius r": lambda e: _change(e.radius_before, e.radius_after),
        "classes whose r fell, %": lambda e: percent(e.classes_shrunk, 1),
        "images whose norm fell, %": lambda e: percent(e.images_shrunk, 1),
        "complexity": lambda e: _change(e.complexity_before, e.complexity_after),
        "bound B·r/√m": lambda e: _change(e.bound_before, e.bound_after),
    },
    "Before → after averaging with the views. Complexity: the empirical Rademacher complexity, by Monte Carlo.",
)
GAP: Described = (
    "Generalisation gap",
    {
        "gap E sup (L - L̂)": _of_gap("before", "after"),
        "bound 2·E[complexity]": _of_gap("complexity_before", "complexity_after"),
        "bound 2B·E[r]/√m": _of_gap("radius_before", "radius_after"),
    },
    "The third proposition with the linear loss -y·f, B = 1: samples of 50 images of two classes, the same ones "
    "before → after averaging with the views.",
)
VIEWS: Described = (
    "What the views are like",
    {
        "one view alone, %": lambda e: f"{percent(e.view_accuracy)} ({percent(e.original_accuracy)})",
        "answers otherwise, %": lambda e: percent(e.disagreement),
        "nearest to its class, %": lambda e: f"{percent(e.agreement.mean)} ({percent(e.original_agreement.mean)})",
        "cosine to original": lambda e: _unit(e.cosine),
        "diversity": lambda e: _unit(e.view_diversity),
    },
    "In brackets: the originals. Diversity: how far views of one image lie apart, as 1 - cosine.",
)


def simulation_table(simulations: Sequence[Simulation]) -> Table | None:
    """Distributions down, numbers of views across."""
    if not simulations:
        return None
    counts = sorted({s.views for s in simulations})
    lines = []
    for name in dict.fromkeys(s.distribution for s in simulations):
        of_name = {s.views: s for s in simulations if s.distribution == name}
        first = next(iter(of_name.values()))
        entries = [
            Entry(f"{of_name[k].probability:.3f} ± {of_name[k].ci95:.3f}") if k in of_name else Entry() for k in counts
        ]
        remark = f": {first.note}" if first.note else ""
        lines.append(Line(f"{name} · {first.assumption}{remark}", tuple(entries)))
    trials = " or ".join(f"{n:,}" for n in sorted({s.trials for s in simulations}))
    columns = ("features drawn from · originals and views are", *(f"P, K = {k}" for k in counts))
    note = f"P: the share of {trials} trials in which the radius fell; the paper claims more than ½."
    return Table("The radius claim, simulated", columns, tuple(lines), note)


def gain_table(gains: Sequence[Gain]) -> Table:
    """Gains by name: of classes, or of the images above and below the mean of a quantity."""
    lines = tuple(Line(gain.name, (Entry(points(gain)),)) for gain in gains)
    return Table("", ("images", "gain, points"), lines)
