"""A vision-language model on this machine: its files and what they hold; nothing is downloaded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from onesdaug.common.hub import find, fingerprint, how_to_get, loading, needs_extra
from onesdaug.errors import WeightsMissing


def locate(source: str) -> Path:
    """The folder of a model: given as one, or a hub id whose files are in the local cache."""
    folder = find(source, "vision-language model", "a folder in transformers format or a hub id")
    parts = {"config.json": (folder / "config.json").is_file(), "weights": bool(_weights(folder))}
    if absent := [name for name, there in parts.items() if not there]:
        raise WeightsMissing(
            f"{source} is not a whole model in transformers format: no {' and no '.join(absent)} in {folder}. "
            f"{how_to_get(source)}"
        )
    return folder


def content(folder: Path) -> str:
    """Name of everything in a model's folder that decides its answers."""
    return fingerprint([*_weights(folder), *folder.glob("*.json"), *folder.glob("*.jinja"), *folder.glob("*.model")])


def load(folder: Path, source: str, dtype: Any, device: Any, spread: bool) -> tuple[Any, Any]:
    """Processor and frozen model; `spread` lets accelerate place it over the devices there are."""
    try:
        from transformers import AutoModelForImageTextToText, AutoProcessor
    except ImportError as error:
        raise needs_extra("a local vision-language model") from error
    with loading(source, how_to_get(source), kind="an image-text-to-text model"):
        processor = AutoProcessor.from_pretrained(folder)
        place = {"device_map": "auto"} if spread else {}
        model = AutoModelForImageTextToText.from_pretrained(folder, torch_dtype=dtype, **place)
        model = model if spread else model.to(device)
    return processor, model.eval().requires_grad_(False)


def _weights(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.safetensors")) or sorted(folder.glob("*.bin"))
