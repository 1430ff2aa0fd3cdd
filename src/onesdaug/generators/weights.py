"""Weight files of diffusers and transformers: which of them are read, and how."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import torch

ACCEPTED = "sd15, a folder in diffusers format or a hub id (or shape, for geometry alone)"
_NAMES = ("diffusion_pytorch_model", "model", "pytorch_model")


def component(folder: Path) -> tuple[list[Path], str | None]:
    """The weight files that loading this folder really reads, and the variant to ask for; no files: none usable.

    Full precision before fp16, .safetensors before .bin; other variants (non_ema and such) are never read.
    """
    names = "|".join(_NAMES)
    for variant in ("", ".fp16"):
        for suffix in ("safetensors", "bin"):
            # shards are called model-00001-of-00002 (a variant's name stands before or after that)
            shard = r"(-\d{5}-of-\d{5})?"
            wanted = re.compile(rf"({names}){re.escape(variant)}{shard}{re.escape(variant)}\.{suffix}|"
                                rf"({names}){shard}{re.escape(variant)}\.{suffix}")  # fmt: skip
            files = sorted(f for f in folder.glob(f"*.{suffix}") if wanted.fullmatch(f.name))
            if files:
                return files, variant.lstrip(".") or None
    return [], None


def load_state(file: Path) -> dict[str, Any]:
    """Tensors of a .safetensors or .bin file. Pickles are opened with weights_only: no code in them ever runs."""
    if file.suffix == ".safetensors":
        from safetensors.torch import load_file

        return dict(load_file(file))
    return dict(torch.load(file, map_location="cpu", weights_only=True))
