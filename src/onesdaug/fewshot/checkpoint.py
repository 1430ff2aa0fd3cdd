"""What training writes beside weights, and how a trained head comes back."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from onesdaug import __version__
from onesdaug.data.dataset import Dataset
from onesdaug.encoders.checkpoint import load_checkpoint, part
from onesdaug.encoders.load import build_backbone
from onesdaug.fewshot.heads import Head, build_head


def commit() -> str:
    """`ONESDAUG_COMMIT` if set (a copied tree's own git may lag behind), else git's, with a plus for changed files."""
    if named := os.environ.get("ONESDAUG_COMMIT"):
        return named
    here = Path(__file__).parent
    try:
        head = subprocess.run(
            ["git", "describe", "--always", "--abbrev=12", "--dirty=+", "--exclude=*"],
            cwd=here, capture_output=True, text=True, timeout=10, check=True,
        )  # fmt: skip
        return head.stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return f"release {__version__}"


def describe_data(name: str, train: Dataset, val: Dataset) -> dict[str, Any]:
    return {
        "name": name,
        "train": {"fingerprint": train.fingerprint, "classes": train.n_classes, "images": len(train)},
        "val": {"fingerprint": val.fingerprint, "classes": val.n_classes, "images": len(val)},
    }


def describe_machine(device: torch.device) -> dict[str, str]:
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else platform.processor() or "cpu"
    return {"device": name, "torch": torch.__version__, "python": platform.python_version()}


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
