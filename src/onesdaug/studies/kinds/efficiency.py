"""Seconds per image over noise level and solver, one at a time as the paper has it and many at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import torch
from pydantic import Field

from onesdaug.augment.config import preset
from onesdaug.augment.engine import Engine
from onesdaug.augment.operator import Augmenter, default_preset
from onesdaug.common.clock import Timed, repeat
from onesdaug.common.devices import peak_memory_mb, reset_peak_memory
from onesdaug.common.progress import log
from onesdaug.report.figures import DASHED, Chart, Values, drawn, look, looks
from onesdaug.report.parts import Part, Plot, SideBySide
from onesdaug.report.records import Spread, Timing
from onesdaug.report.result import StudyResult
from onesdaug.report.strings import seconds
from onesdaug.report.table import Entry, Line, Table, generator_mark
from onesdaug.studies.context import StudyContext
from onesdaug.studies.kind import Findings, StudyKind
from onesdaug.studies.spec import SpecModel, Study

WARM_UP = 3  # the first call chooses kernels, the second records a graph where there are any


class Speed(SpecModel):
    """The timing grid: every solver at every noise level."""

    solvers: tuple[tuple[str, int], ...]  # name, steps
    noise_levels: tuple[float, ...]
    repeats: int = Field(25, ge=20)  # fewer make a median that is mostly noise
    paper: dict[str, float] = Field(default_factory=dict)  # "ddpm 0.25" -> seconds


class EfficiencyStudy(Study):
    speed: Speed


class Kind(StudyKind[EfficiencyStudy]):
    spec = EfficiencyStudy

    def run(self, study: EfficiencyStudy, context: StudyContext, output: Path) -> Findings:
        """Every generator that is there, and one line for each that is not."""
        found: list[Timing] = []
        generators, problems = context.generators_here(study)
        for generator in generators:
            for solver, steps in study.speed.solvers:
                for level in study.speed.noise_levels:
                    settings = {"solver": solver, "steps": steps, "noise_level": level, "noise_map": "strength"}
                    config = preset(default_preset(generator), **settings)
                    with context.timed("timing"):
                        timing = measure(context.augmenter(generator, config), Path(generator).name, study.speed)
                    log.info(f"{generator}, {solver}, noise {level:g}: {timing.seconds:.4f} s")
                    found.append(timing)
        return {"timings": tuple(found), "missing": tuple(problems)}

    def show(self, result: StudyResult) -> Iterator[Part]:
        yield from filter(None, [timing_table(result.timings)])
        yield SideBySide((Plot("", partial(time_plot, result.timings)),))


def time_views(
    augmenter: Augmenter, images: torch.Tensor, seconds: float = 0.0, k: int = 1, warm_ups: int = 1, least: int = 1
) -> Timed:
    """Calls of the whole operator; images are known by name, and each call's seeds are others."""
    number = iter(range(10**9))

    def call() -> torch.Tensor:
        turn = next(number)
        return augmenter.tensors(images, k, seeds=[f"{turn}:{i}" for i in range(len(images))])

    return repeat(call, augmenter.device, seconds, warm_ups=warm_ups, least=least)


def measure(augmenter: Augmenter, generator: str, speed: Speed) -> Timing:
    """Images lie on the device already, as those of a running service do; views stay there.

    One at a time a GPU waits for launches, so the time says more about the host than about the work; replayed from
    CUDA graphs it does not.
    """
    side, device = int(augmenter.side or 0), augmenter.device
    images = torch.rand((augmenter.batch_size, 3, side, side), generator=torch.Generator().manual_seed(0)).to(device)
    reset_peak_memory(device)
    eager = time_views(augmenter, images[:1], warm_ups=WARM_UP, least=speed.repeats)
    memory, graphs = peak_memory_mb(device), None
    many = time_views(augmenter, images, warm_ups=WARM_UP, least=3)
    if device.type == "cuda":
        single = Augmenter(augmenter.generator, augmenter.config, batch_size=1)
        single.stages.engine = Engine(device=device, graphs=True)
        graphs = time_views(single, images[:1], warm_ups=WARM_UP, least=speed.repeats)
    return to_timing(augmenter, generator, speed, eager, len(images), many.median, memory, graphs)


def to_timing(
    augmenter: Augmenter,
    generator: str,
    speed: Speed,
    eager: Timed,
    batch: int,
    batch_seconds: float,
    memory: float,
    graphs: Timed | None = None,
) -> Timing:
    """The record of what was timed; `batch_seconds` are those of the whole batch."""
    config, table = augmenter.config, augmenter.table
    assert table is not None  # there is a generator
    return Timing(
        generator=generator,
        solver=config.solver,
        steps=config.steps,
        noise_level=config.noise_level,
        steps_run=len(table),
        eager=Spread.of(eager.each),
        graphs=None if graphs is None else Spread.of(graphs.each),
        batch=batch,
        batch_seconds=batch_seconds / batch,
        peak_memory_mb=memory,
        paper=speed.paper.get(f"{config.solver} {config.noise_level:g}"),
    )


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
