"""Stable Diffusion 1.5 + IP-Adapter as a Generator: diffusers' layers and weights, our own loop around them."""

from __future__ import annotations

import gc
import json
from pathlib import Path
from typing import Any

import torch

from onesdaug.errors import ConfigError, WeightsMissing
from onesdaug.generators import ip_adapter
from onesdaug.generators.attention import Attention, PlainAttention
from onesdaug.generators.machine import pick_device, pick_dtype
from onesdaug.generators.schedule import Schedule
from onesdaug.generators.weights import component, find, fingerprint, how_to_get, loading, needs_extra

REPO = "stable-diffusion-v1-5/stable-diffusion-v1-5"
PATTERNS = [
    *(f"{part}/*.json" for part in ("unet", "vae", "text_encoder", "scheduler")),
    "tokenizer/*",
    *(f"{part}/*model.safetensors" for part in ("unet", "vae", "text_encoder")),
]


class StableDiffusion:
    """UNet, VAE and (optionally) IP-Adapter. Tokens are rows of [77 text tokens; image tokens]."""

    def __init__(
        self,
        unet: Any,
        vae: Any,
        schedule: Schedule,
        text: dict[str, torch.Tensor],
        adapter: ip_adapter.IPAdapter | None,
        *,
        device: torch.device,
        dtype: torch.dtype,
        velocity: bool = False,
        folder: Path | None = None,
        fingerprint: str = "",
    ) -> None:
        self.unet = unet.to(device).eval().requires_grad_(False)
        self.vae = vae.to(device).eval().requires_grad_(False)
        self.adapter = None if adapter is None else adapter.to(device, dtype).eval().requires_grad_(False)
        self.schedule, self.device, self.dtype = schedule, device, dtype
        self.size = int(unet.config.sample_size) * 2 ** (len(vae.config.block_out_channels) - 1)
        self.fingerprint = fingerprint
        self._text = {prompt: rows.to(device, dtype) for prompt, rows in text.items()}
        self._null = None if self.adapter is None else self.adapter.null()
        self._folder = folder
        self._velocity = velocity
        self._abar = torch.tensor(schedule.abar, dtype=torch.float32, device=device)

    @classmethod
    def from_pretrained(
        cls,
        source: str | Path = REPO,
        *,
        ip_adapter_repo: str | Path | None = ip_adapter.REPO,
        ip_weights: str | None = None,
        device: str | torch.device = "auto",
        dtype: str | torch.dtype = "auto",
        vae_tiling: bool = False,
        vae_slicing: bool = False,
    ) -> StableDiffusion:
        """From a folder in diffusers format or the hub's local cache; `ip_adapter_repo=None` for no image branch."""
        try:
            from diffusers import AutoencoderKL, UNet2DConditionModel
        except ImportError as error:
            raise needs_extra("Stable Diffusion") from error
        at = pick_device(device)
        kind = pick_dtype(dtype, at)
        folder, advice = find(source, PATTERNS, "Stable Diffusion"), how_to_get(source, PATTERNS)
        files = model_files(folder, advice)
        adapter_files = None if ip_adapter_repo is None else ip_adapter.locate(ip_adapter_repo, ip_weights)
        scheduler = json.loads((folder / "scheduler" / "scheduler_config.json").read_text())
        prediction = prediction_type(scheduler)
        adapter = None
        with loading(f"Stable Diffusion in {folder}", advice):
            unet, vae = (
                part.from_pretrained(folder / name, torch_dtype=kind, variant=component(folder / name)[1])
                for part, name in ((UNet2DConditionModel, "unet"), (AutoencoderKL, "vae"))
            )
            text = encode_text(folder, "", at, kind)
        if adapter_files is None:
            unet.set_attn_processor(PlainAttention())
        else:
            with loading(f"IP-Adapter {adapter_files.weights}", adapter_files.advice):
                adapter = ip_adapter.install(unet, adapter_files, text_tokens=text.shape[0])
            files += adapter_files.all
        if vae_tiling:
            enable_tiling(vae, int(unet.config.sample_size))
        if vae_slicing:
            vae.enable_slicing()
        return cls(
            unet,
            vae,
            Schedule.from_scheduler_config(scheduler),
            {"": text},
            adapter,
            device=at,
            dtype=kind,
            velocity=prediction == "v_prediction",
            folder=folder,
            fingerprint=f"sd:{fingerprint(files)}:{str(kind).removeprefix('torch.')}",
        )

    @torch.no_grad()
    def encode(self, x: torch.Tensor) -> torch.Tensor:
        """Enc(x), the posterior's mean; SD's posterior is so narrow that sampling it would only cost a seed."""
        moments = self.vae.encode((2 * x - 1).to(self.device, self.dtype)).latent_dist
        z: torch.Tensor = moments.mode() * self.vae.config.scaling_factor
        return z.float()

    @torch.no_grad()
    def decode(self, z: torch.Tensor) -> torch.Tensor:
        """Dec(z) in [0, 1]."""
        image: torch.Tensor = self.vae.decode((z / self.vae.config.scaling_factor).to(self.dtype)).sample
        return (image.float() / 2 + 0.5).clamp(0, 1)

    def image_tokens(self, x: torch.Tensor, prompt: str = "") -> torch.Tensor:
        """[f_txt(prompt); f_img(x)], row i from image i."""
        text = self._text_rows(prompt, x.shape[0])
        return text if self.adapter is None else torch.cat([text, self.adapter.tokens(x)], dim=1)

    def null_tokens(self, n: int, prompt: str = "") -> torch.Tensor:
        """[f_txt(prompt); the adapter's "no image"]: the negative side of guidance with an empty prompt."""
        text = self._text_rows(prompt, n)
        return text if self._null is None else torch.cat([text, self._null.expand(n, -1, -1)], dim=1)

    @torch.no_grad()
    def predict(
        self,
        z: torch.Tensor,
        t: torch.Tensor,
        tokens: torch.Tensor,
        image_scale: torch.Tensor,
        attention: Attention = "decoupled",
    ) -> torch.Tensor:
        """eps_phi; a velocity-predicting UNet (v = alpha·eps − sigma·x0) is converted."""
        out = self.unet(
            z.to(self.dtype),
            t,
            encoder_hidden_states=tokens,
            cross_attention_kwargs={"image_scale": image_scale, "attention": attention},
            return_dict=False,
        )[0].float()
        if not self._velocity:
            return torch.as_tensor(out)
        abar = self._abar[t].reshape(-1, 1, 1, 1)
        return torch.as_tensor(abar.sqrt() * out + (1 - abar).sqrt() * z)

    def _text_rows(self, prompt: str, n: int) -> torch.Tensor:
        if prompt not in self._text:
            if self._folder is None:
                raise ValueError(f"no embedding of the prompt {prompt!r}, and no text encoder to make it")
            with loading(f"the text encoder in {self._folder}", ""):
                self._text[prompt] = encode_text(self._folder, prompt, self.device, self.dtype)
        return self._text[prompt].expand(n, -1, -1)


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


def enable_tiling(vae: Any, latent_side: int) -> None:
    """Tiles of half the side: at the VAE's own tile size, which is the generator's side, nothing would be tiled."""
    vae.enable_tiling()
    vae.tile_latent_min_size = latent_side // 2
    vae.tile_sample_min_size = vae.tile_latent_min_size * 2 ** (len(vae.config.block_out_channels) - 1)


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
