"""Tables of seconds per view, and of answers to yes/no questions."""

from __future__ import annotations

from collections.abc import Sequence

from onesdaug.report.panels import generator_mark
from onesdaug.report.strings import paper, percent, seconds
from onesdaug.report.tabular import Entry, Line, Table, of_accuracy, of_gain
from onesdaug.studies.result import Answer, Paper, Timing


def timing_table(timings: Sequence[Timing]) -> Table | None:
    """Noise levels across, as the paper prints them; a line for each generator and solver."""
    if not timings:
        return None
    levels = sorted({t.noise_level for t in timings})
    lines = []
    for generator, solver, steps in dict.fromkeys((t.generator, t.solver, t.steps) for t in timings):
        mine = {t.noise_level: t for t in timings if (t.generator, t.solver, t.steps) == (generator, solver, steps)}
        memory = max(t.peak_memory_mb for t in mine.values())
        entries = (*(_timing(mine.get(level)) for level in levels), Entry(f"{memory:,.0f}"))
        lines.append(Line(f"{generator}, {solver}, {steps} steps", entries, generator_mark(generator)))
    for solver in dict.fromkeys(t.solver for t in timings if t.paper is not None):
        known = {t.noise_level: t.paper for t in timings if t.solver == solver and t.paper is not None}
        quoted = (Entry(seconds(known[level])) if level in known else Entry() for level in levels)
        lines.append(Line(f"the paper, {solver}", (*quoted, Entry()), "quoted"))
    calls = " or ".join(str(n) for n in sorted({t.eager.calls for t in timings}))
    note = f"Time per image, one at a time: the median of {calls} calls, beneath it the quartiles. "
    if any(t.graphs is not None for t in timings):
        note += (
            "Launched kernel by kernel a GPU waits for the host: such a time is a property of the host. Replayed from "
            "CUDA graphs it is the work's. "
        )
    note += "Then the time with as many at once as stand in brackets, and the steps run. "
    if any(t.paper is not None for t in timings):
        note += "The paper's seconds are Stable Diffusion's at 512 × 512 pixels on an RTX A5000."
    return Table(
        "",
        ("generator and solver", *(f"noise {level:g}" for level in levels), "peak memory, MB"),
        tuple(lines),
        note.strip(),
    )


def _timing(t: Timing | None) -> Entry:
    if t is None:
        return Entry()
    steps = f"{t.steps_run} step{'s' * (t.steps_run != 1)}"
    notes = [f"{seconds(t.eager.low)} – {seconds(t.eager.high)}"]
    if t.graphs is not None:
        notes += [f"graphs {seconds(t.graphs.median)}", f"{seconds(t.graphs.low)} – {seconds(t.graphs.high)}"]
    return Entry(seconds(t.seconds), (*notes, f"{seconds(t.batch_seconds)} ({t.batch})", steps))


def answer_table(answers: Sequence[Answer]) -> Table | None:
    if not answers:
        return None
    lines = []
    for a in answers:
        entries = (
            of_accuracy(a.accuracy, _quoted(a.paper_accuracy)),
            of_gain(a.gain),
            Entry(percent(a.f1), _quoted(a.paper_f1)),
            Entry(f"{percent(a.precision)} / {percent(a.recall)}"),
            Entry(percent(a.yes_ratio), (f"{a.unknown:,} unclear",) if a.unknown else ()),
        )
        name = a.method if not a.k or str(a.k) in a.method else f"{a.method}, K = {a.k}"
        lines.append(Line(f"{name}, {a.decoding}", entries, "baseline" if a.gain is None else "generative"))
    columns = ("method", "accuracy, %", "to no views, points", "F1, %", "precision / recall, %", "says yes, %")
    return Table("", columns, tuple(lines)).without_empty_columns()


def _quoted(value: Paper | None) -> tuple[str, ...]:
    return () if value is None else (f"paper {paper(value)}",)
