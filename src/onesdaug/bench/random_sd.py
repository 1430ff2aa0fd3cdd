"""Stable Diffusion's shapes with random weights: what a view costs can be measured without a download.

Pictures made with them mean nothing. `sd15` is Stable Diffusion 1.5 with the base IP-Adapter and its CLIP ViT-H;
`sd15-tiny` has the same layout a thousand times smaller, for trying commands out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from onesdaug.common.hub import loading, needs_extra
from onesdaug.errors import ConfigError
from onesdaug.generators.schedule import Schedule
from onesdaug.generators.sd import ip_adapter
from onesdaug.generators.sd.generator import StableDiffusion
from onesdaug.generators.sd.load import check_side

TEXT_TOKENS = 77
SCHEDULER: dict[str, Any] = {
    "beta_start": 0.00085, "beta_end": 0.012, "beta_schedule": "scaled_linear", "num_train_timesteps": 1000,
    "set_alpha_to_one": False, "steps_offset": 1,
}  # fmt: skip


@dataclass(frozen=True)
class Shape:
    """The numbers that decide cost: of the UNet, the VAE, the vision tower and the adapter."""

    unet: dict[str, Any]
    vae: dict[str, Any]
    vision: dict[str, Any]
    image_tokens: int = 4


_SD15 = Shape(
    unet={
        "sample_size": 64, "block_out_channels": (320, 640, 1280, 1280), "layers_per_block": 2,
        "cross_attention_dim": 768, "attention_head_dim": 8,
        "down_block_types": ("CrossAttnDownBlock2D",) * 3 + ("DownBlock2D",),
        "up_block_types": ("UpBlock2D",) + ("CrossAttnUpBlock2D",) * 3,
    },
    vae={
        "sample_size": 512, "block_out_channels": (128, 256, 512, 512), "layers_per_block": 2, "latent_channels": 4,
        "down_block_types": ("DownEncoderBlock2D",) * 4, "up_block_types": ("UpDecoderBlock2D",) * 4,
    },
    vision={
        "hidden_size": 1280, "intermediate_size": 5120, "projection_dim": 1024, "num_hidden_layers": 32,
        "num_attention_heads": 16, "image_size": 224, "patch_size": 14, "hidden_act": "gelu",
    },
)  # fmt: skip
_TINY = Shape(
    unet={
        "sample_size": 16, "block_out_channels": (32, 64), "layers_per_block": 1,
        "cross_attention_dim": 32, "attention_head_dim": 4, "norm_num_groups": 8,
        "down_block_types": ("DownBlock2D", "CrossAttnDownBlock2D"),
        "up_block_types": ("CrossAttnUpBlock2D", "UpBlock2D"),
    },
    vae={
        "sample_size": 32, "block_out_channels": (16, 32), "latent_channels": 4, "norm_num_groups": 8,
        "down_block_types": ("DownEncoderBlock2D",) * 2, "up_block_types": ("UpDecoderBlock2D",) * 2,
    },
    vision={
        "hidden_size": 48, "intermediate_size": 37, "projection_dim": 24, "num_hidden_layers": 3,
        "num_attention_heads": 4, "image_size": 32, "patch_size": 8,
    },
)  # fmt: skip
SHAPES = {"sd15": _SD15, "sd15-tiny": _TINY}


@dataclass(frozen=True)
class Parts:
    """The networks as diffusers knows them, before anything of ours is put into them."""

    unet: Any
    vae: Any
    vision: Any
    adapter: dict[str, dict[str, torch.Tensor]]
    text: torch.Tensor  # (77, d)


def random_parts(name: str, device: torch.device, dtype: torch.dtype) -> Parts:
    """The same numbers every time, made on the device itself."""
    try:
        from diffusers import AutoencoderKL, UNet2DConditionModel
        from transformers import CLIPVisionConfig, CLIPVisionModelWithProjection
    except ImportError as error:
        raise needs_extra(f"random weights of {name}") from error
    if name not in SHAPES:
        raise ConfigError(f"there are no random weights called {name!r}; there are {', '.join(SHAPES)}")
    shape = SHAPES[name]
    with loading(f"random weights of {name}", ""), _seeded(0, device):
        unet = _filled(lambda: UNet2DConditionModel(in_channels=4, out_channels=4, **shape.unet), device, dtype)
        vae = _filled(lambda: AutoencoderKL(in_channels=3, out_channels=3, **shape.vae), device, dtype)
        vision = _filled(lambda: CLIPVisionModelWithProjection(CLIPVisionConfig(**shape.vision)), device, dtype)
        width, embedding = shape.unet["cross_attention_dim"], shape.vision["projection_dim"]
        text = torch.randn(TEXT_TOKENS, width)
        adapter = {
            "image_proj": {
                "proj.weight": torch.randn(shape.image_tokens * width, embedding) * embedding**-0.5,
                "proj.bias": torch.zeros(shape.image_tokens * width),
                "norm.weight": torch.ones(width),
                "norm.bias": torch.zeros(width),
            },
            "ip_adapter": {
                f"{2 * i + 1}.to_{side}_ip.weight": torch.randn(inner, width) * width**-0.5
                for i, inner in enumerate(_cross_attention(unet))
                for side in "kv"
            },
        }
    return Parts(unet.eval(), vae.eval(), vision.eval(), adapter, text.to(dtype))


def random_sd(
    name: str, device: torch.device, dtype: torch.dtype, *, side: int | None = None, tiny_decoder: bool = False
) -> StableDiffusion:
    """A generator with these shapes, ready to be measured; `tiny_decoder` draws with TAESD's shapes."""
    parts = random_parts(name, device, dtype)
    check_side(side, parts.unet, parts.vae)
    with loading(f"random weights of {name}", ""), _seeded(0, device):
        adapter = ip_adapter.attach(parts.unet, parts.vision, parts.adapter, TEXT_TOKENS)
    return StableDiffusion(
        parts.unet,
        parts.vae,
        Schedule.from_scheduler_config(SCHEDULER),
        {"": parts.text},
        adapter,
        device=device,
        dtype=dtype,
        fingerprint=f"random:{name}",
        side=side,
        decoder=_tiny_decoder(SHAPES[name], device, dtype) if tiny_decoder else None,
    )


