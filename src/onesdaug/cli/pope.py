"""`onesdaug pope`: yes/no questions about images and their views, put to a vision-language model."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from onesdaug.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

    from onesdaug.augment.config import AugmentConfig
    from onesdaug.vlm.job import Job
    from onesdaug.vlm.model import Asking, Model
    from onesdaug.vlm.score import Summary
    from onesdaug.vlm.transcript import Record

    Chosen = tuple[dict[str, Any], Callable[[], Model]]  # what decides the answers, and how to get the model

_VIEWS, _ASKING, _MACHINE = "Views", "Asking and scoring", "Model and machine"
_EVERY = 5.0  # seconds between lines when nobody watches


def pope(
    images: Annotated[Path, typer.Option(metavar="FOLDER", help="The images; for POPE, COCO's val2014.")],
    questions: Annotated[Path, typer.Option(metavar="FILE", help="Questions, e.g. coco_pope_adversarial.json.")],
    out: Annotated[Path, typer.Option("--out", "-o", metavar="OUT", help="Folder for answers and results.")],
    model: Annotated[
        str, typer.Option(help="A folder in transformers format or a hub id; behind --endpoint, its name there.")
    ] = "llava-hf/llava-1.5-7b-hf",
    k: Annotated[int, typer.Option("--k", "-k", min=0, help="Views per image; 0 asks about the original alone.")] = 4,
    limit: Annotated[int | None, typer.Option(min=1, help="Only the first so many questions.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of the views, the sampled answers and VCD's noise.")] = 1234,
    generator: Annotated[
        str, typer.Option(rich_help_panel=_VIEWS, help="sd15, pocket, pocket-imagenet, shape, a hub id or a folder.")
    ] = "sd15",
    preset: Annotated[
        str | None, typer.Option(rich_help_panel=_VIEWS, help="The operator's preset (else vlm; pocket: its own).")
    ] = None,
    ip_repo: Annotated[
        str, typer.Option(rich_help_panel=_VIEWS, help="Where the IP-Adapter weights are.")
    ] = "h94/IP-Adapter",
    shape_aug: Annotated[
        bool, typer.Option("--shape-aug/--no-shape-aug", rich_help_panel=_VIEWS, help="Tweak the shape first.")
    ] = True,
    views: Annotated[
        Path | None,
        typer.Option(rich_help_panel=_VIEWS, help="Where views are kept (else OUT/views); runs may share it."),
    ] = None,
    decoding: Annotated[
        list[str] | None, typer.Option(rich_help_panel=_ASKING, help="greedy or sample; may be repeated (else both).")
    ] = None,
    parser: Annotated[str, typer.Option(rich_help_panel=_ASKING, help="official, vcd or exact.")] = "official",
    combine: Annotated[
        str, typer.Option(rich_help_panel=_ASKING, help="vote, or margin: the mean of the yes/no logit margins.")
    ] = "vote",
    orig_logit_weight: Annotated[float, typer.Option(rich_help_panel=_ASKING, help="Weight of the original.")] = 1.0,
    aug_logit_weight: Annotated[float, typer.Option(rich_help_panel=_ASKING, help="Weight of each view.")] = 1.0,
    vcd: Annotated[
        bool | None,
        typer.Option("--vcd/--no-vcd", rich_help_panel=_ASKING, help="Also ask with VCD (else: if possible)."),
    ] = None,
    vcd_alpha: Annotated[float | None, typer.Option(rich_help_panel=_ASKING, help="Contrast (else 1).")] = None,
    vcd_beta: Annotated[float | None, typer.Option(rich_help_panel=_ASKING, help="Cut-off (else 0.1).")] = None,
    vcd_noise_step: Annotated[int | None, typer.Option(rich_help_panel=_ASKING, help="0 to 999 (else 500).")] = None,
    suffix: Annotated[
        str, typer.Option(rich_help_panel=_ASKING, help="Follows every question.")
    ] = " Please answer this question with one word.",
    prompt: Annotated[
        str | None,
        typer.Option(rich_help_panel=_ASKING, help="template (the model's own, the default), llava, or vcd."),
    ] = None,
    max_new_tokens: Annotated[int, typer.Option(min=1, rich_help_panel=_ASKING, help="Length of an answer.")] = 1,
    temperature: Annotated[float, typer.Option(rich_help_panel=_ASKING, help="Of sampled decoding.")] = 1.0,
    device: Annotated[str, typer.Option(rich_help_panel=_MACHINE, help="auto (all GPUs), cpu, cuda:1, …")] = "auto",
    dtype: Annotated[
        str | None, typer.Option(rich_help_panel=_MACHINE, help="Of the model's weights (else bfloat16).")
    ] = None,
    batch_size: Annotated[
        int | None, typer.Option(min=1, rich_help_panel=_MACHINE, help="Pictures per pass (else all of a question).")
    ] = None,
    endpoint: Annotated[
        str | None,
        typer.Option(
            rich_help_panel=_MACHINE,
            help="Ask an OpenAI-compatible server, e.g. http://host:8000/v1; its key comes from OPENAI_API_KEY.",
        ),
    ] = None,
    timeout: Annotated[
        float | None, typer.Option(rich_help_panel=_MACHINE, help="Endpoint: seconds per request (else 60).")
    ] = None,
    retries: Annotated[
        int | None, typer.Option(min=0, rich_help_panel=_MACHINE, help="Endpoint: further tries (else 5).")
    ] = None,
    workers: Annotated[
        int | None, typer.Option(min=1, rich_help_panel=_MACHINE, help="Endpoint: requests at a time (else 4).")
    ] = None,
) -> None:
    """Ask a frozen vision-language model about images and K views of each, and combine the answers.

    Baselines are part of the run: no views, greedy and sampled decoding, VCD, VCD with views. Run the same command
    again to go on after an interruption; other parsers, rules and weights are then scored without asking again.
    Exit code 0: all good; 1: some questions got no answer; 2: wrong settings; 130: interrupted.
    """
    from onesdaug.vlm.job import Job
    from onesdaug.vlm.model import Asking
    from onesdaug.vlm.questions import check_images, read_questions
    from onesdaug.vlm.run import Headline

    decodings = tuple(decoding or ("greedy", "sample"))
    asking = Asking(decodings, suffix, max_new_tokens, temperature, seed)  # type: ignore[arg-type]
    contrast = {"alpha": vcd_alpha, "beta": vcd_beta, "noise_step": vcd_noise_step}
    asked = read_questions(questions, limit)
    check_images(asked, images)  # before the model's files are looked for
    if endpoint is None:
        _refuse({"timeout": timeout, "retries": retries, "workers": workers}, "are for an --endpoint")
        if vcd is False:
            _refuse({f"vcd-{name}": value for name, value in contrast.items()}, "do nothing with --no-vcd")
        how = _given({"prompt": prompt, "dtype": dtype})
        about, load = _local(model, asking, None if vcd is False else contrast, how, batch_size, device)
    else:
        beyond = {"vcd": vcd or None, **{f"vcd-{name}": value for name, value in contrast.items()}}
        _refuse(beyond, "need the model's logits, which no endpoint gives")
        _refuse({"prompt": prompt, "dtype": dtype, "batch-size": batch_size}, "are the server's own business")
        about, load = _endpoint(endpoint, model, asking, {"timeout": timeout, "retries": retries}, workers)
    job = Job(
        questions=asked,
        images=images,
        out=out,
        about=about,
        load_model=load,
        headline=Headline(f"plain/{decodings[0]}", parser, combine, orig_logit_weight, aug_logit_weight),
        k=k,
        seed=seed,
        generator=generator,
        ip_repo=ip_repo,
        config=_config(generator, preset, shape_aug) if k else None,
        store=views,
        device=device,
    )
    raise typer.Exit(_run(job))


def _local(
    model: str,
    asking: Asking,
    contrast: dict[str, Any] | None,
    how: dict[str, Any],
    batch_size: int | None,
    device: str,
) -> Chosen:
    from onesdaug.vlm.local import LocalModel, describe_local
    from onesdaug.vlm.model import Contrast

    vcd = None if contrast is None else Contrast(**_given(contrast))

    def load() -> Model:
        return LocalModel.from_pretrained(model, asking, vcd, batch_size=batch_size, device=device, **how)

    return describe_local(model, asking, vcd, **how), load


def _endpoint(url: str, model: str, asking: Asking, patience: dict[str, Any], workers: int | None) -> Chosen:
    from onesdaug.vlm.endpoint import Endpoint, describe_endpoint
    from onesdaug.vlm.transport import Patience

    patient = Patience(**_given(patience))

    def load() -> Model:
        return Endpoint(url, model, asking, patience=patient, **_given({"workers": workers}))

    return describe_endpoint(url, model, asking), load


def _given(options: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


def _refuse(options: dict[str, Any], why: str) -> None:
    if idle := [f"--{name.replace('_', '-')}" for name in _given(options)]:
        raise ConfigError(f"{', '.join(idle)} {why}; leave out what does not belong")


def _config(generator: str, preset: str | None, shape_aug: bool) -> AugmentConfig:
    from onesdaug.augment.config import preset as named
    from onesdaug.generators.load import default_preset

    own = default_preset(generator)
    chosen = preset or ("vlm" if own == "paper" else own)
    return named(chosen) if shape_aug else named(chosen, shape=None)


def _run(job: Job) -> int:
    import torch

    from onesdaug.common.devices import pick_device
    from onesdaug.common.progress import log
    from onesdaug.common.provenance import commit, describe_machine
    from onesdaug.vlm.job import answer, results

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


def _show(job: Job, summary: Summary, records: list[Record]) -> None:
    """The table on stdout; what to know about it on stderr."""
    from onesdaug.cli.screen import results as results_screen
    from onesdaug.vlm.score import neither
    from onesdaug.vlm.tables import headline_rows, table

    h = job.headline
    rule = f"votes, parser {h.parser}" if h.combine == "vote" else "mean margins"
    title = f"POPE {job.questions.split} · {job.about['name']} · {rule} · {len(records)} questions"
    screen = results_screen(160)
    rows = headline_rows(summary.rows, h.parser, h.combine)
    if not rows:
        raise ConfigError("there are no margins: this model gives no log probabilities; use --combine vote")
    screen.print(table(rows, title))
    odd, texts = neither(records)
    if odd:
        rule = "each parser counts them by its own rule (docs/vlm.md)"
        typer.echo(f"{odd} of {texts} answers are not the bare word yes or no; {rule}", err=True)
    if failed := sum(record.failed for record in records):
        typer.echo(f"{failed} questions have replies that failed; the same command asks them again", err=True)
    typer.echo(f"{job.out}: answers.jsonl, summary.json and a text file for each number of views", err=True)
