"""The operator as a whole: rows are independent, settings do what they say."""

from __future__ import annotations

import gc
import random
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from onesdaug import AugmentConfig, Augmenter, ShapeTweak
from onesdaug.augment.config import PRESETS, preset
from onesdaug.augment.operator import Row, default_preset, faithful_preset
from onesdaug.augment.shape import warp
from onesdaug.common.registry import GENERATORS
from onesdaug.data.pixels import to_pil, to_tensor
from onesdaug.errors import ConfigError
from onesdaug.generators.base import Generator
from tests.augment.counting import Counting
from tests.conftest import make_image

FAST = AugmentConfig(steps=4, solver="dpm++")


@pytest.fixture(scope="module")
def aug(tiny_sd: Path, tiny_ip: dict[str, Path]) -> Augmenter:
    return Augmenter.from_pretrained(tiny_sd, config=FAST, ip_repo=tiny_ip["base"], device="cpu", batch_size=8)


def with_config(aug: Augmenter, **settings) -> Augmenter:
    """The same generator under other settings."""
    return Augmenter(aug.generator, FAST.model_copy(update=settings), batch_size=8)


def images(n: int) -> torch.Tensor:
    return torch.stack([to_tensor(make_image(i)) for i in range(n)])


# -- rows are independent ---------------------------------------------------------------------------------------------


def test_batch_equals_singles_for_mixed_references(aug: Augmenter) -> None:
    """diffusers fails this (its issue 9813): there the references of a batch are mixed."""
    batch = images(4)
    together = aug.tensors(batch, k=2)
    alone = torch.cat([aug.tensors(batch[i : i + 1], k=2) for i in range(4)])
    assert (together - alone).abs().max() < 2e-5


@pytest.mark.parametrize("attention", ["decoupled", "concat"])
@pytest.mark.parametrize("solver", ["ddpm", "ddpm-ancestral", "ddim", "dpm++"])
def test_a_view_is_the_same_in_any_batch(aug: Augmenter, solver: str, attention: str) -> None:
    """The view (image, k): batch sizes 1, 3 and 8, any order, with and without neighbours."""
    one = with_config(aug, solver=solver, attention=attention)
    batch, scales = images(5), [0.8, 0.0, 0.3, 1.2, 0.8]
    reference = one.tensors(batch, k=3, image_scale=scales)
    for size in (1, 3, 8):
        one.batch_size = size
        assert (one.tensors(batch, k=3, image_scale=scales) - reference).abs().max() < 2e-5
    order = [3, 0, 4]
    shuffled = one.tensors(batch[order], k=2, image_scale=[scales[i] for i in order])
    assert (shuffled - reference[order, :2]).abs().max() < 2e-5


def test_mixed_sizes_and_orders_through_run(aug: Augmenter) -> None:
    """Rows of images of any size share batches; each gets back what it would get alone."""
    sources = [make_image(0), make_image(1, (50, 30)), make_image(2, (20, 64))]
    rows = [Row(image, k, seed=5) for image in sources for k in (1, 2)]
    expected = {(id(r.image), r.k): np.asarray(v.image, int) for r, v in zip(rows, aug.run(rows), strict=True)}
    random.Random(0).shuffle(rows)
    aug.batch_size = 3
    for row, view in zip(rows, aug.run(rows), strict=True):
        assert view.image.size == row.image.size
        assert np.abs(np.asarray(view.image, int) - expected[id(row.image), row.k]).max() <= 1  # 8-bit rounding
    aug.batch_size = 8


def test_seeds_name_views(aug: Augmenter) -> None:
    batch = images(2)
    first, again, other = aug.tensors(batch, k=2), aug.tensors(batch, k=2), aug.tensors(batch, k=2, seed=1)
    assert torch.equal(first, again)
    assert (first - other).abs().max() > 0.05
    assert (first[:, 0] - first[:, 1]).abs().max() > 0.05  # each view draws its own psi and noise
    named = aug.tensors(batch, k=2, seeds=[7, 7])
    assert (named[0] - named[1]).abs().max() > 0.05  # same streams, other pictures
    assert torch.allclose(named[:1], aug.tensors(batch[:1], k=2, seeds=[7]), atol=2e-5)


