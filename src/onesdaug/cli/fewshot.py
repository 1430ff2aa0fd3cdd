"""`onesdaug fewshot train | embed | evaluate`: from images to a table of accuracies."""

from __future__ import annotations

import time
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from onesdaug.augment.presets import PresetName
from onesdaug.cli.evaluate import app as evaluating
from onesdaug.cli.options import CLUSTER, From, WithRay, examples, options, spelling
from onesdaug.cli.screen import resumable
from onesdaug.common.options import Device, MaxSeconds, PerClass, Root
from onesdaug.common.registry import BACKBONES, HEADS, VIEWS
from onesdaug.errors import ConfigError
from onesdaug.fewshot.recipes import (
    PAPER_FEAT,
    PAPER_PROTONET,
    MetaConfig,
    Optimisation,
    PretrainConfig,
    plain_recipe,
    released_meta,
    released_pretrain,
)
from onesdaug.scale.start import RayOptions

app = typer.Typer(
    help="Few-shot learning: train a backbone and a head, embed images with their views, evaluate on episodes.",
    no_args_is_help=True,
    add_completion=False,
)
app.registered_commands += evaluating.registered_commands
_OWN = ("lr", "scheduler", "step_size", "gamma")  # shared fields that are meta-training's alone, or told apart
_SHARED = tuple(f.name for f in fields(Optimisation) if f.name not in _OWN)
SHARED = From(Optimisation, {"eval_shots": "eval-shot"}, panel="Both stages", only=_SHARED, partial=True)
_OTHERS = (*_SHARED, *_OWN[1:], "backbone")
PRETRAIN = From(PretrainConfig, {"lr": "pretrain-lr"}, panel="Pretraining", without=_OTHERS, partial=True)
_NAMES = {"scheduler": "lr-scheduler", "use_euclidean": "use-euclidean/--use-cosine"}
META = From(MetaConfig, _NAMES, panel="Meta-training", without=(*_SHARED, "head"), partial=True)


@dataclass(frozen=True)
class Pictures:
    """What is learned from."""

    data: Annotated[str, "A benchmark's name, or your folder with train/ and val/ (or zips, CSVs)"]
    also: Annotated[
        Path | None, "More pictures to pretrain on, class/file in a folder or zips; no validation or test class"
    ] = None
    root: Root = None
    cache: Annotated[Path | None, "Keep decoded images here"] = None


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
    output: Annotated[Path, typer.Option("--output", "-o", help="Checkpoint folder to write; state goes beside it.")],
    pictures: Annotated[Pictures, From(Pictures)],
    stage: Annotated[Literal["pretrain", "meta", "all"], typer.Option(help="pretrain, meta, or both.")] = "all",
    backbone: Annotated[
        str,
        typer.Option(
            help="convnet, res12, vit-small, swin-tiny, hf:ID (a hub id or a folder, trained on from its weights), or "
            "a Backbone of your own as package.module:Class."
        ),
    ] = "res12",
    head: Annotated[str, typer.Option(help=f"{HEADS.choices()}.")] = "protonet",
    recipe: Annotated[
        Literal["paper", "released"],
        typer.Option(help="Defaults of the stages' options: the paper's, or those of the released checkpoints."),
    ] = "paper",
    init: Annotated[
        Path | None, typer.Option(help="Pretrained checkpoint for --stage meta; none: from scratch.")
    ] = None,
    device: Device = "auto",
    half: Annotated[bool, typer.Option(help="Write matrices as float16.")] = False,
    max_seconds: MaxSeconds = None,
    shared: Annotated[dict[str, Any], SHARED],
    first: Annotated[dict[str, Any], PRETRAIN],
    second: Annotated[dict[str, Any], META],
) -> None:
    """Train a few-shot model; a killed run goes on where its state was last saved."""
    import torch

    from onesdaug.data.registry import load_split
    from onesdaug.fewshot.meta import meta_train
    from onesdaug.fewshot.pretrain import pretrain, with_more

    chosen = device if device != "auto" else "cuda" if torch.cuda.is_available() else "cpu"
    plain, episodic = _paper(backbone, head) if recipe == "paper" else _released(pictures.data, backbone, head)
    plain = replace(plain, **shared, **first)
    from_scratch: dict[str, Any] = {"fix_bn": False} if stage == "meta" and init is None else {}
    episodic = replace(episodic, **shared, **(from_scratch | second))
    fitted: dict[str, Any] = {name: None for name in ("temperature", "temperature2") if getattr(episodic, name) == 0}
    episodic = replace(episodic, **fitted)
    data, cache = pictures.data, pictures.cache
    train_set, val_set = (load_split(data, split, pictures.root, cache=cache) for split in ("train", "val"))
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
                more = train_set if pictures.also is None else with_more(train_set, pictures.also, val_set, cache)
                card = pretrain(plain, more, val_set, begin, **common)
                typer.echo(f"{begin}: validation {card['validation']['score']:.2f} %, {card['seconds']} s")
        if stage in ("meta", "all"):
            card = meta_train(episodic, begin, train_set, val_set, output, **common)
            typer.echo(f"{output}: validation {card['validation']['score']:.2f} %, {card['seconds']} s")


@app.command(
    cls=WithRay,
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
    *,
    cluster: Annotated[RayOptions, CLUSTER],
) -> None:
    """Embed every image and its K views into a feature bank. A killed run goes on where it stopped."""
    import torch

    from onesdaug.common.devices import pick_device
    from onesdaug.common.provenance import commit
    from onesdaug.data.registry import load_data
    from onesdaug.encoders.load import load_encoder
    from onesdaug.fewshot import embed as stage
    from onesdaug.fewshot.bank import ORACLE
    from onesdaug.fewshot.views import Views, resolve_views
    from onesdaug.scale.spread import embedding

    dtypes = {"float16": torch.float16, "float32": torch.float32}
    if dtype not in dtypes:
        raise ConfigError(f"dtype must be float16 or float32, not {dtype!r}")
    if (views == "none") != (k == 0):
        raise ConfigError(f"--views {views} with --k {k}: views need --k of at least 1, and --k needs --views")
    source: Views | str | None = None
    if views != "none":
        source = ORACLE if views == ORACLE else resolve_views(views, preset, device)
    images = load_data(data, split, root, "test").sample(per_class)
    network = load_encoder(encoder, pick_device(device))
    with embedding(cluster, device):
        bank = stage.embed(images, network, output, source, k, seed=seed, dtype=dtypes[dtype], commit=commit())
    typer.echo(f"{output}: {len(images)} images of {images.n_classes} classes, {bank.k} views each, d = {bank.dim}")


def _paper(backbone: str, head: str) -> tuple[PretrainConfig, MetaConfig]:
    BACKBONES.check(backbone)
    return plain_recipe(backbone), replace(PAPER_FEAT if head == "feat" else PAPER_PROTONET, head=head)


def _released(data: str, backbone: str, head: str) -> tuple[PretrainConfig, MetaConfig]:
    """Made for this benchmark, else for another one with the same backbone and head, else the paper's."""
    plain, episodic = _paper(backbone, head)
    return released_pretrain(data, backbone) or plain, released_meta(data, backbone, head) or episodic
