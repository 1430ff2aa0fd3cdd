"""IP-Adapter: image tokens from a CLIP vision tower, and their key and value projections in the UNet.

Knows the two formats of h94/IP-Adapter for SD 1.5: base (pooled embedding → 4 tokens) and plus (penultimate hidden
states → resampler → 16 tokens).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from onesdaug.common.hub import find, how_to_get
from onesdaug.data.pixels import to_uint8
from onesdaug.errors import ConfigError, WeightsMissing
from onesdaug.generators.sd.attention import ImageAttention, PlainAttention
from onesdaug.generators.sd.fast.clip_pixels import clip_pixels
from onesdaug.generators.sd.files import component, load_state

WEIGHTS = "ip-adapter_sd15"


@dataclass(frozen=True)
class Files:
    """Where one adapter lies, and how to get it if something is wrong with it."""

    weights: Path
    encoder: Path
    advice: str

    @property
    def all(self) -> list[Path]:
        """Everything that decides the adapter's output."""
        return [self.weights, *component(self.encoder)[0], self.encoder / "config.json"]


def patterns_of(stem: str = WEIGHTS) -> list[str]:
    """The files of h94/IP-Adapter that one adapter needs."""
    return [f"models/{stem}.safetensors", "models/image_encoder/*.json", "models/image_encoder/*.safetensors"]


def locate(repo: str | Path, weights: str | None = None) -> Files:
    """The adapter's weight file and its image encoder, in a folder laid out like h94/IP-Adapter, or beside a file."""
    name = Path(weights or WEIGHTS).name
    stem = name.removesuffix(".safetensors").removesuffix(".bin")
    patterns = patterns_of(stem)
    advice = how_to_get(repo, patterns)
    file = Path(repo).expanduser()
    if file.is_file():
        return Files(file, _encoder_beside(file.parent, advice), advice)
    root = find(repo, "IP-Adapter", "a folder laid out like h94/IP-Adapter, a weight file or a hub id", patterns)
    base = root / "models" if (root / "models").is_dir() else root
    if weights is None and not any(base.glob(f"{WEIGHTS}.*")):  # a local folder with one adapter of another name
        others = sorted(f.stem for f in base.iterdir() if f.suffix in (".safetensors", ".bin"))
        if len(others) > 1:
            raise ConfigError(f"{base} holds several adapters ({', '.join(others)}); choose one with ip_weights")
        stem = others[0] if others else stem
    for candidate in (base / name, base / f"{stem}.safetensors", base / f"{stem}.bin"):
        if candidate.is_file():
            return Files(candidate, _encoder_beside(base, advice), advice)
    raise WeightsMissing(f"IP-Adapter: {base} has no {stem}.safetensors or .bin. {advice}")


def _encoder_beside(base: Path, advice: str) -> Path:
    for folder in (base / "image_encoder", base.parent / "image_encoder", base.parent / "models" / "image_encoder"):
        if (folder / "config.json").is_file() and component(folder)[0]:
            return folder
    raise WeightsMissing(f"IP-Adapter: no image_encoder with its weights beside {base}. {advice}")


class IPAdapter(nn.Module):
    """f_img(x): PIL-exact CLIP preprocessing, the vision tower, and the projection to tokens.

    With `on_device` the preprocessing stays where the pictures are: a rare 8-bit step from PIL's, and no waiting.
    """

    on_device = False

    def __init__(self, encoder: Any, projection: nn.Module, pooled: bool) -> None:
        super().__init__()
        self.encoder, self.projection, self.pooled = encoder, projection, pooled
        self.side = int(encoder.config.image_size)
        self.processor = clip_processor(self.side)

    @torch.no_grad()
    def tokens(self, x: torch.Tensor) -> torch.Tensor:
        """(B, 3, H, W) in [0, 1] → (B, L, d). Resized on the host exactly as the adapter was trained."""
        if self.on_device:
            return self._project(self._features(clip_pixels(x, self.side)))
        pixels = self.processor(list(to_uint8(x)), return_tensors="pt").pixel_values
        return self._project(self._features(pixels))

    @torch.no_grad()
    def null(self) -> torch.Tensor:
        """One row for "no image": a zero embedding (base) or an all-zero input (plus), then the projection."""
        if self.pooled:
            weight = next(self.encoder.parameters())
            return self._project(weight.new_zeros(1, int(self.encoder.config.projection_dim)))
        return self._project(self._features(torch.zeros(1, 3, self.side, self.side)))

    def _features(self, pixels: torch.Tensor) -> torch.Tensor:
        parameter = next(self.encoder.parameters())
        pixels = pixels.to(parameter.device, parameter.dtype)
        if self.pooled:
            pooled: torch.Tensor = self.encoder(pixels).image_embeds
            return pooled
        hidden: torch.Tensor = self.encoder(pixels, output_hidden_states=True).hidden_states[-2]
        return hidden

    def _project(self, features: torch.Tensor) -> torch.Tensor:
        projected: torch.Tensor = self.projection(features)
        return projected


