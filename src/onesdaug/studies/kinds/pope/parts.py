"""What is shown of a study of one's own model on POPE's photographs."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from onesdaug.report.parts import Folded, InText, Note, OnPage, Part, Plot
from onesdaug.report.plot import Dot, dot_rows
from onesdaug.report.records import Answer
from onesdaug.report.result import StudyResult
from onesdaug.report.strings import of_gain, percent, seconds, signed
from onesdaug.report.table import Entry, Line, Table, generator_mark
from onesdaug.studies.kinds.pope.answers import answer_table
from onesdaug.studies.kinds.pope.worse import TOLD
from onesdaug.studies.spec import BASELINE

RULES = {"vote": "vote", "margin": "mean margin"}
Worse = Sequence[Mapping[str, Any]]


def rows_parts(result: StudyResult) -> Iterator[Part]:
    found = result.details
    yield Note(
        f"The threshold (a margin of {signed(found['shift'])}, of all rows but the tuned) and the tuned rows were set "
        f"on {found['calibrated_on']} photographs; every number is of the other {found['reported_on']}. Intervals "
        "resample photographs."
    )
    none = {(c["row"], c["generator"], c["rule"], c["k"]) for c in found["tuned"] if c["share"] is None}
    for split in dict.fromkeys(answer.split for answer in result.answers):
        mine = [answer for answer in result.answers if answer.split == split]
        yield split_table(split, mine, none)
        most = max(answer.k for answer in mine)
        drawn = [answer for answer in mine if answer.k in (0, most) and _place(answer) not in none]
        full = answer_table([_named(answer) for answer in drawn])
        if full is not None:
            yield Folded(f"{split}, K = {most}: all metrics", (full,))
    yield from filter(
        None, [tuned_table(found["tuned"]), seconds_table(found["seconds"]), paper_table(found["paper"])]
    )
    if found["worse"]:
        yield OnPage(Plot("Photographs made worse: what views add", partial(worse_plot, found["worse"])))
        yield InText(worse_table(found["worse"]))


def _place(answer: Answer) -> tuple[str, str, str, int]:
    return answer.row, answer.generator, answer.rule, answer.k


def _name(label: str, generator: str) -> str:
    return f"{generator}, {label}" if generator else label


def _named(answer: Answer) -> Answer:
    rule = f", {RULES[answer.rule]}" if answer.rule else ""
    return answer.model_copy(update={"method": _name(answer.method, answer.generator) + rule, "decoding": ""})


def _mark(row: str, generator: str) -> str:
    return generator_mark(generator) if generator else "traditional" if "traditional" in row else generator_mark(row)


def split_table(split: str, answers: Sequence[Answer], none: Container[Any] = ()) -> Table:
    """A line for each source, a column for each rule and K: the gain, beneath it the accuracy; `none`: no views."""
    plain = next(answer for answer in answers if answer.row == BASELINE)
    columns = list(dict.fromkeys((answer.rule, answer.k) for answer in answers if answer.row != BASELINE))
    first = Entry(f"{percent(plain.accuracy.mean)} ± {percent(plain.accuracy.ci95)} %", (f"F1 {percent(plain.f1)}",))
    lines = [Line("no views", (first, *[Entry()] * (len(columns) - 1)), "baseline")]
    rows: dict[tuple[str, str], dict[tuple[str, int], Answer]] = {}
    for answer in answers:
        if answer.row != BASELINE:
            rows.setdefault((answer.row, answer.generator), {})[answer.rule, answer.k] = answer
    for (row, generator), cells in rows.items():
        entries = [Entry("no views") if _place(c) in none else _cell(c) for c in map(cells.__getitem__, columns)]
        lines.append(Line(_name(next(iter(cells.values())).method, generator), tuple(entries), _mark(row, generator)))
    heads = ("views", *(f"{RULES[rule]}, K = {k}" for rule, k in columns))
    note = f"{plain.accuracy.n:,} questions. Points against no views, paired, with 95 % intervals; beneath, accuracy."
    note += " A vote of the original and one view is a tie, which the original decides." * (("vote", 1) in columns)
    note += ' "no views": what the tuned row chose.' * any(_place(answer) in none for answer in answers)
    return Table(f"POPE, {split}", heads, tuple(lines), note)


def _cell(answer: Answer) -> Entry:
    gain = of_gain(answer.gain)
    return Entry(gain.value, (f"{percent(answer.accuracy.mean)} %",), gain.mark)


def tuned_table(choices: Worse) -> Table | None:
    """Those that chose views; of the others, how many they are."""
    lines = [
        (
            f"{_name(c['row'], c['generator'])}, {RULES[c['rule']]}, K = {c['k']}",
            c["settings"],
            f"{c['share']:g}",
            "" if c.get("shift") is None else signed(c["shift"]),
            f"{signed(100 * (c['accuracy'] - c['plain']))}",
        )
        for c in choices
        if c["share"] is not None
    ]
    heads = ("", "chosen", "share of the original", "threshold", "gain there, points")
    note = (
        "Chosen for the highest accuracy on the photographs that the threshold was set on: that gain is flattered. "
        "The threshold of mean margins is chosen with the share, because views may lower every margin alike. "
        f"No views were best there for {len(choices) - len(lines)} of {len(choices)}."
    )
    return Table.of_text("Tuned", heads, lines, note) if choices else None


def seconds_table(found: Worse) -> Table | None:
    lines = [(f"{_name(f['label'], f['generator'])}, K = {f['k']}", seconds(f["seconds"])) for f in found]
    note = "The median photograph, its views drawn and looked at once, shared by all questions about it."
    return Table.of_text("Time", ("views", "per question"), lines, note) if lines else None


def paper_table(rows: Sequence[tuple[str, float, float]]) -> Table | None:
    lines = [(method, f"{accuracy:.2f}", f"{f1:.2f}") for method, accuracy, f1 in rows]
    note = "Another model, its own pictures, sampled answers: beside the rows above, not to be compared with them."
    return Table.of_text("The paper, adversarial split", ("", "accuracy, %", "F1, %"), lines, note) if lines else None


def worse_plot(found: Worse) -> str:
    """One figure: a row for each way and strength, with the accuracy without views; dots are the gains of views."""
    rows: dict[str, list[Dot]] = {}
    marks: dict[str, str] = {}
    for f in found:
        name, mark = _name(f["label"], f["generator"]), _mark(f["row"], f["generator"])
        if not f["drawn"]:
            continue
        marks.setdefault(name, mark)
        second = name != next(known for known, other in marks.items() if other == mark)
        told = f"{signed(100 * f['gain'])} ± {100 * f['ci95']:.2f} ({name})"
        dot = Dot(100 * f["gain"], told, mark, 100 * f["ci95"], second)
        rows.setdefault(_condition(f) + f": {percent(f['accuracy'], 1)} % without views", []).append(dot)
    name = "What views add to accuracy on photographs made worse, with 95 % intervals"
    return dot_rows(name, list(rows.items()), list(marks.items()))


def worse_table(found: Worse) -> Table:
    names = list(dict.fromkeys(_name(f["label"], f["generator"]) for f in found))
    lines: dict[str, dict[str, Entry]] = {}
    for f in found:
        line = lines.setdefault(_condition(f), {"no views": Entry(percent(f["accuracy"]))})
        entry = Entry(f"{signed(100 * f['gain'])} ± {100 * f['ci95']:.2f}", mark=_direction(f["gain"], f["ci95"]))
        line[_name(f["label"], f["generator"])] = entry if f["drawn"] else Entry("no views")
    made = [Line(name, tuple(cells.get(c, Entry()) for c in ("no views", *names))) for name, cells in lines.items()]
    note = "All splits together, mean margin. Accuracy in % without views, then what views add, in points."
    return Table("Photographs made worse", ("", "no views", *names), tuple(made), note)


def _condition(found: Mapping[str, Any]) -> str:
    return TOLD[found["kind"]].format(found["strength"]) if found["kind"] else "as they are"


def _direction(gain: float, ci95: float) -> str:
    return "" if abs(gain) <= ci95 else "up" if gain > 0 else "down"
