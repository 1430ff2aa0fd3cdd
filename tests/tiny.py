"""Tiny random models in the real formats: Stable Diffusion as diffusers saves it, IP-Adapter as published, a ViT."""

from __future__ import annotations

import json
from pathlib import Path

import torch

SIDE = 32  # pixels; latents are 16×16
WIDTH = 32  # cross-attention width
EMBED = 24  # CLIP projection width
CLIP_SIDE = 32


def save_sd(folder: Path, prediction_type: str = "epsilon") -> Path:
    """unet/, vae/, text_encoder/, tokenizer/ and scheduler/ with SD 1.5's layout and scheduler settings."""
    from diffusers import AutoencoderKL, PNDMScheduler, UNet2DConditionModel

    torch.manual_seed(0)
    UNet2DConditionModel(
        block_out_channels=(32, 64),
        layers_per_block=1,
        sample_size=SIDE // 2,
        in_channels=4,
        out_channels=4,
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
        up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
        cross_attention_dim=WIDTH,
        attention_head_dim=4,
        norm_num_groups=8,
    ).save_pretrained(folder / "unet")
    vae = AutoencoderKL(
        block_out_channels=(16, 32),
        in_channels=3,
        out_channels=3,
        down_block_types=("DownEncoderBlock2D", "DownEncoderBlock2D"),
        up_block_types=("UpDecoderBlock2D", "UpDecoderBlock2D"),
        latent_channels=4,
        norm_num_groups=8,
        sample_size=SIDE,
    )
    # A posterior of no width, so that diffusers (which samples it) and we (who take its mean) encode alike.
    with torch.no_grad():
        vae.quant_conv.weight[4:] = 0
        vae.quant_conv.bias[4:] = -60
    vae.save_pretrained(folder / "vae")
    PNDMScheduler(
        beta_start=0.00085,
        beta_end=0.012,
        beta_schedule="scaled_linear",
        skip_prk_steps=True,
        set_alpha_to_one=False,
        steps_offset=1,
        prediction_type=prediction_type,
    ).save_pretrained(folder / "scheduler")
    _as_published(folder / "scheduler" / "scheduler_config.json")
    _save_text(folder)
    return folder


def _as_published(file: Path) -> None:
    """SD 1.5's own file is older than timestep_spacing, so each scheduler made from it has its own default."""
    config = json.loads(file.read_text())
    file.write_text(json.dumps({key: value for key, value in config.items() if key != "timestep_spacing"}))


def _save_text(folder: Path) -> None:
    from transformers import CLIPTextConfig, CLIPTextModel, CLIPTokenizer

    letters = [*"abcdefghijklmnopqrstuvwxyz"]
    words = [*letters, *(f"{letter}</w>" for letter in letters), "<|startoftext|>", "<|endoftext|>"]
    scratch = folder / "vocabulary"
    scratch.mkdir(parents=True)
    (scratch / "vocab.json").write_text(json.dumps({word: i for i, word in enumerate(words)}))
    (scratch / "merges.txt").write_text("#version: 0.2\n")
    tokenizer = CLIPTokenizer(str(scratch / "vocab.json"), str(scratch / "merges.txt"), model_max_length=77)
    tokenizer.save_pretrained(folder / "tokenizer")
    torch.manual_seed(1)
    CLIPTextModel(
        CLIPTextConfig(
            vocab_size=len(words),
            hidden_size=WIDTH,
            intermediate_size=37,
            num_hidden_layers=2,
            num_attention_heads=4,
            max_position_embeddings=77,
            bos_token_id=len(words) - 2,
            eos_token_id=len(words) - 1,
            pad_token_id=len(words) - 1,
        )
    ).save_pretrained(folder / "text_encoder")


