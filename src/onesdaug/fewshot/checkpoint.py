"""What training writes beside weights, and how a trained head comes back."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from onesdaug.data.dataset import Dataset
from onesdaug.encoders.checkpoint import load_checkpoint, part
from onesdaug.encoders.load import build_backbone
from onesdaug.fewshot.heads import Head, build_head


def describe_data(name: str, train: Dataset, val: Dataset) -> dict[str, Any]:
    return {
        "name": name,
        "train": {"fingerprint": train.fingerprint, "classes": train.n_classes, "images": len(train)},
        "val": {"fingerprint": val.fingerprint, "classes": val.n_classes, "images": len(val)},
    }


def load_head(folder: Path | str, **overrides: Any) -> Head | None:
    """The head a checkpoint was meta-trained with; None for a pretrained backbone."""
    tensors, card = load_checkpoint(folder)
    described: Mapping[str, Any] | None = card.get("head")
    if described is None:
        return None
    dim = build_backbone(card["backbone"], seed=0).dim
    head = build_head(described["name"], dim, **{**described["settings"], **overrides})
    weights: dict[str, Tensor] = part(tensors, "head")
    head.load_state_dict(weights)
    return head.eval()
