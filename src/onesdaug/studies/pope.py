"""The POPE table: `onesdaug pope` with the paper's settings, its rows beside the paper's."""

from __future__ import annotations

import time
from pathlib import Path

from onesdaug.augment.config import preset
from onesdaug.common.provenance import describe_machine
from onesdaug.errors import OnesdaugError
from onesdaug.statistics import Paired, Summary
from onesdaug.studies.accuracy import generators_of
from onesdaug.studies.result import Answer, Paper
from onesdaug.studies.spec import PopeRow, Study
from onesdaug.studies.workshop import Missing, Workshop
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
PROMPT = "vcd"  # "our implementation, including the prompt and decoding, follows that of [VCD] exactly"


def answers(study: Study, shop: Workshop) -> tuple[tuple[Answer, ...], list[str]]:
    """Ask the model, or say all that is missing."""
    lines = _absent(study, shop)
    if lines:
        return (), lines
    try:
        job = _job(study, shop)
        records = answer(job)
    except OnesdaugError as error:  # the generator's weights are looked for where they are loaded
        return (), [" ".join(str(error).split())]
    machine = describe_machine(shop.device)
    summary = results(job, records, commit=shop.settings.commit, machine=machine, started=time.perf_counter())
    found = []
    for row in study.pope:
        for decoding in ("greedy", "sample"):
            method = "vcd" if row.vcd else "plain"
            picked = summary.pick(method=method, decoding=decoding, parser="official", combine="vote", k=row.k)
            found += [_entry(row, measured) for measured in picked]
    return tuple(found), []


def _absent(study: Study, shop: Workshop) -> list[str]:
    """One line for each thing that is not there."""
    root, lines = shop.root, []
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
            shop.augmenter(generators_of(study, shop)[0])
        except Missing as missing:
            lines.append(str(missing))
    return lines


def _job(study: Study, shop: Workshop) -> Job:
    root = shop.root or Path()
    questions = read_questions(root / "pope" / study.questions)
    check_images(questions, root / IMAGES)
    about, load = find_model(study.model, Asking(seed=SEED), Contrast(), prompt=PROMPT, device=shop.settings.device)
    return Job(
        questions=questions,
        images=root / IMAGES,
        out=shop.settings.work / "pope",
        about=about,
        load_model=load,
        headline=Headline(),
        k=max(row.k for row in study.pope),
        seed=SEED,
        generator=generators_of(study, shop)[0],
        config=preset("vlm"),
        device=shop.settings.device,
    )


def _entry(row: PopeRow, measured: Score) -> Answer:
    m = measured.metrics
    gain = None
    if measured.gain is not None and measured.gain.accuracy.value is not None:
        g = measured.gain
        gain = Paired(g.accuracy.value or 0.0, _half(g.accuracy), g.mcnemar_p, g.relative_accuracy or 0.0, g.n)
    return Answer(
        method=row.method,
        decoding=measured.decoding,
        k=row.k,
        accuracy=Summary(_value(m.accuracy), _half(m.accuracy), m.n),
        f1=_value(m.f1),
        precision=_value(m.precision),
        recall=_value(m.recall),
        yes_ratio=_value(m.yes_ratio),
        unknown=m.unknown,
        gain=gain,
        paper_accuracy=Paper(value=row.accuracy),
        paper_f1=Paper(value=row.f1),
    )


def _value(estimate: Estimate) -> float:
    return float("nan") if estimate.value is None else estimate.value


def _half(estimate: Estimate) -> float:
    """Half of the interval's width: it is nearly symmetric for thousands of questions."""
    if estimate.low is None or estimate.high is None:
        return float("nan")
    return (estimate.high - estimate.low) / 2
