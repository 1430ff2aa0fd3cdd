"""A long command whose output is piped says something every few seconds; its results alone go to stdout."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from onesdaug.cli import app
from onesdaug.common import progress
from tests.conftest import make_image


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    home = tmp_path / "own"
    for split in ("train", "val"):
        for number, name in enumerate(("ant", "bee", "cat")):
            (home / split / name).mkdir(parents=True)
            for i in range(3):
                make_image(10 * number + i, (92, 92)).save(home / split / name / f"{i}.png")
    return home


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "EVERY", 0.001)


def call(*arguments: object) -> Result:
    return CliRunner().invoke(app, [*map(str, arguments)], catch_exceptions=False)


def test_augment_and_embed(folder: Path, tmp_path: Path) -> None:
    made = call("augment", folder / "val", "-r", "--model", "shape", "--k", 4, "-o", tmp_path / "views")
    assert made.exit_code == 0 and " of 36 views, " in made.stderr and " of 36 views" not in made.stdout
    bank = tmp_path / "bank.safetensors"
    done = call("fewshot", "embed", folder / "val", "--encoder", "convnet", "-o", bank, "--device", "cpu")
    assert done.exit_code == 0 and " s] decoding: " in done.stderr and " s] embedding: " in done.stderr
    assert done.stdout.splitlines() == [f"{bank}: 9 images of 3 classes, 0 views each, d = 64"]


def test_train(folder: Path, tmp_path: Path) -> None:
    options = "--stage pretrain --backbone convnet --epochs 1 --batch 3 --num-eval-episodes 2 --eval-way 3"
    small = [*options.split(), "--eval-shot", 1, "--eval-query", 2, "--resize", 92, "--device", "cpu"]
    done = call("fewshot", "train", "--data", folder, "-o", tmp_path / "model", *small)
    assert done.exit_code == 0, done.output
    assert " of 3 steps, " in done.stderr and "epoch 1 step 3/3" in done.stderr and "step" not in done.stdout