def test_pil_path_array_and_tensor_give_the_same_views(aug: Augmenter, tmp_path: Path) -> None:
    image = make_image(3)
    image.save(tmp_path / "x.png")
    expected = [np.asarray(v) for v in aug(image, k=2)]
    for source in (tmp_path / "x.png", str(tmp_path / "x.png"), np.asarray(image), to_tensor(image)):
        assert all(np.array_equal(a, np.asarray(b)) for a, b in zip(expected, aug(source, k=2), strict=True))


def test_a_list_gives_one_list_per_image(aug: Augmenter) -> None:
    out = aug([make_image(0), make_image(1)], k=2)
    assert [len(views) for views in out] == [2, 2]
    assert isinstance(out[0][0], Image.Image)
    assert aug([], k=2) == [] and aug(make_image(0), k=0) == []
    assert aug.tensors(images(2), k=0).shape == (2, 0, 3, 32, 32)


# -- settings do what they say ----------------------------------------------------------------------------------------


def test_scale_zero_equals_no_condition_and_no_adapter(tiny_sd: Path, tiny_ip: dict[str, Path]) -> None:
    batch = images(2)
    for attention in ("decoupled", "concat"):
        base = FAST.model_copy(update={"attention": attention})
        aug = Augmenter.from_pretrained(tiny_sd, config=base, ip_repo=tiny_ip["base"], device="cpu")
        off = Augmenter(aug.generator, base.model_copy(update={"condition": False})).tensors(batch, k=1)
        zero = Augmenter(aug.generator, base.model_copy(update={"image_scale": 0.0})).tensors(batch, k=1)
        rows = aug.tensors(batch, k=1, image_scale=[0.0, 0.8])
        bare = Augmenter.from_pretrained(tiny_sd, config=base, ip_adapter=False, device="cpu").tensors(batch, k=1)
        assert (off - zero).abs().max() < 1e-6
        assert (off - bare).abs().max() < 1e-5
        assert (rows[1] - bare[1]).abs().max() > 0.02
        if attention == "decoupled":  # a row's own zero still leaves guidance between two texts that are the same
            assert (rows[0] - bare[0]).abs().max() < 1e-4


def test_guidance_off_runs_only_the_positive_rows() -> None:
    generator = Counting()
    assert isinstance(generator, Generator)
    config = AugmentConfig(solver="ddim", steps=10, noise_level=1.0, guidance=4.0, guidance_interval=(0.25, 0.75))
    aug = Augmenter(generator, config, batch_size=4)
    aug.tensors(torch.rand(2, 3, 8, 8), k=2)
    inside = [0.25 <= t / 999 <= 0.75 for t in aug.table.t]
    assert generator.rows == [8 if on else 4 for on in inside]
    assert 0 < sum(inside) < 10
    generator.rows.clear()
    off = config.model_copy(update={"guidance": 1.0})
    Augmenter(generator, off, batch_size=4).tensors(torch.rand(2, 3, 8, 8), k=2)
    assert generator.rows == [4] * 10


def test_guidance_is_the_formula() -> None:
    """eps_neg + w·(eps_pos − eps_neg), with the negative from the null tokens."""
    generator = Counting()
    x = torch.full((1, 3, 8, 8), 0.5)
    settings = {"steps": 1, "solver": "ddim", "noise_level": 1.0, "shape": None, "image_scale": 0.5}
    out = {
        w: Augmenter(generator, AugmentConfig(**settings, guidance=w)).tensors(x, k=1, seeds=[0])
        for w in (1.0, 1.5, 2.0)
    }
    assert torch.allclose(out[1.5] - out[1.0], out[2.0] - out[1.5], atol=1e-5)  # linear in w
    assert (out[1.5] - out[1.0]).abs().max() > 1e-3


def test_noise_level_zero_keeps_the_tweaked_image() -> None:
    aug = Augmenter(Counting(), AugmentConfig(noise_level=0.0, guidance=1.0, solver="ddim", condition=False))
    assert len(aug.table) == 1
    view = aug.run([Row(make_image(0, (8, 8)), 1)], tweaked=True)[0]
    assert view.steps_run == 1 and view.tweaked is not None
    assert np.abs(np.asarray(view.image, int) - np.asarray(view.tweaked, int)).max() < 30  # t = 0: a trace of noise


