"""What `onesdaug tune` leaves: the answer, gain against cost of all that was tried, gain over weight and K."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from onesdaug.report.figures import DASHED, ZERO, Chart, drawn, look, looks
from onesdaug.report.parts import Bullets, InText, Note, OnPage, Part, Plot, SideBySide
from onesdaug.report.plot import AGAINST_NONE
from onesdaug.report.result import StudyResult
from onesdaug.report.table import Entry, Line, Table, generator_mark
from onesdaug.studies.kind import StudyKind
from onesdaug.studies.kinds.demo.banks import TRADITIONAL
from onesdaug.studies.spec import Study

Task = Mapping[str, Any]


class Kind(StudyKind[Study]):
    """Only shown: the command runs it, there is no file for it."""

    spec = Study

    def show(self, result: StudyResult) -> Iterator[Part]:
        found = result.details
        yield Bullets(tuple(found["answer"]))
        for task in found["tasks"]:
            yield _table(task)
        yield OnPage(SideBySide(tuple(_plots(found["tasks"]))))
        yield from (InText(Note(note)) for note in result.notes)  # pages show them for every kind


def _best(finalist: Mapping[str, Any]) -> Mapping[str, Any]:
    best: Mapping[str, Any] = max(finalist["uses"], key=lambda use: use["gain"])
    return best


def _table(task: Task) -> Table:
    lines = [Line("no views", (Entry(f"{100 * task['accuracy']:.2f} %"), *[Entry()] * 3), "baseline")]
    for finalist in sorted(task["finalists"], key=lambda f: -_best(f)["gain"]):
        use, seconds = _best(finalist), finalist["seconds_per_image"]
        how = f"K = {use['query']}, weight {use['original_weight']:g}"
        how += ", length 1" * use["normalise"] + ", most alike" * (use["select"] != "all")
        gain = Entry(f"{100 * use['gain']:+.2f} ± {100 * use['ci95']:.2f}", mark=_mark(use))
        cost = Entry(f"{seconds:.2g}") if seconds else Entry()
        accuracy = Entry(f"{100 * (task['accuracy'] + use['gain']):.2f} %")
        lines.append(Line(finalist["label"], (accuracy, gain, Entry(how), cost), _colour(finalist["source"])))
    note = (
        "The gains are those of the best use of each source on the very data it was chosen on, so rather too high; "
        f"the answer's is nested: {100 * task['gain']['difference']:+.2f} ± {100 * task['gain']['ci95']:.2f}."
    )
    return Table(task["name"], ("views", "accuracy", "points", "best use", "s per image"), tuple(lines), note)


def _mark(use: Mapping[str, Any]) -> str:
    return "up" if use["gain"] > use["ci95"] else "down" if -use["gain"] > use["ci95"] else ""


def _colour(source: str) -> str:
    return "traditional" if source in TRADITIONAL else generator_mark(source)


def _plots(tasks: Sequence[Task]) -> Iterator[Plot]:
    for task in tasks:
        yield Plot(f"{task['name']}: gain against cost", partial(cost_plot, task))
        winner = max(task["finalists"], key=lambda f: _best(f)["gain"])
        yield Plot(f"{task['name']}: {winner['label']}", partial(weight_plot, task["name"], winner))


@drawn
def cost_plot(task: Task) -> Chart | None:
    """A dot for each source whose cost is known; the line joins those that nothing cheaper beats.

    Views that an earlier run left have no cost here.
    """
    known = [finalist for finalist in task["finalists"] if finalist["seconds_per_image"]]
    spots = sorted((f["seconds_per_image"], 100 * _best(f)["gain"], f["label"], f["source"]) for f in known)
    if not spots:
        return None
    chart = Chart(f"Gain against cost, {task['name']}", 190, "seconds per image", AGAINST_NONE, signed="y")
    chart.axes.update_datalim([(0, 0)])
    chart.axes.axhline(0, **ZERO)
    front = [spot for i, spot in enumerate(spots) if all(spot[1] > other[1] for other in spots[:i])]
    chart.axes.plot([spot[0] for spot in front], [spot[1] for spot in front], **DASHED)
    sources = list(dict.fromkeys(spot[3] for spot in spots))
    for source, style in zip(sources, looks([_colour(name) for name in sources], line=False), strict=True):
        mine = [spot for spot in spots if spot[3] == source]
        chart.keys[source] = style
        told = [f"{label}: {gain:+.2f} points, {seconds:.2g} s" for seconds, gain, label, _ in mine]
        chart.dots(style, [spot[0] for spot in mine], [spot[1] for spot in mine], told)
    return chart


@drawn
def weight_plot(task: str, finalist: Mapping[str, Any]) -> Chart | None:
    """Gain over the original's weight, a line for each number of views."""
    plain = [use for use in finalist["uses"] if not use["normalise"] and use["select"] == "all"]
    counts = sorted({use["query"] for use in plain})
    chart = Chart(f"Gain over the original's weight, {task}", 190, "weight of the original", AGAINST_NONE, signed="y")
    chart.axes.axhline(0, **ZERO)
    for place, count in enumerate(counts):
        line = [use for use in plain if use["query"] == count]
        x, y = [use["original_weight"] for use in line], [100 * use["gain"] for use in line]
        style = look(("g0", "g1", "g2", "g4")[place % 4])
        name = f"K = {count}"
        chart.line(name, style, x, y)
        told = [f"{name}, weight {use['original_weight']:g}: {100 * use['gain']:+.2f}" for use in line]
        chart.dots(style, x, y, told)
    return chart