def install(unet: Any, files: Files, text_tokens: int) -> IPAdapter:
    """Put the adapter's projections into the UNet's cross-attention layers and return its image side."""
    from transformers import CLIPVisionModelWithProjection

    state = _grouped(load_state(files.weights), files.weights)
    pooled = "proj.weight" in state["image_proj"]
    encoder = CLIPVisionModelWithProjection.from_pretrained(
        files.encoder, variant=component(files.encoder)[1], torch_dtype=unet.dtype
    )
    _check_fit(unet, encoder, state, files.weights, pooled)
    return attach(unet, encoder, state, text_tokens)


def attach(unet: Any, encoder: Any, state: dict[str, dict[str, torch.Tensor]], text_tokens: int) -> IPAdapter:
    """The same with everything loaded already: the vision tower, and the adapter's weights in their two groups."""
    dtype = unet.dtype
    # diffusers knows how to turn the published names into modules; its own processors, which take one scalar scale
    # and mix up the references of a batch, are replaced by ours.
    unet._load_ip_adapter_weights([state], low_cpu_mem_usage=False)
    projection = unet.encoder_hid_proj.image_projection_layers[0]
    unet.encoder_hid_proj, unet.config.encoder_hid_dim_type = None, None
    unet.set_attn_processor({name: _ours(old, text_tokens) for name, old in unet.attn_processors.items()})
    unet.to(dtype=dtype)
    return IPAdapter(encoder.eval(), projection.eval(), "proj.weight" in state["image_proj"])


def _check_fit(unet: Any, encoder: Any, state: dict[str, dict[str, torch.Tensor]], file: Path, pooled: bool) -> None:
    """An adapter for SDXL, or one that wants another image encoder, loads only to fail later: say so now."""
    width = next(value for key, value in state["ip_adapter"].items() if key.endswith("to_k_ip.weight")).shape[1]
    if width != unet.config.cross_attention_dim:
        raise ConfigError(
            f"{file} is made for a UNet with cross-attention width {width}, this one has "
            f"{unet.config.cross_attention_dim}; take an adapter made for this model (SD 1.5: {WEIGHTS})"
        )
    wanted = state["image_proj"]["proj.weight" if pooled else "proj_in.weight"].shape[1]
    given = encoder.config.projection_dim if pooled else encoder.config.hidden_size
    if wanted != given:
        raise ConfigError(f"{file} needs an image encoder of width {wanted}, the one beside it has {given}")


def _ours(old: Any, text_tokens: int) -> ImageAttention | PlainAttention:
    return ImageAttention(text_tokens, old.to_k_ip[0], old.to_v_ip[0]) if hasattr(old, "to_k_ip") else PlainAttention()


def _grouped(state: dict[str, Any], file: Path) -> dict[str, dict[str, torch.Tensor]]:
    """{"image_proj": …, "ip_adapter": …}: .bin files come so, .safetensors carry the group as a prefix."""
    groups: dict[str, dict[str, torch.Tensor]] = {"image_proj": {}, "ip_adapter": {}}
    for key, value in state.items():
        if isinstance(value, dict) and key in groups:
            groups[key] = value
        elif isinstance(value, torch.Tensor) and key.partition(".")[0] in groups:
            group, _, rest = key.partition(".")
            groups[group][rest] = value
    if not all(groups.values()) or not ({"proj.weight", "latents"} & groups["image_proj"].keys()):
        raise ConfigError(f"{file} is not an IP-Adapter for SD 1.5 in base or plus format (image_proj and ip_adapter)")
    return groups


def clip_processor(side: int) -> Any:
    """The preprocessing the vision towers were trained with, by Pillow."""
    try:  # transformers 5 gives the PIL processor a name of its own; before, it is the only one without torchvision
        from transformers import CLIPImageProcessorPil as Processor
    except ImportError:
        from transformers import CLIPImageProcessor as Processor
    return Processor(size={"shortest_edge": side}, crop_size={"height": side, "width": side})
