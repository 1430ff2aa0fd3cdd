"""Heads: (support, query) features to logits, one method per file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from onesdaug.common.own import made
from onesdaug.common.registry import HEADS, check_complete
from onesdaug.encoders.checkpoint import EncoderCard, by_card, load_checkpoint, part
from onesdaug.encoders.load import build_backbone, checkpoint_folder
from onesdaug.errors import ConfigError
from onesdaug.fewshot.heads.base import Head, as_head
from onesdaug.fewshot.heads.baseline import ClassifierBaseline, MetaBaseline
from onesdaug.fewshot.heads.feat import FEAT
from onesdaug.fewshot.heads.protonet import ProtoNet

__all__ = [
    "FEAT", "HEADS", "ClassifierBaseline", "Head", "MetaBaseline", "ProtoNet", "as_head", "build_head", "load_head",
    "trained_head",
]  # fmt: skip


def build_head(name: str, dim: int, **settings: Any) -> Head:
    """The head of that name for d-dimensional features; `settings` are the head's own (metric, temperature, …)."""
    found = HEADS.get(name)
    if not (isinstance(found, type) and issubclass(found, Head)):
        if settings:
            raise ConfigError(f"head {name!r} takes no {', '.join(settings)}: those are settings of ours")
        return as_head(made(found, f"head {name}"), name)
    check_complete("head", found)
    try:
        return found.build(dim, **settings)
    except TypeError as error:
        raise ConfigError(f"head {name!r} does not take these settings {sorted(settings)}: {error}") from error


def load_head(folder: Path | str, **overrides: Any) -> Head | None:
    """The head a checkpoint was meta-trained with; None for a pretrained backbone."""
    tensors, card = load_checkpoint(folder, EncoderCard)
    described = card.get("head")
    if described is None:
        return None
    with by_card(folder):
        dim = build_backbone(card["backbone"], seed=0).dim
        head = build_head(described["name"], dim, **{**described["settings"], **overrides})
        head.load_state_dict(part(tensors, "head"))
    return head.eval()


def trained_head(encoder: str) -> Head | None:
    """The head trained with the checkpoint that an encoder's name stands for, where there is one."""
    folder = checkpoint_folder(encoder)
    return None if folder is None else load_head(folder)
