"""Settings and calls that the operator does not take: errors are for people."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from onesdaug import AugmentConfig, Augmenter
from onesdaug.augment.config import preset
from onesdaug.errors import ConfigError
from tests.augment.counting import Counting
from tests.conftest import make_image


def test_a_generator_without_text_or_concat_says_so() -> None:
    with pytest.raises(ConfigError, match="no text prompt"):
        Augmenter(Counting(), AugmentConfig(prompt="a cat"))
    with pytest.raises(ConfigError, match="concat"):
        Augmenter(Counting(), AugmentConfig(attention="concat"))
    with pytest.raises(ConfigError, match="knows one kind of condition, not mode 'class'"):
        Augmenter(Counting(), AugmentConfig(mode="class"))


def test_what_pocket_cannot_do_and_what_only_pocket_can(tiny_sd: Path, tiny_ip: dict[str, Path]) -> None:
    with pytest.raises(
        ConfigError, match="presets whose names begin with pocket or photo, are for the pocket generators"
    ):
        Augmenter.from_pretrained(tiny_sd, preset="pocket-accuracy", ip_repo=tiny_ip["base"], device="cpu")
    for options in ({"ip_weights": "x.safetensors"}, {"ip_repo": tiny_ip["base"]}, {"vae_tiling": True},
                    {"vae_slicing": True}):  # fmt: skip
        with pytest.raises(ConfigError, match=f"pocket takes no {next(iter(options))}"):
            Augmenter.from_pretrained("pocket", device="cpu", **options)
    for settings, words in (({"prompt": "a cat"}, "no text prompt"), ({"attention": "concat"}, "concat")):
        with pytest.raises(ConfigError, match=words):
            Augmenter.from_pretrained("pocket", config=preset("pocket-accuracy", **settings), device="cpu")


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"noise_level": 1.4}, "noise_level"),
        ({"guidance": 0.5}, "guidance"),
        ({"guidance": float("inf")}, "guidance"),
        ({"steps": 0}, "steps"),
        ({"guidance_interval": (0.8, 0.2)}, "guidance_interval"),
        ({"shape": {"rotate": 900}}, "shape.rotate"),
        ({"mode": "image"}, "mode"),
        ({"nois_level": 0.5}, "nois_level"),
    ],
)
def test_bad_settings_name_the_field(settings: dict, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        preset("paper", **settings)
    with pytest.raises(ConfigError, match="there is no preset 'fast'"):
        preset("fast")


def test_bad_calls() -> None:
    aug = Augmenter(Counting(), AugmentConfig(steps=4))
    with pytest.raises(ConfigError, match=r"\(B, 3, H, W\)"):
        aug.tensors(torch.rand(3, 8, 8))
    with pytest.raises(ConfigError, match=r"torch.uint8; bring them to floats"):
        aug.tensors(torch.zeros(1, 3, 8, 8, dtype=torch.uint8))
    with pytest.raises(ConfigError, match=r"\[0, 1\], but go from -1 to 1"):
        aug.tensors(torch.linspace(-1, 1, 192).reshape(1, 3, 8, 8))
    with pytest.raises(ConfigError, match="finite and not negative"):
        aug.tensors(torch.rand(1, 3, 8, 8), image_scale=[-1.0])
    with pytest.raises(ConfigError, match="2 images need 2 seeds"):
        aug.tensors(torch.rand(2, 3, 8, 8), seeds=[1])
    with pytest.raises(ConfigError, match="must not be negative"):
        aug(make_image(0), k=-1)
    with pytest.raises(ConfigError, match="either config or preset"):
        Augmenter.from_pretrained("shape", config=aug.config, preset="paper")
    with pytest.raises(ConfigError, match="shape tweak is off"):
        Augmenter.from_pretrained("shape", config=AugmentConfig(shape=None))
