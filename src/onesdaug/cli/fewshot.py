"""`onesdaug fewshot train | embed | evaluate`: from images to a table of accuracies."""

from __future__ import annotations

import time
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from onesdaug.augment.presets import PresetName
from onesdaug.cli.options import From, examples, options, spelling
from onesdaug.cli.screen import results as results_screen
from onesdaug.cli.screen import resumable
from onesdaug.common.files import write_text
from onesdaug.common.options import Device, MaxSeconds, PerClass, Root
from onesdaug.common.registry import BACKBONES, HEADS, VIEWS
from onesdaug.errors import ConfigError
from onesdaug.fewshot.recipes import (
    PAPER_FEAT,
    PAPER_PROTONET,
    MetaConfig,
    Optimisation,
    PretrainConfig,
    released_meta,
    released_pretrain,
)

if TYPE_CHECKING:
    from onesdaug.data.dataset import Dataset
    from onesdaug.fewshot.bank import FeatureBank
    from onesdaug.fewshot.evaluate import Task, ViewUse
    from onesdaug.fewshot.heads import Head

app = typer.Typer(
    help="Few-shot learning: train a backbone and a head, embed images with their views, evaluate on episodes.",
    no_args_is_help=True,
    add_completion=False,
)
_OWN = ("lr", "scheduler", "step_size", "gamma")  # shared fields that are meta-training's alone, or told apart
_SHARED = tuple(f.name for f in fields(Optimisation) if f.name not in _OWN)
SHARED = From(Optimisation, {"eval_shots": "eval-shot"}, panel="Both stages", only=_SHARED, partial=True)
_OTHERS = (*_SHARED, *_OWN[1:], "backbone")
PRETRAIN = From(PretrainConfig, {"lr": "pretrain-lr"}, panel="Pretraining", without=_OTHERS, partial=True)
_NAMES = {"scheduler": "lr-scheduler", "use_euclidean": "use-euclidean/--use-cosine"}
META = From(MetaConfig, _NAMES, panel="Meta-training", without=(*_SHARED, "head"), partial=True)


@app.command(
    context_settings=spelling(out="output"),
    epilog=examples(
        "fewshot train --data cub --backbone convnet --head feat -o runs/cub",
        "fewshot train --data pets/ --stage pretrain --epochs 100 -o runs/pets",
    ),
)
@options
def train(
    *,
    data: Annotated[
        str, typer.Option(help="A benchmark's name, or your folder with train/ and val/ (or zips, CSVs).")
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="Checkpoint folder to write; state goes beside it.")],
    root: Root = None,
    stage: Annotated[Literal["pretrain", "meta", "all"], typer.Option(help="pretrain, meta, or both.")] = "all",
    backbone: Annotated[
        str, typer.Option(help="convnet, res12, or a Backbone of your own as package.module:Class.")
    ] = "res12",
    head: Annotated[str, typer.Option(help=f"{HEADS.choices()}.")] = "protonet",
    recipe: Annotated[
        Literal["paper", "released"],
        typer.Option(
            help="Defaults for the stages' options: the paper's arguments, or those of the released checkpoints."
        ),
    ] = "paper",
    init: Annotated[
        Path | None, typer.Option(help="Pretrained checkpoint for --stage meta; none: from scratch.")
    ] = None,
    device: Device = "auto",
    half: Annotated[bool, typer.Option(help="Write matrices as float16.")] = False,
    cache: Annotated[Path | None, typer.Option(help="Keep decoded images here.")] = None,
    max_seconds: MaxSeconds = None,
    shared: Annotated[dict[str, Any], SHARED],
    first: Annotated[dict[str, Any], PRETRAIN],
    second: Annotated[dict[str, Any], META],
) -> None:
    """Train a few-shot model; a killed run goes on where its state was last saved."""
    import torch

    from onesdaug.data.registry import load_split
    from onesdaug.fewshot.meta import meta_train
    from onesdaug.fewshot.pretrain import pretrain

    chosen = device if device != "auto" else "cuda" if torch.cuda.is_available() else "cpu"
    plain, episodic = _paper(backbone, head) if recipe == "paper" else _released(data, backbone, head)
    plain = replace(plain, **shared, **first)
    from_scratch: dict[str, Any] = {"fix_bn": False} if stage == "meta" and init is None else {}
    episodic = replace(episodic, **shared, **(from_scratch | second))
    fitted: dict[str, Any] = {name: None for name in ("temperature", "temperature2") if getattr(episodic, name) == 0}
    episodic = replace(episodic, **fitted)
    train_set, val_set = (load_split(data, split, root, cache=cache) for split in ("train", "val"))
    common: dict[str, Any] = {
        "data_name": data, "device": chosen, "half": half,
        "deadline": None if max_seconds is None else time.monotonic() + max_seconds,
    }  # fmt: skip
    with resumable():
        begin: Path | str = init or backbone
        if stage in ("pretrain", "all"):
            begin = output if stage == "pretrain" else output.with_name(f"{output.name}-pretrained")
            if stage == "all" and (begin / "card.json").is_file():
                typer.echo(f"{begin} is there: no pretraining")
            else:
                card = pretrain(plain, train_set, val_set, begin, **common)
                typer.echo(f"{begin}: validation {card['validation']['score']:.2f} %, {card['seconds']} s")
        if stage in ("meta", "all"):
            card = meta_train(episodic, begin, train_set, val_set, output, **common)
            typer.echo(f"{output}: validation {card['validation']['score']:.2f} %, {card['seconds']} s")