def test_shape_and_noise_have_streams_of_their_own(aug: Augmenter) -> None:
    """Without the tweak the noise is the same: an ablation compares like with like."""
    x = images(1)
    still = ShapeTweak(rotate=0, stretch=0, translate=0, perspective=0, flip=False)
    none, identity, full = (
        with_config(aug, shape=s, noise_level=0.1).tensors(x, k=1) for s in (None, still, ShapeTweak())
    )
    assert (none - identity).abs().max() < 1e-4
    assert (none - full).abs().max() > 0.02


def test_pixel_space_noise(aug: Augmenter) -> None:
    x = images(1)
    view = with_config(aug, noise_space="pixel").tensors(x, k=1)
    assert torch.isfinite(view).all() and (view - aug.tensors(x, k=1)).abs().max() > 0.02


def test_prompts_change_the_view_and_free_the_text_encoder(aug: Augmenter) -> None:
    def text_encoders() -> int:
        gc.collect()
        return sum(type(o).__name__ == "CLIPTextModel" for o in gc.get_objects())

    x, before = images(1), text_encoders()
    view = with_config(aug, prompt="a dog").tensors(x, k=1)
    assert (view - aug.tensors(x, k=1)).abs().max() > 1e-3
    assert text_encoders() <= before  # it ran once for the prompt and is gone


def test_run_reports_what_was_done(aug: Augmenter) -> None:
    image = make_image(1, (40, 24))
    view = aug.run([Row(image, 2, seed=9)], tweaked=True)[0]
    assert (view.k, view.seed, view.t0, view.steps_run) == (2, 9, aug.table.t0, len(aug.table))
    assert view.seconds > 0 and view.peak_memory_mb > 0
    assert view.tweaked.size == view.image.size == image.size
    canvas = to_tensor(image.resize((32, 32), Image.Resampling.BICUBIC))[None]
    replay = warp(canvas, [view.psi], aspects=[40 / 24])[0]
    small = to_tensor(view.tweaked.resize((32, 32), Image.Resampling.BICUBIC))
    assert (replay - small).abs().mean() < 0.02


def test_the_noised_stage_is_what_the_denoiser_starts_from() -> None:
    class Seeing(Counting):
        first = None

        def predict(self, z, t, tokens, image_scale) -> torch.Tensor:
            self.first = z if self.first is None else self.first
            return super().predict(z, t, tokens, image_scale)

    generator, rows = Seeing(), [Row(make_image(0, (8, 8)), k) for k in (1, 2)]
    aug = Augmenter(generator, AugmentConfig(guidance=1.0, steps=4))
    views = aug.run(rows, tweaked=True, noised=True)
    for view, z in zip(views, generator.first, strict=True):
        assert np.array_equal(np.asarray(view.noised), to_pil(generator.decode(z[None]))[0])
        assert not np.array_equal(np.asarray(view.noised), np.asarray(view.tweaked))
    plain = aug.run(rows)
    assert [view.noised for view in plain] == [None, None]
    assert [view.image.tobytes() for view in plain] == [view.image.tobytes() for view in views]


def test_presets_are_the_papers() -> None:
    assert preset("paper") == AugmentConfig()
    paper = AugmentConfig()
    assert (paper.noise_level, paper.steps, paper.guidance, paper.image_scale) == (0.7, 20, 9.0, 0.8)
    vlm = preset("vlm")
    assert (vlm.solver, vlm.steps, vlm.noise_level, vlm.shape.rotate, vlm.shape.stretch) == ("dpm++", 10, 0.1, 10, 0.4)
    assert all(isinstance(preset(name), AugmentConfig) for name in PRESETS)


def test_the_pocket_presets() -> None:
    assert set(PRESETS) == {
        "paper", "paper-fast", "paper-cheap", "vlm",
        "pocket-accuracy", "pocket-faithful", "pocket-imagenet-accuracy", "pocket-imagenet-fine",
        "photo", "photo-accuracy",
    }  # fmt: skip
    pockets = {name: preset(name) for name in PRESETS if name.startswith(("pocket", "photo"))}
    assert all(config.solver == "dpm++" and config.noise_map == "cumulative" for config in pockets.values())
    assert {name: config.mode for name, config in pockets.items()} == {
        "pocket-accuracy": "class", "pocket-faithful": "self", "photo": "self", "photo-accuracy": "class",
        "pocket-imagenet-accuracy": "class", "pocket-imagenet-fine": "self",
    }  # fmt: skip
    assert pockets["pocket-faithful"].noise_level < pockets["pocket-accuracy"].noise_level
    assert all(preset(name).mode is None for name in PRESETS if name not in pockets)