def save_ip_adapter(folder: Path, kind: str = "base", suffix: str = ".safetensors") -> Path:
    """models/ip-adapter_sd15 (or -plus) and models/image_encoder, matching the UNet of `save_sd`."""
    from safetensors.torch import save_file
    from transformers import CLIPVisionConfig, CLIPVisionModelWithProjection

    torch.manual_seed(2)
    models = folder / "models"
    CLIPVisionModelWithProjection(
        CLIPVisionConfig(
            hidden_size=48,
            intermediate_size=37,
            projection_dim=EMBED,
            num_hidden_layers=3,
            num_attention_heads=4,
            image_size=CLIP_SIDE,
            patch_size=8,
        )
    ).save_pretrained(models / "image_encoder")
    state = {
        "image_proj": _resampler(48) if kind == "plus" else _projection(),
        # cross-attention layers in the UNet's own order; the published files number them 1, 3, 5, …
        "ip_adapter": {
            f"{2 * i + 1}.to_{name}_ip.weight": torch.randn(64, WIDTH) * 0.3 for i in range(4) for name in "kv"
        },
    }
    file = models / f"ip-adapter{'-plus' if kind == 'plus' else ''}_sd15{suffix}"
    if suffix == ".bin":
        torch.save(state, file)
    else:
        flat = {f"{group}.{key}": value for group, part in state.items() for key, value in part.items()}
        save_file(flat, file)
    return folder


def _projection() -> dict[str, torch.Tensor]:
    return {
        "proj.weight": torch.randn(4 * WIDTH, EMBED) * 0.3,
        "proj.bias": torch.randn(4 * WIDTH) * 0.3,
        "norm.weight": torch.rand(WIDTH) + 0.5,
        "norm.bias": torch.randn(WIDTH) * 0.1,
    }


def _resampler(width: int, inner: int = 64, depth: int = 4) -> dict[str, torch.Tensor]:
    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape) * 0.2

    state = {
        "latents": normal(1, 16, inner),
        "proj_in.weight": normal(inner, width),
        "proj_in.bias": normal(inner),
        "proj_out.weight": normal(WIDTH, inner),
        "proj_out.bias": normal(WIDTH),
        "norm_out.weight": torch.rand(WIDTH) + 0.5,
        "norm_out.bias": normal(WIDTH),
    }
    for i in range(depth):
        for norm in ("0.norm1", "0.norm2", "1.0"):
            state |= {
                f"layers.{i}.{norm}.weight": torch.rand(inner) + 0.5,
                f"layers.{i}.{norm}.bias": normal(inner),
            }
        state |= {
            f"layers.{i}.0.to_q.weight": normal(inner, inner),
            f"layers.{i}.0.to_kv.weight": normal(2 * inner, inner),
            f"layers.{i}.0.to_out.weight": normal(inner, inner),
            f"layers.{i}.1.1.weight": normal(4 * inner, inner),
            f"layers.{i}.1.3.weight": normal(inner, 4 * inner),
        }
    return state


def save_classifier(folder: Path, names: str = "abcdefg") -> Path:
    """An image classifier as `pipeline("image-classification", folder)` loads it, with a class for each letter."""
    from transformers import ViTConfig, ViTForImageClassification, ViTImageProcessor

    torch.manual_seed(0)
    config = ViTConfig(
        hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16, image_size=32, patch_size=16,
        id2label=dict(enumerate(names)), label2id={name: i for i, name in enumerate(names)},
    )  # fmt: skip
    ViTForImageClassification(config).save_pretrained(folder)
    ViTImageProcessor(size={"height": 32, "width": 32}).save_pretrained(folder)
    return folder


def save_vision(folder: Path, kind: str) -> Path:
    """A tiny ViT or Swin with its processor file; features of width 16, pictures of 32×32."""
    import transformers

    if kind == "vit":
        config = transformers.ViTConfig(
            hidden_size=16,
            num_hidden_layers=1,
            num_attention_heads=2,
            intermediate_size=32,
            image_size=32,
            patch_size=8,
        )
        model = transformers.ViTModel(config)
    else:
        config = transformers.SwinConfig(
            image_size=32, patch_size=4, embed_dim=8, depths=[1, 1], num_heads=[1, 2], window_size=4
        )
        model = transformers.SwinModel(config)
    model.save_pretrained(folder)
    (folder / "preprocessor_config.json").write_text(json.dumps({"size": {"height": 32, "width": 32}}))
    return folder