@app.command(
    context_settings=spelling(),
    epilog=examples(
        "fewshot embed cub --encoder runs/cub --views pocket --k 3 -o cub.safetensors",
        "fewshot embed photos/ --encoder hf:microsoft/swin-tiny-patch4-window7-224 -o photos.safetensors",
    ),
)
@options
def embed(
    data: Annotated[str, typer.Argument(help="A benchmark's name, a class-per-folder directory, a zip or a CSV.")],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="BANK", help="The feature bank to write.")],
    encoder: Annotated[str, typer.Option(help=f"{BACKBONES.choices()}.")],
    split: Annotated[str | None, typer.Option(help="train, val or test; a benchmark's default is test.")] = None,
    views: Annotated[str, typer.Option(help=f"none, oracle, {VIEWS.choices()}.")] = "none",
    k: Annotated[int, typer.Option("--k", "-k", min=0, help="Views per image.")] = 0,
    preset: PresetName = None,
    seed: Annotated[int, typer.Option(min=0, help="Every view has its own stream, drawn from this.")] = 0,
    dtype: Annotated[str, typer.Option(help="float16 or float32.")] = "float16",
    per_class: PerClass = None,
    root: Root = None,
    device: Device = "auto",
) -> None:
    """Embed every image and its K views into a feature bank. A killed run goes on where it stopped."""
    import torch

    from onesdaug.common.devices import pick_device
    from onesdaug.common.provenance import commit
    from onesdaug.encoders.load import load_encoder
    from onesdaug.fewshot import embed as stage
    from onesdaug.fewshot.bank import ORACLE
    from onesdaug.fewshot.views import Views, resolve_views

    dtypes = {"float16": torch.float16, "float32": torch.float32}
    if dtype not in dtypes:
        raise ConfigError(f"dtype must be float16 or float32, not {dtype!r}")
    if (views == "none") != (k == 0):
        raise ConfigError(f"--views {views} with --k {k}: views need --k of at least 1, and --k needs --views")
    source: Views | str | None = None
    if views != "none":
        source = ORACLE if views == ORACLE else resolve_views(views, preset, device)
    images = _load(data, split, root).sample(per_class)
    network = load_encoder(encoder, pick_device(device))
    bank = stage.embed(images, network, output, source, k, seed=seed, dtype=dtypes[dtype], commit=commit())
    typer.echo(f"{output}: {len(images)} images of {images.n_classes} classes, {bank.k} views each, d = {bank.dim}")


@app.command(
    context_settings=spelling(),
    epilog=examples(
        "fewshot evaluate cub.safetensors --checkpoint runs/cub --curve",
        "fewshot evaluate photos.safetensors --head protonet --way 5 --shot 1 --explain",
    ),
)
@options
def evaluate(
    bank: Annotated[Path, typer.Argument(metavar="BANK", help="What `onesdaug fewshot embed` wrote.")],
    baseline: Annotated[
        Path | None, typer.Option(help="Compare with this bank and all its views (else: with no views at all).")
    ] = None,
    head: Annotated[str | None, typer.Option(help=f"Untrained (else protonet): {HEADS.choices()}.")] = None,
    checkpoint: Annotated[
        Path | None, typer.Option(help="A checkpoint folder: take the head (FEAT, …) trained there.")
    ] = None,
    metric: Annotated[str | None, typer.Option(help="euclidean or cosine (else the head's own).")] = None,
    shot: Annotated[
        list[int] | None, typer.Option(min=1, help="Support images per class; may be repeated (else 1 and 5).")
    ] = None,
    way: Annotated[int, typer.Option(min=2, help="Classes per episode.")] = 5,
    query: Annotated[int, typer.Option(min=1, help="Queries per class.")] = 15,
    episodes: Annotated[
        int | None, typer.Option(min=1, help="Number of episodes (else 15,000 queries, 200 episodes of 75).")
    ] = None,
    support_views: Annotated[int | None, typer.Option(min=0, help="Views per support image (else all).")] = None,
    query_views: Annotated[int | None, typer.Option(min=0, help="Views per query image (else all).")] = None,
    curve: Annotated[bool, typer.Option("--curve", help="One row for each number of views, 1 to K.")] = False,
    original_weight: Annotated[float, typer.Option(min=0, max=1, help="Weight of the original image.")] = 0.5,
    seed: Annotated[int, typer.Option(min=0, help="Decides the episodes.")] = 0,
    explain: Annotated[
        bool, typer.Option("--explain", help="Then say why the views (the last row's) helped or hurt, in sentences.")
    ] = False,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="Also write the results: .json (for `onesdaug report`), .csv or .tex.",
        ),
    ] = None,
    plot: Annotated[
        Path | None,
        typer.Option(metavar="FILE.svg", help="Also draw the gains, with --curve the accuracy over the views."),
    ] = None,
) -> None:
    """Accuracy on N-way K-shot episodes, with 95 % intervals, and the paired gain over the baseline."""
    from onesdaug.common.own import calling
    from onesdaug.fewshot.bank import FeatureBank
    from onesdaug.fewshot.evaluate import Task
    from onesdaug.fewshot.evaluate import evaluate as score
    from onesdaug.report.terminal import print_parts
    from onesdaug.studies.kind import shown_by
    from onesdaug.studies.kinds.evaluation import as_text, drawing, to_result

    _check_endings({output: (".json", ".csv", ".tex"), plot: (".svg",)})
    started = time.perf_counter()
    features = FeatureBank.load(bank)
    other = None if baseline is None else FeatureBank.load(baseline)
    scorer, described = _head(head, checkpoint, metric, features.dim)
    uses = _uses(features, support_views, query_views, curve, original_weight)
    tasks = [Task(way, n, query, episodes, seed) for n in shot or (1, 5)]
    with calling(f"head {described['name']}", scorer):
        results = score(features, scorer, tasks, uses, other)
    banks = {bank: features} | ({} if baseline is None or other is None else {baseline: other})
    found = to_result(results, banks, described, time.perf_counter() - started)
    print_parts(shown_by(found), results_screen())
    if output is not None:
        write_text(output, as_text(found, output.suffix))
    if plot is not None:
        write_text(plot, drawing(found))
    if explain:
        _explain(features, scorer, tasks, uses[-1] if uses else None, other, baseline.name if baseline else "")


