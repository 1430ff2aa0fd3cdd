"""The whole way of training a transformer on a lent machine, here: taken, trained apart, brought home, used."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
import torch

from benchmarks.h200_studies import on_path
from benchmarks.h200_transformers import put_behind, warm_may_begin
from onesdaug.encoders.checkpoint import load_checkpoint
from onesdaug.encoders.load import load_encoder
from tests.benchmarks.drivers import whole_walk
from tests.conftest import make_image

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "h200_transformers.py"


def call(*words: object, script: Path = SCRIPT) -> str:
    done = subprocess.run([sys.executable, str(script), *map(str, words)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def zipped(file: Path, classes: list[str], each: int, side: int) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(file, "w") as archive:
        for number, name in enumerate(classes):
            for i in range(each):
                make_image(100 * number + i, (side, side)).save(file.with_name("x.png"))
                archive.write(file.with_name("x.png"), f"{name}/{number}-{i}.png")
    file.with_name("x.png").unlink()


@pytest.mark.parametrize(
    ("script", "words"),
    [("h200_studies", ["run", "pope"]), ("h200_transformers", ["table", "vit-small=5"]),
     ("h200_transformers", ["watch"])],
)  # fmt: skip
def test_a_fresh_machine_says_at_once_that_nothing_was_taken(tmp_path: Path, script: str, words: list[str]) -> None:
    line = [sys.executable, str(SCRIPT.with_name(f"{script}.py")), *words, "--work", str(tmp_path / "work")]
    done = subprocess.run([*line, "--limit", "560"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and "nothing was taken on this machine" in done.stderr
    assert not list((tmp_path / "work").glob("*"))  # nothing was begun


def test_compiling_waits_until_training_was_timed_and_what_draws_has_come(tmp_path: Path) -> None:
    args = argparse.Namespace(work=tmp_path, smoke=False)
    assert not warm_may_begin(args)
    (tmp_path / "transformers.done" / "mini-x.begun.state").mkdir(parents=True)
    (tmp_path / "transformers.done" / "mini-x.begun.state" / "pretrain.plan.json").write_text("{}")
    assert not warm_may_begin(args)
    folder = tmp_path / "carry" / "lite2"
    folder.mkdir(parents=True)
    call("take", folder, "--work", tmp_path, script=SCRIPT.with_name("h200_studies.py"))
    assert warm_may_begin(args)


def test_training_goes_before_what_is_compiled_beside_it() -> None:
    with subprocess.Popen(["sleep", "60"], start_new_session=True) as process:
        put_behind([process])
        behind = os.getpriority(os.PRIO_PROCESS, process.pid)
        process.kill()
    assert behind == 19 > os.getpriority(os.PRIO_PROCESS, 0)


def test_runs_that_begin_side_by_side_do_not_trip_over_each_others_links(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "repo").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    link = Path.symlink_to

    def second(self: Path, target: Path) -> None:
        link(self, target)  # by another process, between our looking and our linking
        link(self, target)

    monkeypatch.setattr(Path, "symlink_to", second)
    on_path(tmp_path)
    assert (tmp_path / "repo" / "banks").resolve() == tmp_path / "banks"


@pytest.mark.parametrize("word", ["vit-smal=5", "swin-tiny=rset", "swin-tiny=-5", "=5"])
def test_a_misspelt_network_is_refused_before_anything_begins(tmp_path: Path, word: str) -> None:
    work = tmp_path / "work"
    (work / "repo").mkdir(parents=True)
    (work / "repo" / "src").symlink_to(SCRIPT.parents[1] / "src")
    command = [sys.executable, SCRIPT, "table", "vit-small=5", word, "--work", work]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2 and f"{word}: want NAME=SECONDS or NAME=rest, NAME one of vit-small" in done.stderr
    assert not (work / "run.log").exists()


@whole_walk
def test_networks_are_trained_used_and_brought_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("transformers")
    one, two, home = tmp_path / "carry" / "1", tmp_path / "carry" / "2", tmp_path / "home"
    code = tmp_path / "work" / "repo"  # too large to be taken here
    code.mkdir(parents=True)
    for name in ("src", "benchmarks", "packages"):
        (code / name).symlink_to(SCRIPT.parents[1] / name)
    zipped(one / "data" / "miniimagenet" / "train-0.zip", ["n1", "n2"], 6, 84)
    for name in ("miniimagenet/val", "miniimagenet/test", "cub/val", "cub/test"):
        zipped(one / "data" / f"{name}.zip", ["v1", "v2", "v3", "v4", "v5"], 20, 84 if "mini" in name else 100)
    zipped(two / "data" / "tiny" / "tiny-01.zip", ["n1", "n3"], 6, 64)
    monkeypatch.setenv("OUT", str(home))
    for folder in (one, two):
        call("take", folder, "--work", tmp_path / "work", script=SCRIPT.with_name("h200_studies.py"))
    common = ("--work", tmp_path / "work", "--smoke")
    call("table", "swin-tiny=5", "--models", "shape", "--train", 300, "--limit", 900, *common)
    log = call("watch", "--limit", 900, *common)
    assert "18 images of 3 classes, 40" in log and "mini-swin-tiny: {'cosine_1shot'" in log
    assert "shape: ended with 0" in log and "plain: ended with 0" in log and log.endswith("\nended\n"), log
    assert "all was brought" in log
    with tarfile.open(home / "results.tar.gz") as archive:
        (found,) = [json.load(archive.extractfile(name)) for name in archive.getnames() if name.endswith(".json")]  # type: ignore[arg-type]
    mine = {(cell["data"], cell["row"], cell["support"]) for cell in found["cells"] if "Swin" in cell["classifier"]}
    assert {(data, "paper-point", k) for data in ("miniimagenet", "cub") for k in (1, 2, 3)} < mine
    folder = home / "transformers.done" / "mini-swin-tiny"
    files = sorted(path.name for path in folder.iterdir())
    assert files == ["card.json", *(f"model-{i}-of-4.safetensors" for i in range(1, 5))]
    assert all(path.stat().st_size < 16 * 2**20 for path in folder.iterdir())
    card = load_checkpoint(folder)[1]
    assert card["kind"] == "pretrain" and card["backbone"] == "swin-tiny" and card["data"]["train"]["classes"] == 3
    assert str(tmp_path) not in (folder / "card.json").read_text()
    assert load_encoder(folder).embed(torch.rand(2, 3, 84, 84)).shape == (2, 768)
    call("run", "swin-tiny=5", *common)  # done: not trained again
    assert "mini-swin-tiny" in (tmp_path / "work" / "train.txt").read_text().splitlines()[-2]
    assert "swin-tiny: 1 steps of 8" in call("profile", "swin-tiny", *common)
