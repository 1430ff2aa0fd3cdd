"""The recipe of the next pocket in its smallest form: who teaches whom, what is held out, what is carried."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks.photo_carry import stages_of
from onesdaug import Augmenter
from onesdaug.augment.config import preset
from onesdaug.data.dataset import Dataset
from onesdaug.encoders.checkpoint import join, load_checkpoint
from onesdaug.errors import ConfigError, DataError
from onesdaug.generators.pocket import Pocket
from onesdaug.generators.pocket.condition import SlimRes12
from onesdaug.generators.pocket.deep import DeepAutoencoder
from onesdaug.generators.pocket.photo_table import NOVEL
from onesdaug.generators.pocket.photographs import is_held_out
from onesdaug.generators.pocket.recipe import THUMBNAIL_STAGES, ThumbnailRecipe
from onesdaug.generators.pocket.smoke import THUMBNAIL_SMOKE
from onesdaug.generators.pocket.thumbnail_training import ThumbnailTraining
from onesdaug.generators.pocket.thumbnails import Thumbnails
from onesdaug.generators.pocket.train_condition import ClassAndTurn
from onesdaug.generators.pocket.train_encoder import EncoderStage
from tests.conftest import make_image

CPU = torch.device("cpu")
WITHOUT_PIECES = ("encoder", "autoencoder", "decoder", "denoiser-1", "polish", "guidance")
Parts = list[tuple[str, Dataset]]


def part(numbers: range, side: int, labels: list[str], mark: str) -> Dataset:
    images = np.stack([np.asarray(make_image(i, (side, side))) for i in numbers])
    names = tuple(sorted(set(labels)))
    rows = np.array([names.index(name) for name in labels])
    return Dataset(images, rows, names, tuple(f"{a}/{i}" for a, i in zip(labels, numbers, strict=True)), mark)


@pytest.fixture(scope="module")
def parts() -> Parts:
    return [
        ("data", part(range(8), 48, ["n1"] * 4 + ["n2"] * 4, "one")),
        ("also", part(range(8, 12), 32, ["n1", "n3", "n3", "n3"], "two")),
        ("also", part(range(10, 14), 32, ["n3", "n3", "n2", "n2"], "three")),
    ]


def train(
    parts: Parts, out: Path, until: str = "guidance", recipe: ThumbnailRecipe = THUMBNAIL_SMOKE
) -> ThumbnailTraining:
    run = ThumbnailTraining(recipe, lambda: iter(parts), out)
    for name in run.until(until):
        run.one(name)
    return run


@pytest.fixture(scope="module")
def finished(parts: Parts, tmp_path_factory: pytest.TempPathFactory) -> ThumbnailTraining:
    return train(parts, tmp_path_factory.mktemp("run") / "out")


# -- pictures ---------------------------------------------------------------------------------------------------------


def test_every_picture_is_there_once_enlarged_with_the_classes_of_all_parts(parts: Parts) -> None:
    both = Thumbnails(parts, 64, CPU, chunk=3)
    assert both.classes == ["n1", "n2", "n3"]
    assert len(both) + len(both.held) == 14 and both.images.shape[1:] == (64, 64, 3)
    assert both.labels.tolist() == [0, 0, 0, 1, 1, 1, 1, 0, 2, 2, 2, 1, 1]  # without the first, which is held out
    small = parts[0][1].images[1].astype(float).mean((0, 1))
    assert np.allclose(both.images[0].float().mean((0, 1)).numpy(), small, atol=3)


def test_classes_have_the_same_numbers_in_whatever_order_parts_come(parts: Parts) -> None:
    one, other = Thumbnails(parts, 32, CPU), Thumbnails(parts[::-1], 32, CPU)
    assert one.classes == other.classes
    for label in range(3):
        there = [sorted(x.labels.tolist() + x.held_labels.tolist()).count(label) for x in (one, other)]
        assert there[0] == there[1] > 0


def test_thumbnails_are_held_out_by_name(parts: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onesdaug.generators.pocket.photographs.ONE_IN", 3)
    names = list(dict.fromkeys(name for _, data in parts for name in data.ids))
    both = Thumbnails(parts, 32, CPU)
    held = [is_held_out(name) for name in names]
    assert 0 < sum(held) < 14 and len(both.held) == len(both.held_labels) == sum(held)


def test_novel_classes_and_single_classes_are_refused(parts: Parts) -> None:
    with pytest.raises(DataError, match=f"leave out {min(NOVEL)}"):
        Thumbnails([("also", part(range(2), 32, ["n1", min(NOVEL)], "x"))], 32, CPU)
    with pytest.raises(DataError, match="at least two classes, got 3 of 1"):
        Thumbnails([("data", part(range(3), 32, ["n1"] * 3, "x"))], 32, CPU)
    with pytest.raises(DataError, match="crops of 16 cannot be had"):
        Thumbnails(parts, 32, CPU).pictures(4, 16)


# -- encoders ---------------------------------------------------------------------------------------------------------


def test_an_encoder_learns_from_small_pictures_first_and_is_left_at_its_own_size(parts: Parts) -> None:
    thumbnails, sides = Thumbnails(parts, 32, CPU), []
    torch.manual_seed(0)
    config = replace(THUMBNAIL_SMOKE.encoder, steps=40, lr=0.05)
    stage = EncoderStage(config, ClassAndTurn(SlimRes12((8, 12, 16, 24)), 3), thumbnails, CPU)
    first = stage.model.encoder.network.blocks[0]
    first.register_forward_pre_hook(lambda _, inputs: sides.append(inputs[0].shape[-1]))  # type: ignore[union-attr]
    optimizer, losses = stage.optimizer(), []
    for step in range(40):
        losses.append(float(stage.train_step(optimizer, step).detach()))
    assert sides == [64] * 24 + [84] * 16
    assert np.mean(losses[-10:]) < np.mean(losses[:10])
    stage.scores(stage.model)
    assert sides[-1] == stage.model.encoder.side == 84


def test_the_length_that_fits_a_budget_counts_what_large_pictures_cost(parts: Parts) -> None:
    model, thumbnails = ClassAndTurn(SlimRes12((8, 12, 16, 24)), 3), Thumbnails(parts, 32, CPU)
    stage = EncoderStage(THUMBNAIL_SMOKE.encoder, model, thumbnails, CPU)
    stage.set_epochs(100, 1)  # of small pictures
    cost = (64 / 84) ** 2
    assert stage.steps == pytest.approx(
        100 * cost / (0.6 * cost + 0.4) * stage.steps_per_epoch, abs=stage.steps_per_epoch
    )
    with pytest.raises(ConfigError, match="small_share at least 0 and below 1"):
        replace(THUMBNAIL_SMOKE.encoder, small_share=1.0)


# -- what is drawn ----------------------------------------------------------------------------------------------------


def test_the_polish_compares_pictures_and_teaches_the_denoiser_alone(finished: ThumbnailTraining) -> None:
    assert finished.critic is not None
    real = torch.randn(3, 6, 8, 8)
    assert float(finished.critic(real, real)) < 1e-4
    made = torch.randn(3, 6, 8, 8, requires_grad=True)
    networks = (finished.learner, finished.critic_encoder, finished.autoencoder)
    for network in networks:
        network.zero_grad(set_to_none=True)  # what their own stages left
    finished.critic(made, real).backward()  # type: ignore[no-untyped-call]
    assert made.grad is not None and made.grad.abs().sum() > 0
    assert all(p.grad is None for network in networks for p in network.parameters())


def test_pictures_of_the_finest_part_are_told_to_be_of_full_size(finished: ThumbnailTraining) -> None:
    sides = finished.table.sides[: finished.table.images, 0]
    assert sorted({round(float(side), 2) for side in sides}) == [21.33, 32.0]  # 32 of 48 pixels; all 48


def test_latents_are_a_quarter_where_the_autoencoder_is_deep() -> None:
    network = THUMBNAIL_SMOKE.network
    model = DeepAutoencoder(network)
    x = torch.rand(2, 3, network.size, network.size)
    assert model.encode(x).shape == (2, network.channels, network.side, network.side) and network.down == 4
    assert model.decode(model.encode(x)).shape == x.shape


def test_the_finished_folder_is_a_clean_pocket_that_guides_itself(finished: ThumbnailTraining, tmp_path: Path) -> None:
    cards = {name: finished.write(tmp_path / name, "toys", int8=name == "bytes") for name in ("half", "bytes")}
    card = cards["half"]
    assert card["kind"] == "pocket" and tuple(card["stages"]) == WITHOUT_PIECES
    assert card["guidance"] == 16 and card["data"]["classes"] == ["n1", "n2", "n3"]
    assert set(card["parameters"]) == {"autoencoder", "condition", "denoiser", "tokens"}
    assert card["parameters"] == cards["bytes"]["parameters"]
    x, views = torch.rand(2, 3, 40, 40), {}
    for name in cards:
        generator = Pocket.from_pretrained(tmp_path / name, device="cpu")
        drawing = Augmenter(generator, preset("pocket-accuracy"))
        assert "4 of 4 steps run, 4 network rows per view" in drawing.summary()
        views[name] = drawing.tensors(x, k=1)
    assert torch.allclose(views["half"], views["bytes"], atol=0.05)
    stored = load_checkpoint(tmp_path / "bytes")[0]
    kernel = finished.encoder.network.blocks[3].conv2.weight  # type: ignore[union-attr]
    assert (stored["condition.network.blocks.3.conv2.weight"] - kernel).abs().max() < kernel.abs().max() / 200


# -- pieces -----------------------------------------------------------------------------------------------------------


def test_finished_stages_are_carried_and_only_the_last_of_a_network_is_needed(
    parts: Parts, finished: ThumbnailTraining, tmp_path: Path
) -> None:
    train(parts, tmp_path / "here", "denoiser-1")
    for name in ("encoder", "decoder", "denoiser-1"):
        shutil.copytree(tmp_path / "here.state" / name, tmp_path / "there.state" / name)
    there = train(parts, tmp_path / "there")
    assert "autoencoder" not in there.stages
    for name, value in finished.denoiser.state_dict().items():
        assert torch.equal(value, there.denoiser.state_dict()[name]), name
    with pytest.raises(ConfigError, match=r"there\.state/polish is finished; delete it to train denoiser-2"):
        train(parts, tmp_path / "there", "denoiser-2")
    with pytest.raises(ConfigError, match="stage 'paint' is none of encoder, autoencoder"):
        train(parts, tmp_path / "there", "paint")


def test_training_goes_on_from_what_was_written(parts: Parts, finished: ThumbnailTraining, tmp_path: Path) -> None:
    finished.write(tmp_path / "released", "toys", int8=True)
    stages_of(tmp_path / "released", tmp_path / "next.state")
    run = train(parts, tmp_path / "next", "denoiser-2")
    assert set(run.stages) == {"encoder", "autoencoder", "decoder", "denoiser-1", "denoiser-2"}
    assert set(run.stages["denoiser-1"]["then"]) == {"polish", "guidance"}
    x = torch.rand(2, 3, 32, 32)
    for one, other in zip(run.encoder(x), finished.encoder(x), strict=True):  # in bytes
        assert torch.nn.functional.cosine_similarity(one.flatten(), other.flatten(), dim=0) > 0.999


def test_sizes_that_do_not_fit_each_other_are_refused(parts: Parts, tmp_path: Path) -> None:
    wrong = replace(THUMBNAIL_SMOKE, network=replace(THUMBNAIL_SMOKE.network, global_dim=32))
    with pytest.raises(ConfigError, match="gives features of 24, the network expects 32"):
        ThumbnailTraining(wrong, lambda: parts, tmp_path / "out")


def test_the_released_recipe_fits_48_megabytes(tmp_path: Path) -> None:
    recipe = ThumbnailRecipe()
    assert THUMBNAIL_STAGES[:3] == WITHOUT_PIECES[:3] and recipe.stage_names == [
        "autoencoder", "decoder", "denoiser", "polish", "guidance", "encoder"
    ]  # fmt: skip
    with torch.device("meta"):
        run = ThumbnailTraining(recipe, list, tmp_path / "out")
        run.__dict__["encoder"] = SlimRes12(recipe.kept_widths)
        tensors = join(run.kept())
    stored = sum(
        value.numel() * (4 if value.ndim < 2 else 1 if run.in_bytes(name, value) else 2)
        for name, value in tensors.items()
    )
    assert stored < 48e6
    assert sum(value.numel() for value in tensors.values()) * 2 > 48e6  # bytes are needed