def _paper(backbone: str, head: str) -> tuple[PretrainConfig, MetaConfig]:
    BACKBONES.check(backbone)
    return PretrainConfig(backbone=backbone), replace(PAPER_FEAT if head == "feat" else PAPER_PROTONET, head=head)


def _released(data: str, backbone: str, head: str) -> tuple[PretrainConfig, MetaConfig]:
    """Made for this benchmark, else for another one with the same backbone and head, else the paper's."""
    plain, episodic = _paper(backbone, head)
    return released_pretrain(data, backbone) or plain, released_meta(data, backbone, head) or episodic


def _load(data: str, split: str | None, root: Path | None) -> Dataset:
    from onesdaug.data.registry import BENCHMARKS, load_path, load_split

    if data in BENCHMARKS:
        return load_split(data, split or "test", root)
    return load_path(data) if split is None else load_split(data, split)


def _head(name: str | None, checkpoint: Path | None, metric: str | None, dim: int) -> tuple[Head, dict[str, Any]]:
    """The head, and how to name it in results."""
    from onesdaug.fewshot.heads import build_head, load_head

    settings = {} if metric is None else {"metric": metric}
    if checkpoint is None:
        if name == "feat":
            raise ConfigError("feat has trained weights: give the --checkpoint that `onesdaug fewshot train` wrote")
        name = name or "protonet"
        return build_head(name, dim, **settings), {"name": name, "settings": settings}
    if name is not None:
        raise ConfigError(f"{checkpoint} brings its own head: give --checkpoint or --head, not both")
    trained = load_head(checkpoint, **settings)
    if trained is None:
        raise ConfigError(f"{checkpoint} is a pretrained backbone without a head; choose one with --head instead")
    kind = type(trained).__name__
    return trained, {"name": kind, "settings": settings, "checkpoint": str(checkpoint)}


def _uses(
    bank: FeatureBank, support: int | None, query: int | None, curve: bool, original_weight: float
) -> list[ViewUse]:
    from onesdaug.fewshot.evaluate import ViewUse

    if curve:
        if support is not None or query is not None:
            raise ConfigError("--curve uses the same number of views on both sides: leave out --support/query-views")
        return [ViewUse(n, n, original_weight) for n in range(1, bank.k + 1)]
    s, q = (bank.k if n is None else n for n in (support, query))
    return [ViewUse(s, q, original_weight)]


def _check_endings(wanted: dict[Path | None, tuple[str, ...]]) -> None:
    """Said before anything is computed."""
    for path, endings in wanted.items():
        if path is not None and path.suffix not in endings:
            raise ConfigError(f"{path} must end in {', '.join(endings)}: that says what is written")


def _explain(
    bank: FeatureBank,
    head: Head,
    tasks: list[Task],
    use: ViewUse | None,
    baseline: FeatureBank | None,
    name: str,
) -> None:
    """One paragraph per task, against the baseline that was given, or the originals of the same bank."""
    from onesdaug.analysis.explain import explain, nothing_to_explain

    why_not = nothing_to_explain(bank, use, baseline)
    if use is None or why_not is not None:
        typer.echo(why_not)
        return
    for task in tasks:
        typer.echo("\n" + "\n".join(explain(bank, head, task, use, baseline, name).lines()))
