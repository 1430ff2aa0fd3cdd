"""Tables of section 4: risk, radius and complexity, what the views are like, and the simulated radius claim."""

from __future__ import annotations

from collections.abc import Sequence

from onesdaug.report.panels import generator_mark
from onesdaug.report.records import Gain, Simulation, Theory
from onesdaug.report.result import StudyResult
from onesdaug.report.strings import percent, points, setting, signed, small, theory_name
from onesdaug.report.table import Entry, Line, Table
from onesdaug.statistics import Summary

COLUMN = "classifier and generator"


def theory_tables(result: StudyResult) -> list[Table]:
    if not result.theory:
        return []
    gaps = [_gap(result.theory)] if all(entry.gap for entry in result.theory) else []
    return [_risk(result.theory), _radius(result.theory), *gaps, _views(result.theory)]


def _table(
    title: str, columns: Sequence[str], entries: Sequence[Theory], rows: Sequence[Sequence[str]], note: str
) -> Table:
    """What all entries share stands in the title, else beside each name."""
    settings = list(dict.fromkeys(setting(e) for e in entries))
    alone = len(settings) == 1
    lines = []
    for entry, row in zip(entries, rows, strict=True):
        name = theory_name(entry) if alone else f"{theory_name(entry)}, {setting(entry)}"
        lines.append(Line(name, tuple(Entry(value) for value in row), generator_mark(entry.generator)))
    return Table(f"{title} ({settings[0]})" if alone else title, (COLUMN, *columns), tuple(lines), note)


def _risk(entries: Sequence[Theory]) -> Table:
    rows = [(points(e.gain), _term(e.accuracy_gap), _term(e.diversity), _term(e.risk_difference)) for e in entries]
    columns = ("measured gain, points", "accuracy gap", "diversity term", "sum: change of risk")
    note = (
        "Accuracy gap + diversity term = change of the vote's squared risk, all times 100; a fall is good. "
        f"Measured on its own, the right side differs from the left by at most {max(e.residual for e in entries):.1g}."
    )
    return _table("Risk", columns, entries, rows, note)


def _term(summary: Summary) -> str:
    return f"{signed(100 * summary.mean)} ± {percent(summary.ci95)}"


def _radius(entries: Sequence[Theory]) -> Table:
    rows = [
        (
            _change(e.radius_before, e.radius_after),
            percent(e.classes_shrunk, 1),
            percent(e.images_shrunk, 1),
            _change(e.complexity_before, e.complexity_after),
            _change(e.bound_before, e.bound_after),
        )
        for e in entries
    ]
    columns = ("radius r", "classes whose r fell, %", "images whose norm fell, %", "complexity", "bound B·r/√m")
    note = "Before → after averaging with the views. Complexity: the empirical Rademacher complexity, by Monte Carlo."
    return _table("Radius and complexity", columns, entries, rows, note)


def _gap(entries: Sequence[Theory]) -> Table:
    rows = [
        (
            _change(e.gap.before, e.gap.after),
            _change(e.gap.complexity_before, e.gap.complexity_after),
            _change(e.gap.radius_before, e.gap.radius_after),
        )
        for e in entries
        if e.gap is not None
    ]
    columns = ("gap E sup (L - L̂)", "bound 2·E[complexity]", "bound 2B·E[r]/√m")
    note = (
        "The third proposition with the linear loss -y·f, B = 1: samples of 50 images of two classes, the same ones "
        "before → after averaging with the views."
    )
    return _table("Generalisation gap", columns, entries, rows, note)


def _change(before: float, after: float) -> str:
    return f"{small(before)} → {small(after)}"


def _views(entries: Sequence[Theory]) -> Table:
    rows = [
        (
            f"{percent(e.view_accuracy)} ({percent(e.original_accuracy)})",
            percent(e.disagreement),
            f"{percent(e.agreement.mean)} ({percent(e.original_agreement.mean)})",
            _unit(e.cosine),
            "–" if e.view_diversity is None else _unit(e.view_diversity),
        )
        for e in entries
    ]
    columns = (
        "one view alone, %",
        "answers otherwise, %",
        "nearest to its class, %",
        "cosine to original",
        "diversity",
    )
    note = "In brackets: the originals. Diversity: how far views of one image lie apart, as 1 - cosine."
    return _table("What the views are like", columns, entries, rows, note)


def _unit(summary: Summary) -> str:
    return f"{summary.mean:.3f} ± {summary.ci95:.3f}"


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
