"""Stable Diffusion's files in diffusers format: what must be there, what it says it is, and its text encoder."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import torch

from onesdaug.errors import ConfigError, WeightsMissing

_NAMES = ("diffusion_pytorch_model", "model", "pytorch_model")  # of weight files
REPO = "stable-diffusion-v1-5/stable-diffusion-v1-5"
PARTS = ("unet", "vae", "text_encoder", "scheduler", "tokenizer")
PATTERNS = [
    *(f"{part}/*.json" for part in PARTS[:4]),
    "tokenizer/*",
    *(f"{part}/*model.safetensors" for part in ("unet", "vae", "text_encoder")),
]


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
    encoder.to("meta")  # hands its weights back now, whatever still refers to it
    if device.type == "cuda":
        torch.cuda.empty_cache()
    return hidden
