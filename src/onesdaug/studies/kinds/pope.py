"""The POPE table: `onesdaug pope` with the paper's settings, its rows beside the paper's."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from onesdaug.augment.config import preset
from onesdaug.common.provenance import describe_machine
from onesdaug.errors import OnesdaugError
from onesdaug.report.parts import Part
from onesdaug.report.records import Answer, Paper
from onesdaug.report.result import Made, StudyResult
from onesdaug.report.strings import of_accuracy, of_gain, p_value, paper, percent
from onesdaug.report.table import Entry, Line, Table
from onesdaug.statistics import Paired, Summary
from onesdaug.studies.context import Missing, StudyContext
from onesdaug.studies.kind import Findings, StudyKind
from onesdaug.studies.provenance import Facts
from onesdaug.studies.spec import SpecModel, Study
from onesdaug.vlm.metrics import Estimate
from onesdaug.vlm.model import find_model
from onesdaug.vlm.questions import check_images, read_questions
from onesdaug.vlm.run import Headline, Job, answer, results
from onesdaug.vlm.score import Score
from onesdaug.vlm.settings import Asking, Contrast

IMAGES = Path("coco") / "val2014"
HOW_IMAGES = "http://images.cocodataset.org/zips/val2014.zip (6 GB), unpacked to coco/val2014"
HOW_QUESTIONS = "output/coco of https://github.com/AoiDragon/POPE, put into pope"
SEED = 1234  # the paper's
_NOTE = (
    "In %; the gain in points, to no views in the same decoding; p by McNemar's exact test; ± is half of the 95 % "
    "interval over images."
)
PROMPT = "vcd"  # "our implementation, including the prompt and decoding, follows that of [VCD] exactly"


class PopeRow(SpecModel):
    """A row of the paper's table."""

    method: str
    k: int = 0
    vcd: bool = False
    accuracy: float
    f1: float


class PopeStudy(Study):
    pope: tuple[PopeRow, ...] = ()
    model: str = ""  # the vision-language model
    questions: str = ""  # its file of questions


class Kind(StudyKind[PopeStudy]):
    spec = PopeStudy

    def facts(self, study: PopeStudy, context: StudyContext) -> Facts:
        return Facts()  # the run's own files say all of it

    def run(self, study: PopeStudy, context: StudyContext, output: Path) -> Findings:
        """Ask the model, or say all that is missing."""
        if lines := _absent(study, context):
            return {"missing": tuple(lines)}
        try:
            job = _job(study, context)
            records = answer(job)
        except OnesdaugError as error:  # the generator's weights are looked for where they are loaded
            return {"missing": (" ".join(str(error).split()),)}
        machine, started = describe_machine(context.device), time.perf_counter()
        summary = results(job, records, commit=context.settings.commit, machine=machine, started=started)
        found = []
        for row in study.pope:
            for decoding in ("greedy", "sample"):
                method = "vcd" if row.vcd else "plain"
                picked = summary.pick(method=method, decoding=decoding, parser="official", combine="vote", k=row.k)
                found += [_answer(measured, row.method, row.k, row) for measured in picked]
        return {"answers": tuple(found)}

    def show(self, result: StudyResult) -> Iterator[Part]:
        yield from result.tables or filter(None, [answer_table(result.answers)])  # older files have their own table


def _absent(study: PopeStudy, context: StudyContext) -> list[str]:
    """One line for each thing that is not there."""
    root, lines = context.root, []
    where = "not under ONESDAUG_DATA" if root else "ONESDAUG_DATA is not set"
    if root is None or not (root / "pope" / study.questions).is_file():
        lines.append(f"POPE's questions: {where}; to get them: {HOW_QUESTIONS}")
    if root is None or not (root / IMAGES).is_dir():
        lines.append(f"COCO val2014 images: {where}; to get them: {HOW_IMAGES}")
    try:
        find_model(study.model, Asking(seed=SEED), Contrast(), prompt=PROMPT)
    except OnesdaugError as error:
        lines.append(" ".join(str(error).split()))
    if lines:  # nothing will be run: see to the generator as well
        try:
            context.augmenter(context.generators_of(study)[0])
        except Missing as missing:
            lines.append(str(missing))
    return lines


def _job(study: PopeStudy, context: StudyContext) -> Job:
    root = context.root or Path()
    questions = read_questions(root / "pope" / study.questions)
    check_images(questions, root / IMAGES)
    device = context.settings.device
    about, load = find_model(study.model, Asking(seed=SEED), Contrast(), prompt=PROMPT, device=device)
    return Job(
        questions=questions,
        images=root / IMAGES,
        out=context.settings.work / "pope",
        about=about,
        load_model=load,
        headline=Headline(),
        k=max(row.k for row in study.pope),
        seed=SEED,
        generator=context.generators_of(study)[0],
        config=preset("vlm"),
        device=context.settings.device,
    )


def to_result(rows: Sequence[Score], title: str, made: Made, details: Mapping[str, Any]) -> StudyResult:
    """What `onesdaug pope` leaves, of the rows of its headline; `details`: settings, questions and cost."""
    about = "POPE's yes/no questions, every view a vote; intervals resample images."
    named = {"study": "pope-run", "kind": "pope", "title": title, "paper": "none", "about": about}
    answers = tuple(_answer(row, row.method, row.k) for row in rows)
    return StudyResult(**named, made=made, answers=answers, details=dict(details))


def _answer(measured: Score, method: str, k: int, paper: PopeRow | None = None) -> Answer:
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
        name = f"{a.method}, {a.decoding}"
        if a.paper_accuracy is None and str(a.k) not in a.method:  # the paper's names say it
            name = f"{name}, K={a.k}"
        lines.append(Line(name, entries, "baseline" if a.gain is None else "generative"))
    columns = ("method", "accuracy", "gain", "p", "F1", "prec.", "recall", "yes")
    return Table("", columns, tuple(lines), _NOTE).without_empty_columns()


def _quoted(value: Paper | None) -> tuple[str, ...]:
    return () if value is None else (f"paper {paper(value)}",)
