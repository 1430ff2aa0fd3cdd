"""Cheaper by choice: another side, a tiny decoder; and CLIP's preprocessing without a detour over the host."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from onesdaug import Augmenter
from onesdaug.augment.config import preset
from onesdaug.bench.random_sd import SHAPES, random_parts, random_sd
from onesdaug.data.pixels import to_tensor
from onesdaug.errors import ConfigError, WeightsMissing
from onesdaug.generators.sd.fast.clip_pixels import clip_pixels
from onesdaug.generators.sd.ip_adapter import clip_processor
from tests.conftest import make_image

CPU = torch.device("cpu")
CONFIG = preset("paper-fast", steps=2)


def save_tiny_decoder(folder: Path, levels: int = 2, channels: int = 4) -> Path:
    from diffusers import AutoencoderTiny

    torch.manual_seed(3)
    widths, blocks = (8,) * levels, (1,) * levels
    AutoencoderTiny(
        encoder_block_out_channels=widths, decoder_block_out_channels=widths, latent_channels=channels,
        num_encoder_blocks=blocks, num_decoder_blocks=blocks,
    ).save_pretrained(folder)  # fmt: skip
    return folder


def load(tiny_sd: Path, tiny_ip: dict[str, Path], **options) -> Augmenter:
    return Augmenter.from_pretrained(tiny_sd, config=CONFIG, ip_repo=tiny_ip["base"], device="cpu", **options)


def test_another_side_is_another_generator(tiny_sd: Path, tiny_ip: dict[str, Path]) -> None:
    own, large = load(tiny_sd, tiny_ip), load(tiny_sd, tiny_ip, side=48)
    assert (own.side, large.side) == (32, 48)
    assert large.fingerprint == f"{own.fingerprint}:48px"  # a cache never takes one for the other
    view = large(make_image(0, (40, 30)), k=1)[0]
    assert view.size == (40, 30)
    with pytest.raises(ConfigError, match="multiple of 4 for this model, got 30"):
        load(tiny_sd, tiny_ip, side=30)
    with pytest.raises(ConfigError, match="multiple of"):
        load(tiny_sd, tiny_ip, side=0)


def test_a_tiny_decoder_draws(tiny_sd: Path, tiny_ip: dict[str, Path], tmp_path: Path) -> None:
    own = load(tiny_sd, tiny_ip)
    tiny = load(tiny_sd, tiny_ip, decoder=save_tiny_decoder(tmp_path / "tiny"))
    assert tiny.fingerprint.startswith(own.fingerprint + ":")
    x = to_tensor(make_image(1))[None]
    a, b = own.tensors(x, k=1), tiny.tensors(x, k=1)
    assert a.shape == b.shape and (a - b).abs().max() > 0.01
    z = torch.randn(1, 4, 16, 16)
    drawn = tiny.generator.decoder.decode(z).sample / 2 + 0.5
    assert torch.allclose(tiny.generator.decode(z), drawn.clamp(0, 1))


def test_a_decoder_that_does_not_fit_is_refused(tiny_sd: Path, tiny_ip: dict[str, Path], tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is AutoencoderKL"):
        load(tiny_sd, tiny_ip, decoder=tiny_sd / "vae")
    with pytest.raises(ConfigError, match="draws 4 pixels per latent, this model needs 2"):
        load(tiny_sd, tiny_ip, decoder=save_tiny_decoder(tmp_path / "large", levels=3))
    with pytest.raises(ConfigError, match="does not read latents of 4 channels"):
        load(tiny_sd, tiny_ip, decoder=save_tiny_decoder(tmp_path / "wide", channels=8))
    with pytest.raises(WeightsMissing, match="no folder"):
        load(tiny_sd, tiny_ip, decoder=tmp_path / "none")
    (tmp_path / "bare").mkdir()
    (tmp_path / "bare" / "config.json").write_text(json.dumps({"_class_name": "AutoencoderTiny"}))
    with pytest.raises(WeightsMissing, match=r"no config\.json with weights"):
        load(tiny_sd, tiny_ip, decoder=tmp_path / "bare")
    with pytest.raises(ConfigError, match="neither vae_tiling nor vae_slicing"):
        load(tiny_sd, tiny_ip, decoder=save_tiny_decoder(tmp_path / "tiny"), vae_slicing=True)
    with pytest.raises(ConfigError, match="multiple of 8"):
        Augmenter.from_pretrained("pocket", side=100, device="cpu")


@pytest.mark.parametrize("size", [(512, 512), (300, 400), (50, 41), (224, 224)])
def test_clip_pixels_are_pillows_but_for_rare_steps(size: tuple[int, int]) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
    for picture in (make_image(0, size), Image.fromarray(noise)):
        theirs = clip_processor(224)([np.asarray(picture)], return_tensors="pt").pixel_values
        ours = clip_pixels(to_tensor(picture)[None], 224)
        step = 1 / 255 / 0.26130258
        assert ours.shape == theirs.shape
        difference = (ours - theirs).abs()
        assert difference.max() < 2.01 * step
        assert (difference > 1e-4).float().mean() < 0.02


def test_random_weights_are_the_same_every_time_and_disturb_nobody() -> None:
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    first, second = (random_sd("sd15-tiny", CPU, torch.float32) for _ in range(2))
    assert torch.equal(torch.rand(3), expected)
    x = torch.rand(2, 3, 32, 32)
    views = [Augmenter(generator, CONFIG).tensors(x, k=1) for generator in (first, second)]
    assert torch.equal(*views) and views[0].std() > 0.02
    assert Augmenter(random_sd("sd15-tiny", CPU, torch.float32, side=48, tiny_decoder=True), CONFIG).side == 48
    with pytest.raises(ConfigError, match="no random weights called 'sdxl'"):
        random_parts("sdxl", CPU, torch.float32)


def test_the_shapes_are_stable_diffusions() -> None:
    """Parameters as published: UNet 859.5 M, VAE 83.7 M, CLIP ViT-H 632 M. Built without memory."""
    parts = random_parts("sd15", torch.device("meta"), torch.bfloat16)

    def millions(module) -> float:
        return sum(p.numel() for p in module.parameters()) / 1e6

    assert round(millions(parts.unet), 1) == 859.5
    assert round(millions(parts.vae), 1) == 83.7
    assert round(millions(parts.vision)) == 632
    assert len(parts.adapter["ip_adapter"]) == 32  # keys and values of 16 cross-attention layers
    assert SHAPES["sd15"].unet["sample_size"] == 64
