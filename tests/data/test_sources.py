"""The three layouts are the same data: same images, labels, ids and fingerprint."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from onesdaug.data.decode import decode, square
from onesdaug.data.registry import load_path, load_split
from onesdaug.data.sources import csv_members, find_members, fingerprint, folder_members, zip_members
from onesdaug.errors import DataError, ImageError

CLASSES = ("ant", "bee", "cat")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    for kind in CLASSES:
        folder = tmp_path / "own" / "train" / kind
        folder.mkdir(parents=True)
        for i in range(4):
            pixels = rng.integers(0, 255, (24 + i, 20, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(folder / f"{kind}_{i}.png")
    return tmp_path / "own" / "train"


def as_zips(tree: Path, home: Path) -> list[Path]:
    home.mkdir(exist_ok=True)
    paths = []
    for i, kind in enumerate(CLASSES):
        paths.append(home / f"train-{i}.zip")
        with zipfile.ZipFile(paths[-1], "w") as archive:
            for path in sorted((tree / kind).iterdir(), reverse=True):
                archive.write(path, f"{kind}/{path.name}")
    return paths


def as_csv(tree: Path, home: Path) -> Path:
    (home / "images").mkdir(parents=True)
    rows = ["filename,label"]
    for path in sorted(tree.rglob("*.png"), reverse=True):
        (home / "images" / path.name).write_bytes(path.read_bytes())
        rows.append(f"{path.name},{path.parent.name}")
    (home / "train.csv").write_text("\n".join(rows) + "\n")
    return home / "train.csv"


def test_three_layouts_are_one_data_set(tree: Path, tmp_path: Path) -> None:
    split = as_csv(tree, tmp_path / "feat")
    sets = [
        decode(folder_members(tree), 16),
        decode(zip_members(as_zips(tree, tmp_path / "zips")), 16, workers=2),
        decode(csv_members(split.parent / "images", split), 16),
    ]
    for other in sets[1:]:
        assert np.array_equal(sets[0].images, other.images)
        assert np.array_equal(sets[0].labels, other.labels)
        assert (sets[0].ids, sets[0].class_names, sets[0].fingerprint) == (
            other.ids,
            other.class_names,
            other.fingerprint,
        )
    assert sets[0].ids[0] == "ant/ant_0"
    assert sets[0].counts().tolist() == [4, 4, 4]
    assert sets[0].images.dtype == np.uint8


def test_find_members_knows_each_layout(tree: Path, tmp_path: Path) -> None:
    marks = {
        fingerprint(find_members(path))
        for path in (tree, as_csv(tree, tmp_path / "feat"), as_zips(tree, tmp_path / "zips")[0].parent)
    }
    assert len(marks) == 1


def test_own_folder_needs_no_registry(tree: Path) -> None:
    assert len(load_split(str(tree.parent), "train", size=16)) == 12
    with pytest.raises(DataError, match="no val split"):
        load_split(str(tree.parent), "val")
    with pytest.raises(DataError, match="neither a known benchmark"):
        load_split("nonsense", "val")


def test_a_changed_pixel_changes_the_fingerprint(tree: Path) -> None:
    before = fingerprint(folder_members(tree))
    Image.new("RGB", (20, 24)).save(tree / "ant" / "ant_0.png")
    assert fingerprint(folder_members(tree)) != before


def test_cache_gives_the_same_and_is_used(tree: Path, tmp_path: Path) -> None:
    first = load_path(tree, 16, cache=tmp_path / "cache")
    stored = list((tmp_path / "cache").glob("*.npy"))
    assert len(stored) == 1
    again = load_path(tree, 16, cache=tmp_path / "cache")
    assert np.array_equal(first.images, again.images)
    assert (first.ids, first.fingerprint) == (again.ids, again.fingerprint)
    np.save(stored[0], np.zeros((1, 16, 16, 3), np.uint8))
    with pytest.raises(DataError, match="delete it"):
        load_path(tree, 16, cache=tmp_path / "cache")


def test_decode_resizes_the_short_side_and_takes_the_centre() -> None:
    pixels = np.zeros((60, 40, 3), np.uint8)
    pixels[10:50] = 200  # the central square
    out = square(Image.fromarray(pixels), 20)
    assert out.shape == (20, 20, 3)
    assert (out[2:-2] == 200).all()
    same = square(Image.fromarray(pixels), 40)
    assert np.array_equal(same, pixels[10:50])  # no resampling where none is needed


def test_errors_name_the_file(tree: Path, tmp_path: Path) -> None:
    (tree / "ant" / "broken.png").write_bytes(b"no image")
    with pytest.raises(ImageError, match=r"broken\.png"):
        decode(folder_members(tree), 16)
    with pytest.raises(DataError, match="no images found"):
        folder_members(tree / "ant")
    (tmp_path / "x.zip").write_bytes(b"PK")
    with pytest.raises(DataError, match=r"x\.zip"):
        zip_members([tmp_path / "x.zip"])


def test_data_sets_take_the_same_pictures_as_everything_else(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Transparency lies on white, 16 bits are scaled, phones' pictures stand upright; bombs and cuts are refused."""
    ant = tree / "ant"
    Image.new("RGBA", (16, 16), (0, 0, 0, 0)).save(ant / "clear.png")
    Image.fromarray(np.full((16, 16), 65535, np.uint16)).save(ant / "deep.png")
    turned = Image.new("RGB", (32, 16), "black")
    turned.paste("white", (0, 0, 16, 16))
    exif = Image.Exif()
    exif[274] = 6
    turned.save(ant / "turned.png", exif=exif)
    data = decode(folder_members(tree), 16)
    assert (data.images[data.ids.index("ant/clear")] == 255).all()
    assert (data.images[data.ids.index("ant/deep")] == 255).all()
    half = data.images[data.ids.index("ant/turned")]
    assert (half[:8] == 255).all() and (half[8:] == 0).all()
    (ant / "cut.png").write_bytes((ant / "ant_0.png").read_bytes()[:-40])
    with pytest.raises(ImageError, match=r"cut\.png is (cut off|damaged)"):
        decode(folder_members(tree), 16)
    (ant / "cut.png").unlink()
    monkeypatch.setattr("onesdaug.data.images.MAX_PIXELS", 400)
    with pytest.raises(ImageError, match="decompression bomb"):
        decode(folder_members(tree), 16)


def test_two_images_of_one_name_are_refused(tree: Path) -> None:
    (tree / "ant" / "deeper").mkdir()
    (tree / "ant" / "deeper" / "ant_0.png").write_bytes((tree / "ant" / "ant_0.png").read_bytes())
    with pytest.raises(DataError, match="unique"):
        folder_members(tree)


def test_take_keeps_rows_together(tree: Path) -> None:
    small = load_path(tree, 16).take(2, 2)
    assert small.ids == ("ant/ant_0", "ant/ant_1", "bee/bee_0", "bee/bee_1")
    assert small.labels.tolist() == [0, 0, 1, 1]
    assert small.class_names == ("ant", "bee")


def test_small_files_are_decoded_by_one_thread(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from onesdaug.data import decode as module

    members = folder_members(tree)
    plain = decode(members, 16)
    assert module._workers(members) == 1
    monkeypatch.setattr(module, "SMALL", 0)
    monkeypatch.setattr(module.os, "cpu_count", lambda: 4)
    monkeypatch.setattr(module, "TASK", 2)  # more tasks than threads
    assert module._workers(members) == 4
    assert np.array_equal(decode(members, 16).images, plain.images)
    monkeypatch.setattr(module.os, "cpu_count", lambda: None)
    assert module._workers(members) == 1 == module._workers(())
