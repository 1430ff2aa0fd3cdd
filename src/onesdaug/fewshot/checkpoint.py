"""How a trained head comes back from a checkpoint; its encoder does so by `load_encoder`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from onesdaug.encoders.checkpoint import load_checkpoint, part
from onesdaug.encoders.load import build_backbone
from onesdaug.fewshot.heads import Head, build_head


def load_head(folder: Path | str, **overrides: Any) -> Head | None:
    """The head a checkpoint was meta-trained with; None for a pretrained backbone."""
    tensors, card = load_checkpoint(folder)
    described = card.get("head")
    if described is None:
        return None
    dim = build_backbone(card["backbone"], seed=0).dim
    head = build_head(described["name"], dim, **{**described["settings"], **overrides})
    head.load_state_dict(part(tensors, "head"))
    return head.eval()
