"""What a training is followed by: the gains that classifiers see, and weights that can be carried home half-way."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from benchmarks.forecast import open_encoder
from benchmarks.photo_look import ThumbnailLook
from benchmarks.pocket_judge import Judge
from onesdaug.data.dataset import Dataset
from onesdaug.generators.pocket.smoke import THUMBNAIL_SMOKE
from onesdaug.generators.pocket.thumbnail_training import ThumbnailTraining
from tests.conftest import make_image

CLASSIFIER = Path(__file__).resolve().parents[2] / "artifacts" / "fewshot" / "mini-protonet-convnet"


class Same(nn.Module):
    """An autoencoder that loses nothing."""

    def encode(self, x: Tensor) -> Tensor:
        return x

    def decode(self, z: Tensor) -> Tensor:
        return z


def pictures(count: int, classes: int, side: int) -> Dataset:
    images = np.stack([np.asarray(make_image(i, (side, side))) for i in range(count)])
    labels = np.arange(count) % classes
    names = tuple(f"n{i}" for i in range(classes))
    return Dataset(images, labels, names, tuple(f"n{label}/{i}" for i, label in enumerate(labels)), "toys")


@pytest.fixture(scope="module")
def judge() -> Judge:
    return Judge(pictures(40, 5, 84), [CLASSIFIER], torch.device("cpu"), episodes=20, query=2)


def test_what_shows_the_same_changes_nothing_and_the_class_itself_helps(judge: Judge) -> None:
    same = judge.gains(judge.x[:, None].expand(-1, 2, -1, -1, -1))
    assert same == {"protonet-convnet 1shot": 0.0, "protonet-convnet 5shot": 0.0}
    first = torch.stack([judge.x[judge.labels == label][0] for label in judge.labels])
    assert judge.gains(first[:, None])["protonet-convnet 1shot"] > 10
    trip = judge.round_trip(Same(), 84)
    assert trip["dB"] == 100 and trip["protonet-convnet 1shot"] == 0


def test_a_lent_machine_needs_no_scipy(judge: Judge, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("scipy", "scipy.special"):
        monkeypatch.setitem(sys.modules, name, None)
    assert judge.gains(judge.x[:, None])["protonet-convnet 1shot"] == 0


def test_encoders_and_denoisers_are_looked_at_and_left_to_be_carried(judge: Judge, tmp_path: Path) -> None:
    data = pictures(8, 2, 40)
    task = ThumbnailTraining(THUMBNAIL_SMOKE, lambda: [("data", data)], tmp_path / "pocket")
    for stage in task.until("denoiser-1"):
        task.one(stage)
    found = ThumbnailLook(task, judge, tmp_path, "encoder")(task.learner, 100)
    assert set(found) == {"1shot", "5shot"} and 0 < found["1shot"] <= 100
    found = ThumbnailLook(task, judge, tmp_path, "denoiser-1")(task.denoiser, 200)
    assert len(found) == 6 and "class-1 protonet-convnet 5shot" in found
    assert (tmp_path / "sheet-denoiser-1-000200.jpg").is_file()
    for name, config in ThumbnailLook(task, judge, tmp_path, "polish").settings.items():
        assert name == f"{config.mode}-{config.noise_level:g}"  # whatever the presets say
    assert {path.parent.name for path in (tmp_path / "pocket.part").glob("*/card.json")} == {"encoder", "denoiser-1"}
    (tmp_path / "pocket.part").rename(tmp_path / "again.state")  # put there, it is a stage
    again = ThumbnailTraining(THUMBNAIL_SMOKE, lambda: [("data", data)], tmp_path / "again")
    again.until("encoder")
    again.one("encoder")
    assert torch.allclose(again.learner.classes.weight, task.learner.classes.weight, atol=1e-3)


def test_a_stage_can_be_forecast_with(judge: Judge, tmp_path: Path) -> None:
    data = pictures(8, 2, 40)
    task = ThumbnailTraining(THUMBNAIL_SMOKE, lambda: [("data", data)], tmp_path / "out")
    task.until("encoder")
    task.one("encoder")
    encoder = open_encoder(task.state / "encoder", "cpu", "float32")
    assert encoder.embed(judge.x[:3], 3).shape == (3, 24)
