"""Pictures of a git directory become zip files, without those that nobody may train on."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from pathlib import Path

from PIL import Image

from benchmarks.photo_data import asked_about, listed, packed
from onesdaug.generators.pocket.photo_table import NOVEL
from tests.conftest import make_image

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "photo_data.py"


def repository(folder: Path, names: list[str]) -> Path:
    for i, name in enumerate(names):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        make_image(i, (64, 64)).save(folder / name, "JPEG")
    git = ["git", "-C", str(folder), "-c", "user.name=a", "-c", "user.email=a@b"]
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "pictures"]):
        subprocess.run([*git, *words], check=True)
    return folder / ".git"


def test_pictures_that_pope_asks_about_are_left_out(tmp_path: Path) -> None:
    names = [f"train2017/{i:012d}.jpg" for i in range(6)]
    source = repository(tmp_path / "coco", names)
    (tmp_path / "pope").mkdir()
    asked = {"image": "COCO_val2014_000000000003.jpg", "text": "Is there a cat in the image?", "label": "no"}
    (tmp_path / "pope" / "coco_pope_random.json").write_text(json.dumps(asked) + "\n")
    assert asked_about(tmp_path / "pope") == {"000000000003"}
    words = [sys.executable, str(SCRIPT), "coco", str(source), "-o", str(tmp_path / "out")]
    refused = subprocess.run(words, capture_output=True, text=True)
    assert refused.returncode == 2 and "coco needs --pope" in refused.stderr
    said = subprocess.run(
        [*words, "--pope", str(tmp_path / "pope")], capture_output=True, text=True, check=True
    ).stdout
    assert "5 pictures in 2 zip files" in said
    found = [name for file in (tmp_path / "out").glob("*.zip") for name in zipfile.ZipFile(file).namelist()]
    assert sorted(found) == [f"{i:012d}.webp" for i in (0, 1, 2, 4, 5)]


def test_novel_classes_are_left_out_and_no_zip_file_is_too_large(tmp_path: Path) -> None:
    novel = min(NOVEL)
    names = [f"{name}/images/{name}_{i}.JPEG" for name in ("n1", novel) for i in range(6)]
    source = repository(tmp_path / "tiny", [f"tiny-imagenet-200/train/{name}" for name in names])
    files = listed(source, "tiny", NOVEL)
    assert sorted(name for name, _ in files) == [f"n1/n1_{i}.webp" for i in range(6)]
    count = packed(source, files, str(tmp_path / "part-"), 80, largest=1_500)
    made = sorted(tmp_path.glob("part-*.zip"))
    assert len(made) == count > 1 and all(file.stat().st_size <= 1_500 for file in made)
    with zipfile.ZipFile(made[0]) as archive, archive.open(archive.namelist()[0]) as file:
        assert Image.open(file).size == (64, 64)
