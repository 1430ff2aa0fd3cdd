"""Rows of scores as records, and as a table."""

from __future__ import annotations

from collections.abc import Sequence

from onesdaug.report.records import Answer, Paper
from onesdaug.report.strings import of_accuracy, of_gain, p_value, paper, percent
from onesdaug.report.table import Entry, Line, Table
from onesdaug.statistics import Paired, Summary
from onesdaug.studies.kinds.pope.spec import PopeRow
from onesdaug.vlm.metrics import Estimate
from onesdaug.vlm.score import Score

_NOTE = (
    "In %; the gain in points, to no views in the same decoding; p by McNemar's exact test; ± is half of the 95 % "
    "interval over images."
)


def to_answer(measured: Score, method: str, k: int, paper: PopeRow | None = None) -> Answer:
    m = measured.metrics
    gain = None
    if measured.gain is not None and measured.gain.accuracy.value is not None:
        g = measured.gain
        gain = Paired(g.accuracy.value or 0.0, _half(g.accuracy), g.mcnemar_p, g.relative_accuracy or 0.0, g.n)
    return Answer(
        method=method,
        decoding=measured.decoding,
        k=k,
        accuracy=Summary(_value(m.accuracy), _half(m.accuracy), m.n),
        f1=_value(m.f1),
        precision=_value(m.precision),
        recall=_value(m.recall),
        yes_ratio=_value(m.yes_ratio),
        unknown=m.unknown,
        errors=m.errors,
        gain=gain,
        paper_accuracy=None if paper is None else Paper(value=paper.accuracy),
        paper_f1=None if paper is None else Paper(value=paper.f1),
    )


def _value(estimate: Estimate) -> float:
    return float("nan") if estimate.value is None else estimate.value


def _half(estimate: Estimate) -> float:
    """Half of the interval's width: it is nearly symmetric for thousands of questions."""
    if estimate.low is None or estimate.high is None:
        return float("nan")
    return (estimate.high - estimate.low) / 2


def answer_table(answers: Sequence[Answer]) -> Table | None:
    """One line per row, narrow enough for 100 columns; the decoding stands beside every number."""
    if not answers:
        return None
    lines = []
    for a in answers:
        counts = {"unclear": a.unknown, "errors": a.errors}
        entries = (
            of_accuracy(a.accuracy, _quoted(a.paper_accuracy)),
            of_gain(a.gain),
            Entry() if a.gain is None else Entry(p_value(a.gain.p_value)),
            Entry(percent(a.f1), _quoted(a.paper_f1)),
            Entry(percent(a.precision)),
            Entry(percent(a.recall)),
            Entry(percent(a.yes_ratio), tuple(f"{count:,} {what}" for what, count in counts.items() if count)),
        )
        name = ", ".join(filter(None, [a.method, a.decoding]))
        if a.paper_accuracy is None and str(a.k) not in a.method:  # the paper's names say it
            name = f"{name}, K={a.k}"
        lines.append(Line(name, entries, "baseline" if a.gain is None else "generative"))
    columns = ("method", "accuracy", "gain", "p", "F1", "prec.", "recall", "yes")
    return Table("", columns, tuple(lines), _NOTE).without_empty_columns()


def _quoted(value: Paper | None) -> tuple[str, ...]:
    return () if value is None else (f"paper {paper(value)}",)
