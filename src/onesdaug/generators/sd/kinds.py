"""Which of the many things called Stable Diffusion a checkpoint is, told by its small files or its name.

What cannot be used is refused before gigabytes are downloaded or loaded for it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, Field

from onesdaug.common.reading import read_json
from onesdaug.errors import ConfigError, DataError

SUPPORTED = "Stable Diffusion 1.x and 2.x and fine-tunes of them, each a folder in diffusers format or a hub id of one"
_FILES = (".safetensors", ".ckpt", ".pt", ".pth", ".bin", ".gguf")
_XL, _SD3, _CONTROL = "Stable Diffusion XL", "Stable Diffusion 3", "a ControlNet, which steers another model"
_LORA = "a LoRA, which changes another model (merge it into that one with diffusers' fuse_lora, and save the whole)"
_SINGLE = (
    "a single-file checkpoint (make a folder of it with diffusers: "
    "StableDiffusionPipeline.from_single_file(FILE).save_pretrained(FOLDER))"
)
_EDITS = "a model for inpainting, editing or upscaling, whose UNet takes more than a noisy picture"
# of names of classes, hub ids and tensors
_WORDS = {
    r"lora|adapter_config": _LORA,
    r"control[-_]?(net|model|lora|v1)|t2i[-_]?adapter": _CONTROL,
    r"sdxl|stable-?diffusion-?xl|\bxl\b": _XL,
    r"stable-?diffusion-?3|\bsd-?3": _SD3,
    r"flux": "FLUX",
    r"inpaint|pix2pix|upscale|depth2img": _EDITS,
}


class UNetConfig(BaseModel):
    """What is relied on of unet/config.json."""

    sample_size: Annotated[int, Field(ge=1, le=1024)]
    in_channels: Annotated[int, Field(ge=1, le=1024)] = 4
    addition_embed_type: str | None = None
    class_embed_type: str | None = None
    num_class_embeds: int | None = None


def check_folder(folder: Path) -> None:
    """Refuse a file or folder that is something else."""
    if (found := unsupported(folder)) is not None:
        raise _refusal(folder, f"is {found}")


def check_name(hub_id: str) -> None:
    """Refuse a hub id, of which nothing is here yet, by its name."""
    if (found := _by_words([hub_id])) is not None:
        raise _refusal(hub_id, f"is by its name {found}")


def unsupported(path: Path) -> str | None:
    """What a file or folder is, if that is known and cannot be used."""
    if not path.is_dir():
        return (_by_words(_tensor_names(path)) or _SINGLE) if path.suffix in _FILES else None
    for name in ("model_index.json", "config.json"):
        if (found := _by_words([_class_name(path / name)])) is not None:
            return found
    if (path / "unet").is_dir():
        return _by_unet(path)
    if (path / "transformer").is_dir():
        return f"a diffusion transformer ({_SD3}, FLUX and the like)"
    return _LORA if _by_words(file.name for file in path.glob("*.*")) == _LORA else None


def _by_unet(folder: Path) -> str | None:
    config = folder / "unet" / "config.json"
    if not config.is_file():
        return None  # incomplete: said as such
    unet = read_json(config, UNetConfig, "the settings of a Stable Diffusion UNet")
    if unet.addition_embed_type is not None or (folder / "text_encoder_2").is_dir():
        return _XL
    return _EDITS if unet.in_channels != 4 or unet.class_embed_type or unet.num_class_embeds else None


def _by_words(texts: Iterable[str]) -> str | None:
    for text in texts:
        for pattern, kind in _WORDS.items():
            if re.search(pattern, text.replace("_", "-"), re.IGNORECASE) or re.search(pattern, text, re.IGNORECASE):
                return kind
    return None


def _class_name(file: Path) -> str:
    try:
        return str(read_json(file, dict[str, Any], "")["_class_name"])
    except (DataError, KeyError):
        return ""


def _tensor_names(file: Path) -> list[str]:
    """Of a safetensors file, from its header."""
    try:
        with file.open("rb") as handle:
            size = int.from_bytes(handle.read(8), "little")
            return list(json.loads(handle.read(min(size, 2**26))))
    except (OSError, ValueError, RecursionError, TypeError):
        return []


def _refusal(source: object, what: str) -> ConfigError:
    return ConfigError(f"{source} {what}; supported are {SUPPORTED}")