def test_a_model_brings_its_preset(tiny_sd: Path, tmp_path: Path) -> None:
    (tmp_path / "card.json").write_text('{"kind": "pocket"}')
    models = {"pocket": "pocket-accuracy", "pocket-imagenet": "pocket-imagenet-accuracy",
              tmp_path: "pocket-accuracy", str(tmp_path): "pocket-accuracy", "sd15": "paper",
              "shape": "paper", tiny_sd: "paper", tmp_path / "none": "paper"}  # fmt: skip
    if "pocket-imagenet" not in GENERATORS:
        del models["pocket-imagenet"]
    assert {name: default_preset(name) for name in models} == models
    shown = {name: "pocket-faithful" if own.startswith("pocket") else own for name, own in models.items()}
    assert {name: faithful_preset(name) for name in models} == shown  # what one looks at shows what the picture shows
    default = Augmenter.from_pretrained(device="cpu")
    assert default.config == preset("pocket-faithful") and default.side == 96
    accurate = Augmenter.from_pretrained("pocket", preset="pocket-accuracy", device="cpu")
    assert accurate.config == preset("pocket-accuracy")
    off = Augmenter.from_pretrained("pocket", ip_adapter=False, device="cpu").config
    assert off == preset("pocket-faithful", condition=False)


# -- memory -----------------------------------------------------------------------------------------------------------


def test_out_of_memory_halves_the_batch_and_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    generator = Counting()
    aug = Augmenter(generator, AugmentConfig(steps=2, guidance=1.0), batch_size=8)
    x = torch.rand(4, 3, 8, 8)
    expected = aug.tensors(x, k=3)
    generator.limit = 2
    aug.batch_size = 8
    assert torch.allclose(aug.tensors(x, k=3), expected, atol=1e-6)
    assert aug.batch_size == 2
    aug.tensors(x, k=3)
    assert [r.message for r in caplog.records] == ["out of memory with a batch of 8: going on with smaller ones"]
    generator.limit = 0
    with pytest.raises(torch.OutOfMemoryError):
        aug.tensors(x, k=1)


def test_nan_is_an_error_not_a_black_view() -> None:
    generator = Counting()
    generator.decode = lambda z: z * float("nan")
    with pytest.raises(ConfigError, match="NaN or infinity; try dtype float32"):
        Augmenter(generator, AugmentConfig(steps=2)).tensors(torch.rand(2, 3, 8, 8), k=1)


def test_a_rows_own_scale_counts_even_where_the_default_is_zero(aug: Augmenter) -> None:
    x, off = images(2), with_config(aug, image_scale=0.0)
    rows, plain = off.tensors(x, k=1, image_scale=[0.0, 0.8]), off.tensors(x, k=1)
    assert (rows[0] - plain[0]).abs().max() < 1e-4
    assert (rows[1] - plain[1]).abs().max() > 0.02
    assert (rows[1] - aug.tensors(x, k=1)[1]).abs().max() < 2e-5


def test_the_summary_counts_what_is_run() -> None:
    generator = Counting()
    for settings in ({}, {"condition": False}, {"guidance": 1.0}, {"guidance_interval": (0.0, 0.5)}):
        generator.rows.clear()
        aug = Augmenter(generator, AugmentConfig(**settings))
        aug.tensors(torch.rand(1, 3, 8, 8), k=1)
        assert f"{sum(generator.rows)} network rows per view" in aug.summary()


def test_other_errors_are_not_swallowed() -> None:
    generator = Counting()
    generator.decode = lambda z: (_ for _ in ()).throw(RuntimeError("broken weights"))
    with pytest.raises(RuntimeError, match="broken weights"):
        Augmenter(generator, AugmentConfig(steps=2)).tensors(torch.rand(2, 3, 8, 8), k=1)