def _cross_attention(unet: Any) -> list[int]:
    """Widths of the cross-attention layers in the order in which diffusers counts attention processors."""
    layers = [name.removesuffix(".processor") for name in unet.attn_processors if ".attn2." in name]
    return [int(unet.get_submodule(name).to_q.out_features) for name in layers]


def _tiny_decoder(shape: Shape, device: torch.device, dtype: torch.dtype) -> Any:
    from diffusers import AutoencoderTiny

    levels = len(shape.vae["block_out_channels"])
    widths, blocks = (64,) * levels, (3,) * (levels - 1) + (1,)
    with loading("random weights of a tiny decoder", ""), _seeded(1, device):
        tiny = _filled(
            lambda: AutoencoderTiny(
                encoder_block_out_channels=widths,
                decoder_block_out_channels=widths,
                num_encoder_blocks=blocks[::-1],
                num_decoder_blocks=blocks,
            ),
            device,
            dtype,
        )
    return tiny.eval().requires_grad_(False)


def _filled(build: Callable[[], Any], device: torch.device, dtype: torch.dtype) -> Any:
    """A network built without memory, then filled in place in its own precision: no float32 copy, no number twice.

    Weights are spread as torch spreads those of linear layers and convolutions, so numbers stay near 1 all the way
    through; norms begin as the identity.
    """
    with torch.device("meta"):
        network = build().to(dtype)
    network.to_empty(device=device)
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            if name.endswith("bias"):
                parameter.zero_()
            elif name.endswith("weight") and parameter.ndim == 1:
                parameter.fill_(1.0)
            else:
                bound = (parameter.numel() / parameter.shape[0]) ** -0.5 if parameter.ndim > 1 else 1.0
                parameter.uniform_(-bound, bound)
        for name, buffer in network.named_buffers():
            if not name.endswith("position_ids"):  # to_empty has lost what stood in it
                raise RuntimeError(f"{type(network).__name__} keeps {name}, which nothing here fills")
            buffer.copy_(torch.arange(buffer.numel(), device=device).view_as(buffer))
    return network


@contextmanager
def _seeded(seed: int, device: torch.device) -> Iterator[None]:
    """Random numbers from this seed, on the device; nobody else's are touched."""
    with torch.random.fork_rng([device] if device.type == "cuda" else []), device:
        torch.manual_seed(seed)
        yield
