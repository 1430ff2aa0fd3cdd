"""`onesdaug pope`: yes/no questions about images and their views, put to a vision-language model."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from pydantic import Field

from onesdaug.augment.presets import LISTED, check_preset
from onesdaug.cli.options import CLUSTER, From, WithRay, examples, options, spelling
from onesdaug.common.options import IP_REPO, Device
from onesdaug.common.registry import GENERATORS, VLMS
from onesdaug.errors import ConfigError
from onesdaug.scale.start import RayOptions
from onesdaug.vlm.settings import Asking, Contrast, EndpointOptions, LocalOptions, Scoring

if TYPE_CHECKING:
    from collections.abc import Callable

    from onesdaug.augment.config import AugmentConfig
    from onesdaug.jobs.ledger import JobReport
    from onesdaug.jobs.plan import Listing
    from onesdaug.jobs.survey import JobSettings
    from onesdaug.vlm.model import Model
    from onesdaug.vlm.questions import Questions
    from onesdaug.vlm.run import Job
    from onesdaug.vlm.score import PopeResults
    from onesdaug.vlm.transcript import Record

    Found = tuple[dict[str, Any], Callable[[], Model]]  # what decides the answers, and how to get the model

app = typer.Typer(add_completion=False)
_ASKING, _MACHINE = "Asking and scoring", "Model and machine"
_QUESTIONS = "JSON lines with question_id, image, text and label (yes or no), e.g. coco_pope_adversarial.json."
LLAVA = "llava-hf/llava-1.5-7b-hf"


@dataclass(frozen=True)
class About:
    """What is asked about which images."""

    images: Annotated[Path, Field(description="The folder of the images; for POPE, COCO's val2014")]
    questions: Annotated[Path, Field(description=_QUESTIONS)]
    limit: Annotated[int | None, Field(ge=1, description="Only the first so many questions")] = None
    skip_missing: Annotated[bool, Field(description="Leave out questions whose image is not there")] = False

    def read(self) -> Questions:
        from onesdaug.vlm.questions import check_images, present, read_questions

        asked = read_questions(self.questions, self.limit)
        asked = present(asked, self.images) if self.skip_missing else asked
        check_images(asked, self.images)
        return asked


@dataclass(frozen=True)
class Drawing:
    """How views are made."""

    model: Annotated[str | None, Field(description=f"Who draws them: {GENERATORS.choices()} (else sd15)")] = None
    preset: Annotated[
        str | None, Field(description=f"Settings by name (else vlm; pocket: its own, for accuracy): {LISTED}")
    ] = None
    ip_repo: Annotated[str, Field(description="Where the IP-Adapter weights are")] = IP_REPO
    shape_aug: Annotated[bool, Field(description="Tweak the shape first")] = True
    views: Annotated[Path | None, Field(description="Where views are kept (else OUT/views); runs may share it")] = None


DRAWING = From(Drawing, panel="Views")
ASKING = From(Asking, {"decodings": "decoding"}, panel=_ASKING)
SCORING = From(Scoring, {"original_weight": "orig-logit-weight", "view_weight": "aug-logit-weight"}, panel=_ASKING)
CONTRAST = From(Contrast, prefix="vcd-", panel=_ASKING, partial=True)
LOCAL = From(LocalOptions, panel=_MACHINE, partial=True)
ENDPOINT = From(EndpointOptions, panel=_MACHINE, partial=True)


@app.command(
    cls=WithRay,
    context_settings=spelling(out="output"),
    epilog=examples(
        "pope --images val2014 --questions coco_pope_adversarial.json --vlm llava-hf/llava-1.5-7b-hf -o runs/pope",
        "pope --images val2014 --questions mine.json --vlm my_model.py:ask --model pocket --k 2 -o runs/mine",
    ),
)
@options
def pope(
    *,
    about: Annotated[About, From(About)],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="OUT", help="Folder for answers and results.")],
    vlm: Annotated[
        str | None,
        typer.Option(help=f"Who is asked: {VLMS.choices()}; behind --endpoint, its name there (else {LLAVA})."),
    ] = None,
    k: Annotated[int, typer.Option("--k", "-k", min=0, help="Views per image; 0 asks about the original alone.")] = 4,
    drawing: Annotated[Drawing, DRAWING],
    generator: Annotated[str | None, typer.Option(hidden=True)] = None,
    asking: Annotated[Asking, ASKING],
    scoring: Annotated[Scoring, SCORING],
    vcd: Annotated[
        bool | None,
        typer.Option("--vcd/--no-vcd", rich_help_panel=_ASKING, help="Also ask with VCD (else: if possible)."),
    ] = None,
    contrast: Annotated[dict[str, Any], CONTRAST],
    device: Annotated[Device, typer.Option(rich_help_panel=_MACHINE)] = "auto",
    local: Annotated[dict[str, Any], LOCAL],
    remote: Annotated[dict[str, Any], ENDPOINT],
    cluster: Annotated[RayOptions, CLUSTER],
) -> None:
    """Ask a frozen vision-language model about images and K views of each, and combine the answers.

    Baselines are part of the run: no views, greedy and sampled decoding, VCD, VCD with views. Run the same command
    again to go on after an interruption; other parsers, rules and weights are then scored without asking again.
    Exit code 0: all good; 1: some questions got no answer; 2: wrong settings; 130: interrupted.
    """
    from onesdaug.vlm.run import Headline, Job

    vlm, model = _words(vlm, drawing.model or _tuned_source(drawing.preset), generator, k, remote.get("endpoint"))
    asked = about.read()  # before the model's files are looked for
    if "endpoint" not in remote:
        _refuse(ENDPOINT, remote, "are for an --endpoint")
        model_card, load = _local(vlm, asking, vcd, contrast, {"device": device, **local})
    else:
        _refuse(LOCAL, local, "are the server's own business")
        model_card, load = _endpoint(vlm, asking, vcd, contrast, remote)
    job = Job(
        questions=asked,
        images=about.images,
        out=output,
        about=model_card,
        load_model=load,
        headline=Headline(mode=f"plain/{asking.decodings[0]}", **asdict(scoring)),
        k=k,
        seed=asking.seed,
        generator=model,
        ip_repo=drawing.ip_repo,
        config=_config(model, drawing.preset, drawing.shape_aug) if k else None,
        store=drawing.views,
        device=device,
        elsewhere=None if cluster.ray is None else partial(_drawn_on_ray, cluster),
    )
    raise typer.Exit(_run(job))


def _drawn_on_ray(cluster: RayOptions, job: Job, listing: Listing, settings: JobSettings) -> JobReport:
    """The views of a job, by a cluster."""
    from onesdaug.scale.batch import loader, run_on_ray

    assert job.config is not None
    how = {"name": job.generator, "ip_repo": job.ip_repo, "device": job.device}
    return run_on_ray(loader(how, job.config), listing, settings, cluster, job.device)[0]


def _words(vlm: str | None, model: str | None, generator: str | None, k: int, endpoint: str | None) -> tuple[str, str]:
    """Who is asked and who draws. `--model` was the one who is asked when `--generator` was the one who draws."""
    if generator is not None:
        return vlm or model or LLAVA, generator
    drawing = model is None or ":" in model or model in (*GENERATORS, *GENERATORS.elsewhere)
    if vlm is None and model is not None and (k == 0 or endpoint is not None or not drawing):
        raise ConfigError(f"--model {model} is the generator that draws the views; say with --vlm who is asked")
    return vlm or LLAVA, model or "sd15"


def _tuned_source(preset: str | None) -> str | None:
    """The generator that a file of `onesdaug tune` is for."""
    if preset is None or not preset.endswith(".json"):
        return None
    from onesdaug.augment.tuned import Tuned

    return Tuned.read(preset).source


def _local(vlm: str, asking: Asking, vcd: bool | None, contrast: dict[str, Any], how: dict[str, Any]) -> Found:
    from onesdaug.vlm.model import find_model

    if vcd is False:
        _refuse(CONTRAST, contrast, "do nothing with --no-vcd")
    return find_model(vlm, asking, None if vcd is False else Contrast(**contrast), **how)


def _endpoint(vlm: str, asking: Asking, vcd: bool | None, contrast: dict[str, Any], how: dict[str, Any]) -> Found:
    from onesdaug.vlm.model import find_model

    why = "need the model's logits, which no endpoint gives"
    _refuse(CONTRAST, contrast, why)
    if vcd:
        raise ConfigError(f"--vcd would {why}; leave it out")
    return find_model(vlm, asking, **how)


def _refuse(source: From, given: dict[str, Any], why: str) -> None:
    if given:
        raise ConfigError(f"{', '.join(map(source.flag, given))} {why}; leave out what does not belong")


def _config(generator: str, preset: str | None, shape_aug: bool) -> AugmentConfig:
    from onesdaug.augment.config import preset as named
    from onesdaug.generators.load import default_preset

    own = default_preset(generator)
    if preset is not None:
        check_preset(preset, own, generator)
    chosen = preset or ("vlm" if own == "paper" else own)
    return named(chosen) if shape_aug else named(chosen, shape=None)


def _run(job: Job) -> int:
    import torch

    from onesdaug.common.devices import pick_device
    from onesdaug.common.progress import log
    from onesdaug.common.provenance import commit, describe_machine
    from onesdaug.vlm.run import answer, results

    started = time.perf_counter()
    device = torch.device("cpu") if job.about["kind"] == "endpoint" else pick_device(job.device)
    q = job.questions.summary()
    copy = ": POPE's own" if q["known_copy"] else ""
    counts = f"{q['questions']} questions, {q['yes']} yes, {q['images']} images"
    log.info(f"{q['split']}: {counts}, fingerprint {q['fingerprint']}{copy}")
    try:
        records = answer(job)
    except KeyboardInterrupt:
        log.info("interrupted; finished views and answers are kept. Run the same command again to go on")
        return 130
    summary = results(job, records, commit=commit(), machine=describe_machine(device), started=started)
    _show(job, summary, records)
    return 1 if any(record.failed for record in records) else 0


def _show(job: Job, summary: PopeResults, records: list[Record]) -> None:
    """The table on stdout; what to know about it on stderr."""
    from onesdaug.cli.screen import results as results_screen
    from onesdaug.common.files import write_text
    from onesdaug.common.provenance import command
    from onesdaug.report.terminal import print_parts
    from onesdaug.studies.kind import shown_by
    from onesdaug.studies.kinds.pope import to_result
    from onesdaug.studies.provenance import made_now
    from onesdaug.vlm.score import count_unclear, headline_rows

    h = job.headline
    rule = f"votes, parser {h.parser}" if h.combine == "vote" else "mean margins"
    title = f"POPE {job.questions.split} · {job.about['name']} · {rule} · {len(records)} questions"
    rows = headline_rows(summary.rows, h.parser, h.combine)
    if not rows:
        raise ConfigError("there are no margins: this model gives no log probabilities; use --combine vote")
    details = {"settings": summary.settings, "questions": summary.questions, "cost": summary.cost}
    made = made_now(command(), summary.commit, summary.machine, {"answering": summary.cost["seconds"]}, job.seed)
    result = to_result(rows, title, made, details)
    screen = results_screen(100)
    screen.print(title, style="bold", markup=False)
    print_parts(shown_by(result), screen)
    write_text(job.out / result.file, result.model_dump_json(indent=1) + "\n")
    odd, texts = count_unclear(records)
    if odd:
        rule = "each parser counts them by its own rule (docs/vlm.md)"
        typer.echo(f"{odd} of {texts} answers are not the bare word yes or no; {rule}", err=True)
    if failed := sum(record.failed for record in records):
        typer.echo(f"{failed} questions have replies that failed; the same command asks them again", err=True)
    typer.echo(
        f"{job.out}: answers.jsonl, summary.json, {result.file} and a text file for each number of views; "
        f"`onesdaug report {job.out} --latex FILE --csv FILE` makes a page and tables of them",
        err=True,
    )
