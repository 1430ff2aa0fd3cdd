"""Stable Diffusion from a folder in diffusers format or the hub's local cache, with IP-Adapter and a tiny decoder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from onesdaug.common.devices import pick_device, pick_dtype
from onesdaug.common.hub import find, fingerprint, how_to_get, loading, needs_extra
from onesdaug.common.options import IP_REPO
from onesdaug.common.reading import read_json
from onesdaug.encoders.checkpoint import by_card
from onesdaug.errors import ConfigError, WeightsMissing
from onesdaug.generators.schedule import Schedule, SchedulerConfig
from onesdaug.generators.sd import ip_adapter as adapters
from onesdaug.generators.sd.attention import PlainAttention
from onesdaug.generators.sd.files import PATTERNS, REPO, component, encode_text, model_files, prediction_type
from onesdaug.generators.sd.kinds import check_folder, check_name

DECODER_PATTERNS = ["config.json", "*.safetensors"]


def load_parts(
    source: str | Path = "sd15",
    *,
    device: str | torch.device = "auto",
    dtype: str | torch.dtype = "auto",
    ip_adapter: bool = True,
    ip_repo: str | Path = IP_REPO,
    ip_weights: str | None = None,
    vae_tiling: bool = False,
    vae_slicing: bool = False,
    side: int | None = None,
    decoder: str | Path | None = None,
) -> dict[str, Any]:
    """What `StableDiffusion` is made of; `ip_adapter=False` for no image branch."""
    at = pick_device(device)
    kind = pick_dtype(dtype, at)
    source = REPO if str(source) == "sd15" else source
    if decoder is not None and (vae_tiling or vae_slicing):
        raise ConfigError("a tiny decoder needs neither vae_tiling nor vae_slicing; leave them out")
    folder = _find(source)
    files = model_files(folder, how_to_get(source, PATTERNS))
    adapter_files = adapters.locate(ip_repo, ip_weights) if ip_adapter else None
    with by_card(folder / "scheduler"):
        file = folder / "scheduler" / "scheduler_config.json"
        scheduler = read_json(file, SchedulerConfig, "the settings of a diffusers scheduler").model_dump()
        schedule, velocity = Schedule.from_scheduler_config(scheduler), prediction_type(scheduler) == "v_prediction"
    unet, vae, text = _networks(folder, at, kind, how_to_get(source, PATTERNS))
    check_side(side, unet, vae)
    adapter, tiny, name = None, None, f"{str(kind).removeprefix('torch.')}{f':{side}px' if side else ''}"
    if decoder is not None:
        tiny, drawing = load_decoder(decoder, at, kind, int(unet.config.in_channels), pixels_per_latent(vae))
        name += f":{fingerprint(drawing)}"
    if adapter_files is None:
        unet.set_attn_processor(PlainAttention())
    else:
        with loading(f"IP-Adapter {adapter_files.weights}", adapter_files.advice):
            adapter = adapters.install(unet, adapter_files, text_tokens=text.shape[0])
        files += adapter_files.all
    if vae_tiling:
        enable_tiling(vae, side // pixels_per_latent(vae) if side else int(unet.config.sample_size))
    if vae_slicing:
        vae.enable_slicing()
    networks = {"unet": unet, "vae": vae, "adapter": adapter, "decoder": tiny, "text": {"": text}}
    facts = {"schedule": schedule, "velocity": velocity, "folder": folder}
    mark = f"sd:{fingerprint(files)}:{name}"
    return {**networks, **facts, "device": at, "dtype": kind, "side": side, "fingerprint": mark}


def _find(source: str | Path) -> Path:
    check_folder(Path(source).expanduser())
    try:
        import diffusers  # noqa: F401
    except ImportError as error:
        raise needs_extra("Stable Diffusion") from error
    try:
        folder = find(source, "Stable Diffusion", "a folder in diffusers format or a hub id", PATTERNS)
    except WeightsMissing:
        check_name(str(source))
        raise
    check_folder(folder)
    return folder


def _networks(folder: Path, device: torch.device, dtype: torch.dtype, advice: str) -> tuple[Any, Any, torch.Tensor]:
    """The UNet, the VAE, and the tokens of the empty prompt."""
    from diffusers import AutoencoderKL, UNet2DConditionModel

    with loading(f"Stable Diffusion in {folder}", advice):
        unet, vae = (
            part.from_pretrained(folder / name, torch_dtype=dtype, variant=component(folder / name)[1])
            for part, name in ((UNet2DConditionModel, "unet"), (AutoencoderKL, "vae"))
        )
        return unet, vae, encode_text(folder, "", device, dtype)


def load_decoder(
    source: str | Path, device: torch.device, dtype: torch.dtype, channels: int, factor: int
) -> tuple[Any, list[Path]]:
    """A tiny decoder (diffusers' AutoencoderTiny, TAESD: a twentieth of the cost, less detail) and its files.

    It must fit latents of this kind.
    """
    folder = find(source, "the tiny decoder", "a folder or a hub id", DECODER_PATTERNS)
    advice = how_to_get(source, DECODER_PATTERNS)
    config = folder / "config.json"
    if not config.is_file() or not component(folder)[0]:
        raise WeightsMissing(f"{folder} holds no config.json with weights beside it. {advice}")
    kind = read_json(config, dict[str, Any], "the settings of a decoder").get("_class_name")
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


def pixels_per_latent(vae: Any) -> int:
    return int(2 ** (len(vae.config.block_out_channels) - 1))


def check_side(side: int | None, unet: Any, vae: Any) -> None:
    """A side that the UNet can halve as often as it does; SD 1.5: a multiple of 64."""
    step = pixels_per_latent(vae) * 2 ** (len(unet.config.block_out_channels) - 1)
    if side is not None and (side < step or side % step):
        raise ConfigError(f"side must be a multiple of {step} for this model, got {side}")


def enable_tiling(vae: Any, latent_side: int) -> None:
    """Tiles of half the side: at the VAE's own tile size, which is the generator's side, nothing would be tiled."""
    vae.enable_tiling()
    vae.tile_latent_min_size = latent_side // 2
    vae.tile_sample_min_size = vae.tile_latent_min_size * 2 ** (len(vae.config.block_out_channels) - 1)
