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
from onesdaug.report.result import Made, StudyResult
from onesdaug.studies.context import Missing, StudyContext
from onesdaug.studies.kind import Findings, StudyKind
from onesdaug.studies.kinds.pope.answers import answer_table, to_answer
from onesdaug.studies.kinds.pope.found import Found, find
from onesdaug.studies.kinds.pope.parts import rows_parts
from onesdaug.studies.kinds.pope.rows import SEED
from onesdaug.studies.kinds.pope.spec import PopeStudy
from onesdaug.studies.provenance import Facts
from onesdaug.vlm.model import find_model
from onesdaug.vlm.questions import check_images, read_questions
from onesdaug.vlm.run import Headline, Job, answer, results
from onesdaug.vlm.score import Score
from onesdaug.vlm.settings import Asking, Contrast

__all__ = ["Kind", "PopeStudy", "answer_table", "to_result"]
IMAGES = Path("coco") / "val2014"
HOW_IMAGES = "http://images.cocodataset.org/zips/val2014.zip (6 GB), unpacked to coco/val2014"
HOW_QUESTIONS = "output/coco of https://github.com/AoiDragon/POPE, put into pope"
PROMPT = "vcd"  # "our implementation, including the prompt and decoding, follows that of [VCD] exactly"


class Kind(StudyKind[PopeStudy]):
    spec = PopeStudy
    _found: Found | None = None

    def facts(self, study: PopeStudy, context: StudyContext) -> Facts:
        return Facts() if self._found is None else self._found.facts()  # else the run's own files say all of it

    def run(self, study: PopeStudy, context: StudyContext, output: Path) -> Findings:
        """Ask the model, or say all that is missing."""
        if lines := _absent(study, context):
            return {"missing": tuple(lines)}
        if study.rows:
            self._found = find(study, context)
            with context.timed("views and answers"):
                return self._found.findings()
        return _asked(study, context)

    def show(self, result: StudyResult) -> Iterator[Part]:
        if any(answer.split for answer in result.answers):
            yield from rows_parts(result)
        else:  # older files have their own table
            yield from result.tables or filter(None, [answer_table(result.answers)])


def _asked(study: PopeStudy, context: StudyContext) -> Findings:
    """The paper's rows, by the run that `onesdaug pope` is."""
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
            found += [to_answer(measured, row.method, row.k, row) for measured in picked]
    return {"answers": tuple(found)}


def _absent(study: PopeStudy, context: StudyContext) -> list[str]:
    """One line for each thing that is not there."""
    root, lines = context.root, []
    where = "not under ONESDAUG_DATA" if root else "ONESDAUG_DATA is not set"
    if root is None or not all((root / "pope" / name).is_file() for name in study.files):
        lines.append(f"POPE's questions: {where}; to get them: {HOW_QUESTIONS}")
    images = Path(study.images) if study.rows else IMAGES
    if root is None or not (root / images).exists():
        lines.append(f"COCO val2014 images: {where}; to get them: {HOW_IMAGES}" if images == IMAGES else
                     f"the photographs {images}: {where}")  # fmt: skip
    try:
        find_model(study.model, Asking(seed=SEED), None if study.rows else Contrast(), **_prompt(study))
    except OnesdaugError as error:
        lines.append(" ".join(str(error).split()))
    if lines and not study.rows:  # nothing will be run: see to the generator as well
        try:
            context.augmenter(context.generators_of(study)[0])
        except Missing as missing:
            lines.append(str(missing))
    return lines


def _prompt(study: PopeStudy) -> dict[str, str]:
    return {} if study.rows else {"prompt": PROMPT}


def _job(study: PopeStudy, context: StudyContext) -> Job:
    root = context.root or Path()
    questions = read_questions(root / "pope" / study.files[0])
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
    answers = tuple(to_answer(row, row.method, row.k) for row in rows)
    return StudyResult(**named, made=made, answers=answers, details=dict(details))
