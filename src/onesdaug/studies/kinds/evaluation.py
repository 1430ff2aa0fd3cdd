"""What `onesdaug fewshot evaluate` leaves: accuracies on the episodes of one feature bank."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from onesdaug.common.provenance import command, commit, describe_machine
from onesdaug.errors import ConfigError
from onesdaug.fewshot.bank import FeatureBank
from onesdaug.fewshot.evaluate import Result
from onesdaug.report.figures import DASHED, SHAPES, Chart, drawn, look, standalone
from onesdaug.report.parts import Part
from onesdaug.report.plot import AGAINST_NONE, Dot, dot_rows
from onesdaug.report.records import Cell
from onesdaug.report.result import StudyResult
from onesdaug.report.strings import accuracy, of_accuracy, of_gain, p_value, points, relative
from onesdaug.report.table import Entry, Line, Table, generator_mark
from onesdaug.studies import document
from onesdaug.studies.kind import StudyKind
from onesdaug.studies.kinds.demo.banks import TRADITIONAL
from onesdaug.studies.provenance import made_now
from onesdaug.studies.spec import Study

ABOUT = "N-way K-shot episodes of stored features, with 95 % intervals and the paired gain over the baseline."


class Kind(StudyKind[Study]):
    """Only shown: the command runs it, there is no file for it."""

    spec = Study

    def show(self, result: StudyResult) -> Iterator[Part]:
        rows: dict[tuple[int, int], list[tuple[Cell, float]]] = {}
        known = result.details.get("drawn") or [cell.query for cell in result.cells]  # older files do not count them
        for cell, views in zip(result.cells, known, strict=True):
            rows.setdefault((cell.shot, cell.accuracy.n), []).append((cell, views))
        lines = []
        for (shot, episodes), cells in rows.items():
            lines.append(Line(f"{result.details['way']}-way {shot}-shot, {episodes} episodes"))
            lines += [_line(cell, views) for cell, views in cells]
        yield Table(result.title, ("views", "accuracy", "gain", "relative", "p"), tuple(lines))


def as_text(result: StudyResult, ending: str) -> str:
    """The result as `.json`, which `onesdaug report` reads, its table as `.csv` or `.tex`, or its plot as `.svg`."""
    if ending == ".csv":
        return document.csv([result])
    if ending == ".svg":
        return drawing(result)
    return document.latex([result]) if ending == ".tex" else result.model_dump_json(indent=1) + "\n"


def drawing(result: StudyResult) -> str:
    """An SVG of its own: the gain of each row, or accuracy over the number of views where that has many values."""
    gains = [cell for cell in result.cells if cell.gain is not None]
    if not gains:
        raise ConfigError("nothing to draw: no views were compared with the baseline on two episodes or more")
    if len({cell.support for cell in gains if cell.support == cell.query}) > 1:
        return standalone(_curve(result))
    rows = [
        (
            f"{cell.shot}-shot, {cell.support} support, {cell.query} query views",
            [Dot(100 * cell.gain.difference, points(cell.gain), _mark(cell), 100 * cell.gain.ci95)],
        )
        for cell in gains
        if cell.gain is not None
    ]
    base = result.cells[0]
    against = f"percentage points against {base.label}" if base.query else AGAINST_NONE
    return standalone(dot_rows(f"Paired gain with 95 % intervals, {result.title}", rows, across=against))


@drawn
def _curve(result: StudyResult) -> Chart:
    """A line for each shot; no views stand at 0, another baseline is a line across."""
    chart = Chart(f"Accuracy over the number of views, {result.title}", 190, "views per image", "accuracy, %")
    for place, shot in enumerate(dict.fromkeys(cell.shot for cell in result.cells)):
        base, *others = [cell for cell in result.cells if cell.shot == shot]
        style, level = look(_mark(others[0]), SHAPES[place % len(SHAPES)]), 100 * base.accuracy.mean
        cells = others if base.query else [base, *others]
        x, y = [cell.query for cell in cells], [100 * cell.accuracy.mean for cell in cells]
        chart.axes.set_xticks(sorted({0, *x}))
        chart.line(f"{shot}-shot", style, x, y)
        half = [100 * (cell.gain.ci95 if cell.gain is not None else cell.accuracy.ci95) for cell in cells]
        chart.dots(style, x, y, [f"{shot}-shot, {c.query} views: {accuracy(c.accuracy)} %" for c in cells], yerr=half)
        across = {**style, "marker": "", "linestyle": DASHED["linestyle"], "linewidth": 1}
        chart.line(f"{shot}-shot, {base.label}", across, [0, max(x)], [level, level])
    return chart


def _mark(cell: Cell) -> str:
    return "traditional" if cell.kind == "traditional" else generator_mark(cell.label)


def _line(cell: Cell, views: float) -> Line:
    """Without a gain it is the baseline, or there was a single episode; `views`: those that a query took."""
    queried = str(cell.query) if views == cell.query else f"{views:.2f} of {cell.query}"
    name = f"{cell.support} support, {queried} query views"
    gain = cell.gain
    if gain is None:
        told = Entry(cell.label) if cell.kind == "baseline" else Entry()
        return Line(name, (of_accuracy(cell.accuracy), told, Entry(), Entry()), cell.kind)
    told_gain = (of_gain(gain), Entry(relative(gain.relative_gain)), Entry(p_value(gain.p_value)))
    return Line(name, (of_accuracy(cell.accuracy), *told_gain), cell.kind)


def to_result(
    results: Sequence[Result], banks: Mapping[Path, FeatureBank], head: Mapping[str, Any], seconds: float
) -> StudyResult:
    """`banks`: the one that was scored and, where the gains are over another, that; each with its file."""
    (file, bank), *baseline = banks.items()
    summaries = [{"file": str(path), **each.info.summary()} for path, each in banks.items()]
    task, source = results[0].task, str(bank.info.views["source"])
    made = made_now(
        command(),
        commit(),
        describe_machine(torch.device("cpu")),
        {"evaluation": seconds},
        task.seed,
        seeds={"episodes": task.seed},
    )
    return StudyResult(
        study="evaluation",
        kind="evaluation",
        title=f"{file.name} · {head['name']} · {source} views",
        paper="none",
        about=ABOUT,
        made=made,
        cells=tuple(
            _cell(result, bank, str(head["name"]), baseline[0][0].name if baseline else "baseline")
            for result in results
        ),
        details={
            "bank": summaries[0],
            "baseline": summaries[1] if baseline else None,
            "head": dict(head),
            "way": task.way,
            "episodes": [result.episodes for result in results],
            "drawn": [result.use.query if result.baseline else result.drawn for result in results],
        },
    )


def _cell(result: Result, bank: FeatureBank, head: str, baseline: str) -> Cell:
    source = str(bank.info.views["source"])
    return Cell(
        data=bank.info.data,
        classifier=head,
        shot=result.task.shot,
        row="none" if result.baseline else source,
        label=baseline if result.baseline else source,
        kind="baseline" if result.baseline else "traditional" if source in TRADITIONAL else "generative",
        support=result.use.support,
        query=result.use.query,
        original_weight=result.use.original_weight,
        accuracy=result.accuracy,
        gain=result.gain,
    )
