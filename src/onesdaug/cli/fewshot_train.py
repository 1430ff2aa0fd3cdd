"""`onesdaug fewshot train`: base-class pretraining, then episodic meta-training."""

from __future__ import annotations

import time
from dataclasses import fields, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from onesdaug.cli.options import From, options
from onesdaug.cli.screen import resumable
from onesdaug.common.options import Device, MaxSeconds, Root
from onesdaug.common.registry import BACKBONES, HEADS
from onesdaug.fewshot.recipes import (
    PAPER_FEAT,
    PAPER_PROTONET,
    MetaConfig,
    Optimisation,
    PretrainConfig,
    released_meta,
    released_pretrain,
)

_OWN = ("lr", "scheduler", "step_size", "gamma")  # shared fields that are meta-training's alone, or told apart
_SHARED = tuple(f.name for f in fields(Optimisation) if f.name not in _OWN)
SHARED = From(Optimisation, {"eval_shots": "eval-shot"}, panel="Both stages", only=_SHARED, partial=True)
_OTHERS = (*_SHARED, *_OWN[1:], "backbone")
PRETRAIN = From(PretrainConfig, {"lr": "pretrain-lr"}, panel="Pretraining", without=_OTHERS, partial=True)
_NAMES = {"scheduler": "lr-scheduler", "use_euclidean": "use-euclidean/--use-cosine"}
META = From(MetaConfig, _NAMES, panel="Meta-training", without=(*_SHARED, "head"), partial=True)


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


def _paper(backbone: str, head: str) -> tuple[PretrainConfig, MetaConfig]:
    BACKBONES.check(backbone)
    return PretrainConfig(backbone=backbone), replace(PAPER_FEAT if head == "feat" else PAPER_PROTONET, head=head)


def _released(data: str, backbone: str, head: str) -> tuple[PretrainConfig, MetaConfig]:
    """Made for this benchmark, else for another one with the same backbone and head, else the paper's."""
    plain, episodic = _paper(backbone, head)
    return released_pretrain(data, backbone) or plain, released_meta(data, backbone, head) or episodic
