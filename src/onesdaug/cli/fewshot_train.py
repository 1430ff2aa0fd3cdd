"""`onesdaug fewshot train`: base-class pretraining, then episodic meta-training."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

Stage = Literal["pretrain", "meta", "all"]
OUT_OF_TIME = 3


def train(
    data: Annotated[
        str, typer.Option(help="A benchmark's name, or your folder with train/ and val/ (or zips, CSVs).")
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="Checkpoint folder to write; state goes beside it.")],
    root: Annotated[Path | None, typer.Option(help="Where benchmarks lie; default: $ONESDAUG_DATA.")] = None,
    stage: Annotated[Stage, typer.Option(help="pretrain, meta, or both.")] = "all",
    backbone: Annotated[str, typer.Option(help="convnet or res12.")] = "res12",
    head: Annotated[str, typer.Option(help="protonet, feat or meta-baseline.")] = "protonet",
    recipe: Annotated[
        Literal["paper", "released"],
        typer.Option(
            help="Defaults for all that follows: the paper's arguments, or those of the released checkpoints."
        ),
    ] = "paper",
    init: Annotated[
        Path | None, typer.Option(help="Pretrained checkpoint for --stage meta; none: from scratch.")
    ] = None,
    epochs: Annotated[int | None, typer.Option(help="Pretraining epochs.")] = None,
    batch: Annotated[int | None, typer.Option(help="Pretraining batch.")] = None,
    pretrain_lr: Annotated[float | None, typer.Option(help="Pretraining learning rate.")] = None,
    label_smoothing: Annotated[float | None, typer.Option(help="Pretraining only.")] = None,
    rotate: Annotated[float | None, typer.Option(help="Pretraining: share of images shown turned.")] = None,
    way: Annotated[int | None, typer.Option(help="Classes in an episode.")] = None,
    shot: Annotated[list[int] | None, typer.Option(help="Support images per class; repeat to alternate.")] = None,
    query: Annotated[int | None, typer.Option(help="Query images per class.")] = None,
    max_epoch: Annotated[int | None, typer.Option(help="Meta-training epochs.")] = None,
    episodes_per_epoch: Annotated[int | None, typer.Option(help="Episodes in an epoch.")] = None,
    tasks: Annotated[int | None, typer.Option(help="Episodes per optimiser step.")] = None,
    num_eval_episodes: Annotated[int | None, typer.Option(help="Validation episodes.")] = None,
    eval_way: Annotated[int | None, typer.Option(help="Classes in a validation episode.")] = None,
    eval_shot: Annotated[list[int] | None, typer.Option(help="Validation shots; repeat for the mean.")] = None,
    eval_query: Annotated[int | None, typer.Option(help="Validation queries per class.")] = None,
    eval_every: Annotated[int | None, typer.Option(help="Epochs between validations.")] = None,
    lr: Annotated[float | None, typer.Option(help="Meta-training learning rate of the backbone.")] = None,
    lr_mul: Annotated[float | None, typer.Option(help="How much faster FEAT's set function learns.")] = None,
    lr_scheduler: Annotated[Literal["step", "cosine"] | None, typer.Option(help="Meta-training.")] = None,
    step_size: Annotated[int | None, typer.Option(help="Epochs between two drops of the rate.")] = None,
    gamma: Annotated[float | None, typer.Option(help="Factor of each drop.")] = None,
    momentum: Annotated[float | None, typer.Option(help="SGD.")] = None,
    weight_decay: Annotated[float | None, typer.Option(help="SGD.")] = None,
    temperature: Annotated[float | None, typer.Option(help="Of the logits; 0: fitted on validation episodes.")] = None,
    temperature2: Annotated[float | None, typer.Option(help="Of FEAT's contrastive term; 0: as temperature.")] = None,
    balance: Annotated[float | None, typer.Option(help="Weight of FEAT's contrastive term.")] = None,
    use_euclidean: Annotated[bool | None, typer.Option("--use-euclidean/--use-cosine")] = None,
    fix_bn: Annotated[bool | None, typer.Option(help="Keep the batch statistics of pretraining.")] = None,
    ema: Annotated[float | None, typer.Option(help="Decay of averaged weights; 0: none.")] = None,
    resize: Annotated[int | None, typer.Option(help="Evaluation's short side; none: chosen on validation.")] = None,
    seed: Annotated[int, typer.Option(help="Same seed, same result on the same machine.")] = 0,
    device: Annotated[str, typer.Option(help="cpu, cuda, cuda:1; auto: a GPU if there is one.")] = "auto",
    half: Annotated[bool, typer.Option(help="Write matrices as float16.")] = False,
    cache: Annotated[Path | None, typer.Option(help="Keep decoded images here.")] = None,
    max_seconds: Annotated[float | None, typer.Option(help="Stop after this long; the same command goes on.")] = None,
) -> None:
    """Train a few-shot model; a killed run goes on where its state was last saved."""
    import time

    import torch

    from onesdaug.common.registry import BACKBONES
    from onesdaug.data.registry import load_split
    from onesdaug.fewshot.meta import meta_train
    from onesdaug.fewshot.pretrain import pretrain
    from onesdaug.fewshot.recipes import (
        PAPER_FEAT,
        PAPER_PROTONET,
        MetaConfig,
        PretrainConfig,
        released_meta,
        released_pretrain,
    )  # fmt: skip
    from onesdaug.training.loop import OutOfTime

    shared: dict[str, Any] = {
        "ema": ema, "resize": resize, "seed": seed, "num_eval_episodes": num_eval_episodes, "eval_every": eval_every,
        "momentum": momentum, "weight_decay": weight_decay, "eval_way": eval_way, "eval_query": eval_query,
        "eval_shots": tuple(eval_shot) if eval_shot else None,
    }  # fmt: skip
    first = {"epochs": epochs, "batch": batch, "lr": pretrain_lr, "label_smoothing": label_smoothing, "rotate": rotate}
    second = {
        "way": way, "shot": tuple(shot) if shot else None, "query": query, "max_epoch": max_epoch, "tasks": tasks,
        "episodes_per_epoch": episodes_per_epoch, "lr": lr, "lr_mul": lr_mul, "scheduler": lr_scheduler,
        "step_size": step_size, "gamma": gamma, "temperature": temperature, "temperature2": temperature2,
        "balance": balance, "use_euclidean": use_euclidean, "fix_bn": fix_bn,
    }  # fmt: skip
    chosen = device if device != "auto" else "cuda" if torch.cuda.is_available() else "cpu"
    BACKBONES.check(backbone)
    base = PretrainConfig(backbone=backbone)
    start = replace(PAPER_FEAT if head == "feat" else PAPER_PROTONET, head=head)
    if recipe == "released":  # made for this benchmark, else for another one with the same backbone and head
        base = released_pretrain(data, backbone) or base
        start = released_meta(data, backbone, head) or start
    plain: PretrainConfig = _override(base, {**shared, **first})
    from_scratch = stage == "meta" and init is None
    episodic: MetaConfig = _override(start, {**shared, "fix_bn": False if from_scratch else None, **second})
    if episodic.temperature == 0:
        episodic = replace(episodic, temperature=None)
    if episodic.temperature2 == 0:
        episodic = replace(episodic, temperature2=None)

    train_set = load_split(data, "train", root, cache=cache)
    val_set = load_split(data, "val", root, cache=cache)
    common: dict[str, Any] = {
        "data_name": data, "device": chosen, "half": half,
        "deadline": None if max_seconds is None else time.monotonic() + max_seconds,
    }  # fmt: skip
    try:
        begin: Path | str = init or backbone
        if stage in ("pretrain", "all"):
            begin = out if stage == "pretrain" else out.with_name(f"{out.name}-pretrained")
            if stage == "all" and (begin / "card.json").is_file():
                typer.echo(f"{begin} is there: no pretraining")
            else:
                card = pretrain(plain, train_set, val_set, begin, **common)
                typer.echo(f"{begin}: validation {card['validation']['score']:.2f} %, {card['seconds']} s")
        if stage in ("meta", "all"):
            card = meta_train(episodic, begin, train_set, val_set, out, **common)
            typer.echo(f"{out}: validation {card['validation']['score']:.2f} %, {card['seconds']} s")
    except OutOfTime as late:
        typer.echo(f"{late}: run the same command again to go on", err=True)
        raise typer.Exit(OUT_OF_TIME) from late


def _override(config: Any, given: dict[str, Any]) -> Any:
    """The config with what was given on the command line."""
    known = {f.name for f in fields(config)}
    return replace(config, **{k: v for k, v in given.items() if k in known and v is not None})
