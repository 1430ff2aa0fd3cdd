"""How numbers came about, as names and values: once for page and document."""

from __future__ import annotations

from onesdaug.report.result import Made, StudyResult
from onesdaug.report.strings import data_name


def in_one_line(result: StudyResult) -> str:
    """What a reader wants to see beside a heading."""
    made = result.made
    where = made.machine.get("device", "")
    later = (f"{drawn_by(run)}: commit {run.commit}, {run.date}" for run in made.also)
    return " · ".join(part for part in (result.file, f"commit {made.commit}", made.date, where, *later) if part)


def drawn_by(run: Made) -> str:
    """Its generators, each once: "NAME, DATA" stands for settings of its own on a benchmark."""
    return ", ".join(dict.fromkeys(name.partition(",")[0] for name in run.generators))


def of_classifiers(result: StudyResult) -> list[tuple[str, str]]:
    """How each was trained and is scored; several that say the same are named together."""
    told: dict[str, list[str]] = {}
    for name, value in result.made.classifiers.items():
        told.setdefault(value, []).append(data_name(name))
    return [("; ".join(names), value) for value, names in told.items()]


def in_full(result: StudyResult) -> list[tuple[str, str]]:
    made = result.made
    pairs = [("file", result.file), ("command", made.command), ("commit", made.commit), ("date", f"{made.date} (UTC)")]
    pairs += made.machine.items()
    pairs += [(f"data: {data_name(name)}", value) for name, value in made.data.items()]
    pairs += [(f"encoder: {data_name(name)}", value) for name, value in made.encoders.items()]
    pairs += [(f"generator: {name}", value) for name, value in made.generators.items()]
    if made.seeds:
        pairs.append(("seeds", ", ".join(f"{name} {value}" for name, value in made.seeds.items())))
    if made.seconds:
        stages = ", ".join(f"{stage} {value:,.1f} s" for stage, value in made.seconds.items())
        pairs.append(("time", stages))
    return pairs + [pair for run in made.also for pair in _of_a_later_run(run)]


def _of_a_later_run(run: Made) -> list[tuple[str, str]]:
    names = drawn_by(run)
    pairs = [("command", run.command), ("commit", run.commit), ("date", f"{run.date} (UTC)"), *run.machine.items()]
    return [(f"{what}, for {names}", value) for what, value in pairs] + [
        (f"generator: {name}", told) for name, told in run.generators.items()
    ]


def heading(result: StudyResult) -> str:
    """The paper's table and the study's title; runs of one study are told apart."""
    place = "" if result.paper == "none" else f"{result.paper[:1].upper()}{result.paper[1:]}: "
    return f"{place}{result.title}" + (f" ({result.tag})" if result.tag else "")
