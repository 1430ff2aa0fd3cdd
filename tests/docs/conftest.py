"""The folder a reader stands in: photographs, and pictures of three classes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from onesdaug.fewshot.bank import BankInfo, FeatureBank
from tests.conftest import make_image

ENDINGS = {"cat": "jpg", "dog": "png", "owl": "png"}


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "photos").mkdir()
    make_image(0, (48, 36)).save(tmp_path / "photos" / "cat.jpg")
    rng = np.random.default_rng(0)
    for name, ending in ENDINGS.items():
        folder = tmp_path / "pets" / name
        folder.mkdir(parents=True)
        colour = rng.integers(0, 200, 3)
        for i in range(1, 13):
            pixels = np.clip(colour + rng.integers(-60, 60, (32, 40, 3)), 0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(folder / f"{i}.{ending}")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def bank() -> FeatureBank:
    """Six classes of twenty images, three views each."""
    rng = torch.Generator().manual_seed(0)
    labels = torch.arange(6).repeat_interleave(20)
    features = torch.randn(6, 8, generator=rng)[labels][:, None] + torch.randn(120, 4, 8, generator=rng)
    names = tuple(f"c{c}" for c in range(6))
    ids = tuple(f"c{c}/{i}" for c in range(6) for i in range(20))
    return FeatureBank(features, labels, BankInfo(names, ids, "data", "encoder", {"source": "x", "k": 3}, 0, "commit"))


def tiny_models(request: pytest.FixtureRequest) -> dict[str, str]:
    """What stands for the folders of weights that the pages name."""
    adapters = request.getfixturevalue("tiny_ip")
    return {"/models/sd15": str(request.getfixturevalue("tiny_sd")), "/models/IP-Adapter": str(adapters["base"])}
