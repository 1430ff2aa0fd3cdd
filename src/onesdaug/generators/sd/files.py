"""Stable Diffusion's files in diffusers format: what must be there, what it says it is, and its text encoder."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import torch

from onesdaug.errors import ConfigError, WeightsMissing
from onesdaug.generators.weights import component

PARTS = ("unet", "vae", "text_encoder", "scheduler", "tokenizer")
PATTERNS = [
    *(f"{part}/*.json" for part in PARTS[:4]),
    "tokenizer/*",
    *(f"{part}/*model.safetensors" for part in ("unet", "vae", "text_encoder")),
]


def model_files(folder: Path, advice: str) -> list[Path]:
    """Every file that decides the model's output; says which part is missing before anything is loaded."""
    files = [folder / "scheduler" / "scheduler_config.json", folder / "tokenizer" / "tokenizer_config.json"]
    missing = [file.parent.name for file in files if not file.is_file()]
    for name in ("unet", "vae", "text_encoder"):
        weights = component(folder / name)[0]
        if not weights or not (folder / name / "config.json").is_file():
            missing.append(name)
        files += [*weights, folder / name / "config.json"]
    if missing:
        raise WeightsMissing(
            f"{folder} is not a complete Stable Diffusion in diffusers format: {', '.join(missing)} missing. {advice}"
        )
    return files


def prediction_type(scheduler: dict[str, Any]) -> str:
    """What the UNet predicts; models trained in a way we cannot run are refused, not run wrongly."""
    kind = str(scheduler.get("prediction_type", "epsilon"))
    if kind not in ("epsilon", "v_prediction") or scheduler.get("rescale_betas_zero_snr"):
        raise ConfigError(
            f"this model's scheduler says prediction_type {kind!r}"
            f"{' with rescale_betas_zero_snr' if scheduler.get('rescale_betas_zero_snr') else ''}; "
            "only epsilon and v_prediction without it are known"
        )
    return kind


@torch.no_grad()
def encode_text(folder: Path, prompt: str, device: torch.device, dtype: torch.dtype) -> torch.Tensor:
    """(77, d) hidden states. The text encoder lives only for the length of this call."""
    from transformers import CLIPTextModel, CLIPTokenizer

    tokenizer = CLIPTokenizer.from_pretrained(folder / "tokenizer")
    weights = folder / "text_encoder"
    encoder = CLIPTextModel.from_pretrained(weights, variant=component(weights)[1], torch_dtype=dtype)
    length = tokenizer.model_max_length
    ids = tokenizer(prompt, padding="max_length", max_length=length, truncation=True, return_tensors="pt").input_ids
    hidden: torch.Tensor = encoder.to(device).eval()(ids.to(device))[0][0]
    del encoder
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()
    return hidden
