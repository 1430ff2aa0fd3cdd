"""A tiny decoder in place of the VAE's: diffusers' AutoencoderTiny (TAESD), a twentieth of the cost, less detail."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch

from onesdaug.common.hub import find, how_to_get, loading
from onesdaug.errors import ConfigError, WeightsMissing
from onesdaug.generators.sd.files import component

PATTERNS = ["config.json", "*.safetensors"]


def load_decoder(
    source: str | Path, device: torch.device, dtype: torch.dtype, channels: int, factor: int
) -> tuple[Any, list[Path]]:
    """An AutoencoderTiny from a folder or the hub's cache, and its files; it must fit latents of this kind."""
    folder, advice = find(source, "the tiny decoder", "a folder or a hub id", PATTERNS), how_to_get(source, PATTERNS)
    config = folder / "config.json"
    if not config.is_file() or not component(folder)[0]:
        raise WeightsMissing(f"{folder} holds no config.json with weights beside it. {advice}")
    kind = json.loads(config.read_text()).get("_class_name")
    if kind != "AutoencoderTiny":
        raise ConfigError(f"{folder} is {kind or 'of no known kind'}; a decoder here is an AutoencoderTiny (TAESD)")
    from diffusers import AutoencoderTiny

    with loading(f"the tiny decoder in {folder}", advice):
        tiny = AutoencoderTiny.from_pretrained(folder, torch_dtype=dtype, variant=component(folder)[1])
    tiny = tiny.to(device).eval().requires_grad_(False)
    check_fit(tiny, channels, factor, str(folder))
    return tiny, [*component(folder)[0], config]


@torch.no_grad()
def check_fit(tiny: Any, channels: int, factor: int, name: str) -> None:
    """One small picture tells whether it reads these latents and draws at their scale."""
    weight = next(tiny.decoder.parameters())
    side = 2
    try:
        drawn = tiny.decode(torch.zeros(1, channels, side, side, device=weight.device, dtype=weight.dtype)).sample
    except RuntimeError:
        raise ConfigError(f"{name} does not read latents of {channels} channels, as this model's are") from None
    if drawn.shape != (1, 3, side * factor, side * factor):
        made = drawn.shape[-1] // side
        raise ConfigError(f"{name} draws {made} pixels per latent, this model needs {factor}")
