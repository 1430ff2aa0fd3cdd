"""The recipe for photographs in its smallest form: what is held out, what is learned, and pieces that are carried."""

from __future__ import annotations

import shutil
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from onesdaug.data.dataset import Dataset
from onesdaug.encoders.checkpoint import load_checkpoint
from onesdaug.errors import ConfigError, DataError
from onesdaug.generators.pocket import photo_training
from onesdaug.generators.pocket.deep import DeepAutoencoder, PixelNorm
from onesdaug.generators.pocket.photo_training import PhotoTraining
from onesdaug.generators.pocket.photographs import Photographs, floats, is_held_out, name_number, read_photographs
from onesdaug.generators.pocket.recipe import PhotoRecipe
from onesdaug.generators.pocket.smoke import PHOTO_SMOKE
from onesdaug.generators.pocket.train_photo import DecoderStage, PhotoAutoencoderStage, psnr, shared
from onesdaug.training.loop import OutOfTime
from tests.conftest import make_image

CPU = torch.device("cpu")


class Edges(nn.Module):
    """In the place of EfficientNet-Lite: one convolution."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Conv2d(3, 4, 3)

    def maps(self, x: Tensor) -> list[Tensor]:
        return [self.layer(x)]


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(photo_training.PhotoTraining, "encoder", Edges())


@pytest.fixture(scope="module")
def parts() -> list[Dataset]:
    """Two parts of 8 and 6 photographs, of which two are the same."""
    images = np.stack([np.asarray(make_image(i, (64, 64))) for i in range(12)])

    def part(rows: list[int], mark: str) -> Dataset:
        return Dataset(images[rows], np.zeros(len(rows), np.int64), ("",), tuple(f"/{i}" for i in rows), mark)

    return [part([0, 1, 2, 3, 4, 5, 6, 7], "one"), part([6, 7, 8, 9, 10, 11], "two")]


def train(
    parts: list[Dataset], out: Path, recipe: PhotoRecipe = PHOTO_SMOKE, until: str = "decoder", **more: float
) -> PhotoTraining:
    run = PhotoTraining(recipe, parts, out, **more)  # type: ignore[arg-type]
    for name in run.until(until):
        run.one(name)
    return run


# -- photographs ------------------------------------------------------------------------------------------------------


def test_one_in_five_hundred_is_held_out_by_name_alone() -> None:
    held = [i for i in range(100_000) if is_held_out(f"coco/{i:012d}")]
    assert 150 < len(held) < 250
    assert all(is_held_out(f"elsewhere/{i:012d}") for i in held)


def test_nothing_is_trained_on_that_is_measured_on(parts: list[Dataset], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onesdaug.generators.pocket.photographs.ONE_IN", 3)
    pictures = {image.tobytes(): name for part in parts for name, image in zip(part.ids, part.images, strict=True)}
    held = {name for name in pictures.values() if name_number(name) % 3 == 0}
    both = Photographs(parts, CPU)
    names = [[pictures[image.numpy().tobytes()] for image in images] for images in (both.images, both.held)]
    assert 0 < len(held) < 12 and set(names[1]) == held
    assert sorted(names[0]) == sorted(set(pictures.values()) - held)  # each once, though some came twice
    assert both.fingerprint != Photographs(parts[:1], CPU).fingerprint


def test_a_small_collection_holds_out_one(parts: list[Dataset]) -> None:
    both = Photographs(parts, CPU)
    assert len(both.held) == 1 and len(both) == 11
    with pytest.raises(DataError, match="got 1, all of them held out"):
        Photographs([parts[0].take(1)], CPU)


def test_crops_are_cut_pixel_by_pixel(parts: list[Dataset]) -> None:
    both = Photographs(parts, CPU)
    torch.manual_seed(0)
    rows = torch.tensor([0, 3, 3, 5])
    made = both.crops(rows, 16)
    assert made.shape == (4, 3, 16, 16)
    for row, crop in zip(rows, made, strict=True):
        windows = floats(both.images[row][None])[0].unfold(1, 16, 1).unfold(2, 16, 1).permute(1, 2, 0, 3, 4)
        mirrored = [(windows == x).flatten(2).all(-1).any() for x in (crop, crop.flip(-1))]
        assert any(mirrored)


def test_photographs_come_from_zips_and_folders_without_classes(tmp_path: Path) -> None:
    for number in range(2):
        with zipfile.ZipFile(tmp_path / f"{number}.zip", "w") as archive:
            for i in range(2):
                file = tmp_path / "loose" / "deep" / f"{number}{i}.png"
                file.parent.mkdir(parents=True, exist_ok=True)
                make_image(i, (40, 30)).save(file)
                archive.write(file, file.name)
    zips, loose = read_photographs(tmp_path, 32), read_photographs(tmp_path / "loose", 32)
    assert [len(part) for part in zips] == [2, 2] and [len(part) for part in loose] == [4]
    assert zips[0].images.shape[1:] == (32, 32, 3) and zips[0].ids == ("/00", "/01")
    assert np.array_equal(np.concatenate([part.images for part in zips]), loose[0].images)


# -- networks ---------------------------------------------------------------------------------------------------------


def test_latents_are_an_eighth_and_a_crop_is_coded_as_in_its_picture() -> None:
    config = replace(PHOTO_SMOKE.network, channels=6)
    model = DeepAutoencoder(config).eval()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.05)
    x = torch.rand(1, 3, 192, 192)
    with torch.no_grad():
        whole, crop = model.encode(x), model.encode(x[..., 32:160, 32:160])
        assert whole.shape == (1, 6, 24, 24) and model.decode(whole).shape == x.shape
    inner = slice(5, 11)  # away from the borders, which a crop has elsewhere
    assert torch.allclose(whole[..., 4:20, 4:20][..., inner, inner], crop[..., inner, inner], atol=1e-5)


def test_in_the_beginning_a_linear_map_of_patches_is_alone() -> None:
    torch.manual_seed(0)
    model = DeepAutoencoder(PHOTO_SMOKE.network).eval()
    x, y = torch.rand(2, 1, 3, 64, 64)
    with torch.no_grad():
        middle, mean = model.encode((x + y) / 2), (model.encode(x) + model.encode(y)) / 2
        assert torch.allclose(middle, mean, atol=1e-5) and middle.std() > 0.01
        assert torch.allclose(
            model.decode(middle), (model.decode(model.encode(x)) + model.decode(model.encode(y))) / 2, atol=1e-5
        )


def test_channels_are_normalised_and_that_is_undone() -> None:
    model = DeepAutoencoder(PHOTO_SMOKE.network).eval()
    x = torch.rand(2, 3, 64, 64)
    with torch.no_grad():
        plain = model.encode(x), model.decode(model.encode(x))
        model.scale.copy_(torch.tensor([1.0, 2.0, 3.0, 4.0]))
        model.shift.copy_(torch.tensor([0.0, 1.0, -1.0, 2.0]))
        assert torch.allclose(model.encode(x)[:, 1], 2 * (plain[0][:, 1] - 1), atol=1e-5)
        assert torch.allclose(model.decode(model.encode(x)), plain[1], atol=1e-5)


def test_pixel_norm_is_per_place() -> None:
    out = PixelNorm(8)(torch.randn(2, 8, 3, 3) * 5 + 2)
    assert torch.allclose(out.mean(1), torch.zeros(2, 3, 3), atol=1e-5)
    assert torch.allclose(out.std(1, unbiased=False), torch.ones(2, 3, 3), atol=1e-3)


# -- stages -----------------------------------------------------------------------------------------------------------


def test_what_else_is_asked_for_takes_its_share_of_the_gradient() -> None:
    weights = torch.randn(3, 5, requires_grad=True)
    made = 2 * weights
    error, other = made.abs().sum(), 1e6 * (made - 1).square().sum()
    loss = shared(made, error, [(0.5, other)])
    loss.backward()
    assert float(loss.detach()) == pytest.approx(float(error.detach()))
    own = weights.detach().sign()
    direction = (2 * weights.detach() - 1) / (2 * weights.detach() - 1).norm()
    assert weights.grad is not None
    assert torch.allclose(weights.grad, 2 * (own + 0.5 * own.norm() * direction), atol=1e-4)


def test_the_autoencoder_learns_and_its_latents_have_unit_variance(parts: list[Dataset], tmp_path: Path) -> None:
    longer = replace(PHOTO_SMOKE.autoencoder, steps=40, batch=8, lr=2e-3, ema=0.5)
    wider = replace(PHOTO_SMOKE.network, ae_width=16)
    run = train(parts, tmp_path / "out", replace(PHOTO_SMOKE, autoencoder=longer, network=wider), "autoencoder")
    start = DeepAutoencoder(wider)
    assert run.stages["autoencoder"]["history"][0]["psnr"] > psnr(start, run.photographs.held) + 1
    with torch.no_grad():
        z = run.autoencoder.encode(floats(run.photographs.images))
    assert torch.allclose(z.mean((0, 2, 3)), torch.zeros(4), atol=0.05)
    assert torch.allclose(z.std((0, 2, 3)), torch.ones(4), atol=0.05)


def test_the_decoder_stage_leaves_the_latents_alone(parts: list[Dataset], tmp_path: Path) -> None:
    run = train(parts, tmp_path / "out")
    first, second = (load_checkpoint(run.state / name)[0] for name in ("autoencoder", "decoder"))
    moved = {name.split(".")[0] for name in first if not torch.equal(first[name], second[name])}
    assert moved == {"decoder", "draw"}
    assert not any("discriminator" in name for name in second)


def test_the_judge_learns_from_drawn_pictures_but_is_not_taught_to_be_fooled(parts: list[Dataset]) -> None:
    config = replace(PHOTO_SMOKE.decoder, perceptual=0.0)
    edges: nn.Module = Edges()
    stage = DecoderStage(config, DeepAutoencoder(PHOTO_SMOKE.network), edges, Photographs(parts, CPU), CPU)  # type: ignore[arg-type]
    torch.manual_seed(0)
    stage.loss(1).backward()  # type: ignore[no-untyped-call]
    with_decoder = [p.grad.clone() for p in stage.model.discriminator.parameters() if p.grad is not None]
    stage.model.zero_grad()
    torch.manual_seed(0)
    x = stage.pictures()
    made = stage.decode(stage.autoencoder.encode(x)).detach()
    real, drawn = (stage.model.discriminator(2 * batch - 1) for batch in (x, made))
    ((1 - real).relu().mean() + (1 + drawn).relu().mean()).backward()
    alone = [p.grad for p in stage.model.discriminator.parameters() if p.grad is not None]
    assert all(torch.allclose(a, b, atol=1e-5) for a, b in zip(with_decoder, alone, strict=True))


def test_some_pictures_are_enlarged(parts: list[Dataset]) -> None:
    config, photographs = replace(PHOTO_SMOKE.autoencoder, batch=16), Photographs(parts, CPU)
    stage = PhotoAutoencoderStage(config, DeepAutoencoder(PHOTO_SMOKE.network), Edges(), photographs, CPU)  # type: ignore[arg-type]
    x = stage.pictures()
    rough = (x[..., 1:] - x[..., :-1]).abs().mean((1, 2, 3))
    assert x.shape == (16, 3, 32, 32) and rough[:4].mean() < rough[4:].mean()


# -- pieces -----------------------------------------------------------------------------------------------------------


def test_a_finished_stage_is_carried_to_another_machine(parts: list[Dataset], tmp_path: Path) -> None:
    whole = train(parts, tmp_path / "whole")
    train(parts, tmp_path / "here", until="autoencoder")
    shutil.copytree(tmp_path / "here.state" / "autoencoder", tmp_path / "there.state" / "autoencoder")
    there = train(parts, tmp_path / "there")
    assert all(torch.equal(v, there.autoencoder.state_dict()[k]) for k, v in whole.autoencoder.state_dict().items())
    later = train(parts[:1], tmp_path / "there")  # finished: other photographs change nothing
    assert later.stages == there.stages


@pytest.mark.parametrize("stage", ["autoencoder", "decoder"])
def test_a_stage_that_was_cut_off_goes_on(parts: list[Dataset], tmp_path: Path, stage: str) -> None:
    whole = train(parts, tmp_path / "whole")
    if stage == "decoder":
        train(parts, tmp_path / "out", until="autoencoder")
    with pytest.raises(OutOfTime, match="stopped after step 1 of 2"):
        train(parts, tmp_path / "out", deadline=0.0)
    assert (tmp_path / "out.state" / f"{stage}.loop.pt").is_file()
    again = train(parts, tmp_path / "out")
    assert all(torch.equal(v, again.autoencoder.state_dict()[k]) for k, v in whole.autoencoder.state_dict().items())


def test_stages_of_other_settings_are_not_taken_over(parts: list[Dataset], tmp_path: Path) -> None:
    train(parts, tmp_path / "out", until="autoencoder")
    other = replace(PHOTO_SMOKE, autoencoder=replace(PHOTO_SMOKE.autoencoder, perceptual=0.9))
    with pytest.raises(ConfigError, match=r"out\.state/autoencoder was trained with other settings"):
        train(parts, tmp_path / "out", other)
    train(
        parts, tmp_path / "out", PHOTO_SMOKE.with_seconds({"autoencoder": 99.0}), "autoencoder"
    )  # time is no setting
    with pytest.raises(ConfigError, match="stage 'encoder' is none of autoencoder, decoder"):
        train(parts, tmp_path / "out", until="encoder")


def test_the_released_recipe_draws_256_pixels_from_a_latent_of_32() -> None:
    network = PhotoRecipe().network
    assert (network.size, network.side, network.places) == (256, 32, 16)
    with torch.device("meta"):
        count = sum(p.numel() for p in DeepAutoencoder(network).parameters())
    assert count < 7.5e6  # a stage's weights fit one file of 16 MiB
    with pytest.raises(ConfigError, match="crop must be a multiple of 16"):
        replace(PHOTO_SMOKE.autoencoder, crop=40)
