"""`onesdaug fewshot train` from a user's own folder of images."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import typer
from PIL import Image
from typer.testing import CliRunner

from onesdaug.cli.fewshot import train
from onesdaug.cli.screen import OUT_OF_TIME
from onesdaug.encoders.checkpoint import load_checkpoint

app = typer.Typer()
app.command()(train)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    for split in ("train", "val"):
        for kind in ("ant", "bee", "cat"):
            home = tmp_path / "own" / split / kind
            home.mkdir(parents=True)
            for i in range(3):
                Image.fromarray(rng.integers(0, 255, (92, 92, 3), dtype=np.uint8)).save(home / f"{i}.png")
    return tmp_path / "own"


def test_both_stages_and_going_on(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "model"
    command = (
        f"--data {folder} --output {out} --backbone convnet --head feat --epochs 1 --batch 4 --max-epoch 1 "
        "--episodes-per-epoch 2 --way 3 --query 2 --num-eval-episodes 4 --eval-way 3 --eval-shot 1 --eval-query 2 "
        "--resize 92 --device cpu --half"
    ).split()
    late = CliRunner().invoke(app, [*command, "--max-seconds", "0"])
    assert late.exit_code == OUT_OF_TIME
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.output
    _, card = load_checkpoint(out)
    assert card["head"] == {
        "name": "feat",
        "settings": {"metric": "euclidean", "temperature": 64.0, "temperature2": 64.0},
    }
    assert card["arguments"]["lr"] == 2e-4 and card["preprocess"]["resize"] == 92
    assert card["init"] == load_checkpoint(tmp_path / "model-pretrained")[1]["weights"]
    again = CliRunner().invoke(app, command)
    assert "no pretraining" in again.output


def test_a_hub_folder_goes_on_with_more_pictures(folder: Path, tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    from tests.tiny import save_vision

    hub, also = save_vision(tmp_path / "hub", "vit"), tmp_path / "also" / "dog"
    also.mkdir(parents=True)
    Image.new("RGB", (64, 64), (9, 9, 9)).save(also / "1.png")
    command = (
        f"--data {folder} --also {also.parent} --output {tmp_path / 'model'} --backbone hf:{hub} --stage pretrain "
        "--epochs 1 --batch 4 --num-eval-episodes 4 --eval-way 3 --eval-shot 1 --eval-query 2 --device cpu --mix 0.4"
    ).split()
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.output
    _, card = load_checkpoint(tmp_path / "model")
    assert card["data"]["train"]["classes"] == 4 and card["data"]["train"]["images"] == 10
    arguments = card["arguments"]
    assert (arguments["optimizer"], arguments["mix"], arguments["lr"]) == ("adamw", 0.4, 5e-5)  # the recipe, and ours
    also.rename(also.with_name("ant"))  # a validation class
    refused = CliRunner().invoke(app, command)
    assert refused.exit_code != 0 and "leave out ant" in str(refused.exception or refused.output)
