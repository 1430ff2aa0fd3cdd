"""`onesdaug doctor` on an empty and on a small, wrong data root."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import typer
from PIL import Image
from typer.testing import CliRunner

from onesdaug.cli.doctor import doctor
from onesdaug.common.hub import GIGABYTES
from onesdaug.common.registry import GENERATORS
from onesdaug.errors import WeightsMissing
from onesdaug.generators.load import load_generator
from onesdaug.generators.pocket import Pocket
from onesdaug.generators.sd.files import REPO

app = typer.Typer()
app.command()(doctor)


def test_nothing_there_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("ONESDAUG_DATA", raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    shown = CliRunner().invoke(app, []).output
    assert "set ONESDAUG_DATA or pass --root ROOT" in shown
    assert "hf download llava-hf/llava-1.5-7b-hf" in shown
    with pytest.raises(WeightsMissing) as caught:  # the same command as where the weights are missed, and its size
        load_generator("sd15", device="cpu")
    (command,) = [line.strip() for line in str(caught.value).splitlines() if "snapshot_download" in line]
    size = GIGABYTES[REPO]
    assert f"missing, {size} GB: {command}" in shown and f"({size} GB)" in str(caught.value)
    assert "models/ip-adapter_sd15.safetensors" in shown and "hf download h94" not in shown
    assert "image-net.org" in shown


def test_generators_that_come_with_a_package(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(GENERATORS, "_installed", {})  # as if it were not installed
    lines = CliRunner().invoke(app, ["--root", str(tmp_path)]).output.splitlines()
    start = lines.index("generators that come with a package")
    assert [line.split() for line in lines[start + 1 : start + 2]] == [["pocket", "ok,", "45.2", "MB"]]
    assert lines[start + 2].split()[:2] == ["pocket-imagenet", "missing:"]
    assert "pip install ./packages/pocket-imagenet" in lines[start + 2]
    for number, name in enumerate(("photo", "photo-128"), start + 3):
        assert lines[number].split()[:2] == [name, "missing:"] and "./packages/pocket-photo" in lines[number]


def test_an_installed_generator_is_named_and_a_damaged_one_too(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folder = tmp_path / "weights"
    shutil.copytree(Pocket.weights, folder)
    monkeypatch.setattr(Pocket, "weights", folder)
    monkeypatch.setattr(GENERATORS.get("pocket-imagenet"), "weights", folder)
    shown = CliRunner().invoke(app, ["--root", str(tmp_path)]).output
    assert "pocket-imagenet                   ok, 45.2 MB" in shown
    (folder / "model-2-of-3.safetensors").unlink()
    told = json.loads(CliRunner().invoke(app, ["--root", str(tmp_path), "--json"]).output)
    damaged = [g for g in told["generators"] if g["name"] in ("pocket", "pocket-imagenet")]
    assert all("a shard is missing or damaged" in g["problem"] and g["found"] for g in damaged) and len(damaged) == 2


def test_wrong_counts_are_named_and_strict_fails(tmp_path: Path) -> None:
    folder = tmp_path / "cub" / "val" / "001.Albatross"
    folder.mkdir(parents=True)
    Image.new("RGB", (8, 8)).save(folder / "a.png")
    done = CliRunner().invoke(app, ["--root", str(tmp_path), "--strict"])
    assert done.exit_code == 1
    assert "1 classes, expected 50; 1 images, expected 2932" in done.output
    told = json.loads(CliRunner().invoke(app, ["--root", str(tmp_path), "--json"]).output)
    cub = next(b for b in told["data"]["benchmarks"] if b["name"] == "cub")
    assert [s["images"] for s in cub["splits"]] == [0, 1, 0]
