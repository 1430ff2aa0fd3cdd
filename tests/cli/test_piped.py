"""A long command whose output is piped says something every few seconds; its results alone go to stdout."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from onesdaug.cli import app
from onesdaug.common import progress
from tests.conftest import make_image

STUDY = """kind = "demo"
title = "mine"
paper = "none"
about = "A demo without banks."
banks = "nothing"
"""


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
    scored = call("fewshot", "evaluate", bank, "--way", 3, "--query", 2, "--shot", 1, "--episodes", 20000)
    assert scored.exit_code == 0 and "scoring episodes: " in scored.stderr and "rows/s, about" in scored.stderr


def test_views_tell_their_rate_before_the_first_chunk_is_done(folder: Path, tmp_path: Path) -> None:
    common = ["--k", 1, "--device", "cpu", "--preset", "pocket-accuracy"]
    options = ["--encoder", "convnet", "--views", "pocket", "-o", tmp_path / "bank"]
    done = call("fewshot", "embed", folder / "val", *options, *common)
    assert done.exit_code == 0, done.output
    assert re.search(r"embedding: 0 of 9 images, [\d.]+ images/s, about \d+ s left", done.stderr)
    made = call("augment", folder / "val", "-r", *common, "-o", tmp_path / "views")
    assert made.exit_code == 0 and re.search(r"0 of 9 views, [\d.]+ views/s, about \d+ s left", made.stderr)


def test_a_study_is_named_while_it_is_run(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(STUDY)
    done = call("study", "run", tmp_path / "mine.toml", "--model", "shape", "-o", tmp_path / "out", "--device", "cpu")
    assert "study mine: 0 of 1 studies, none done yet" in done.stderr


def test_train(folder: Path, tmp_path: Path) -> None:
    options = "--stage pretrain --backbone convnet --epochs 1 --batch 3 --num-eval-episodes 2 --eval-way 3"
    small = [*options.split(), "--eval-shot", 1, "--eval-query", 2, "--resize", 92, "--device", "cpu"]
    done = call("fewshot", "train", "--data", folder, "-o", tmp_path / "model", *small)
    assert done.exit_code == 0, done.output
    assert " of 3 steps, " in done.stderr and "epoch 1 step 3/3" in done.stderr and "step" not in done.stdout
