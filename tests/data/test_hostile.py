"""Data sets made to break things: each gives one line that names the file."""

from __future__ import annotations

import io
import os
import struct
import tracemalloc
import zipfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from onesdaug.data import sources
from onesdaug.data.decode import decode, square
from onesdaug.data.registry import load_path, load_split
from onesdaug.data.sources import csv_members, find_members, fingerprint, folder_members, zip_members
from onesdaug.errors import DataError
from tests.conftest import make_image


def png(seed: int = 0) -> bytes:
    buffer = io.BytesIO()
    make_image(seed, (16, 16)).save(buffer, "PNG")
    return buffer.getvalue()


def zipped(path: Path, name: str = "ant/a.png", data: bytes | None = None, method: int = zipfile.ZIP_DEFLATED) -> Path:
    with zipfile.ZipFile(path, "w", method) as archive:
        archive.writestr(name, png() if data is None else data)
    return path


def patched(path: Path, local: int, central: int, form: str, *values: int) -> Path:
    """A zip file with other values at a place of its only member's local and central headers."""
    data = bytearray(path.read_bytes())
    struct.pack_into(form, data, local, *values)
    struct.pack_into(form, data, data.rindex(b"PK\x01\x02") + central, *values)
    path.write_bytes(data)
    return path


def refused(path: Path) -> str:
    with pytest.raises(DataError) as caught:
        load_path(path, 16)
    text = str(caught.value)
    assert str(path) in text and "\n" not in text
    return text


def test_zips_with_a_wrong_checksum_a_password_or_another_method(tmp_path: Path) -> None:
    assert "CRC" in refused(patched(zipped(tmp_path / "crc.zip"), 14, 16, "<I", 1))
    assert "encrypted" in refused(patched(zipped(tmp_path / "locked.zip"), 6, 8, "<H", 1))
    assert "method" in refused(patched(zipped(tmp_path / "method.zip"), 8, 10, "<H", 99))
    assert "method" in refused(zipped(tmp_path / "bz2.zip", method=zipfile.ZIP_BZIP2))
    assert "no class folder" in refused(zipped(tmp_path / "out.zip", "../a.png"))
    damaged = zipped(tmp_path / "damaged.zip")
    data = bytearray(damaged.read_bytes())
    data[45:60] = bytes(15)
    damaged.write_bytes(data)
    assert "damaged.zip:ant/a.png cannot be read" in refused(damaged)
    (tmp_path / "cut.zip").write_bytes(damaged.read_bytes()[:-10])
    assert "zip file" in refused(tmp_path / "cut.zip")


@pytest.mark.parametrize("declared", [None, 1000])
def test_a_member_that_inflates_to_more_than_an_image_takes_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, declared: int | None
) -> None:
    """Whether it says so or claims to be small."""
    bomb = zipped(tmp_path / "bomb.zip", data=png() + bytes(1 << 26))
    if declared is not None:
        patched(bomb, 22, 24, "<I", declared)
    monkeypatch.setattr(sources, "MAX_BYTES", 1 << 20)
    tracemalloc.start()
    assert "bytes; an image" in refused(bomb) if declared is None else "CRC" in refused(bomb)
    assert tracemalloc.get_traced_memory()[1] < 1 << 21
    tracemalloc.stop()


def test_a_file_of_a_folder_is_not_read_when_it_is_too_large(tmp_path: Path) -> None:
    (tmp_path / "ant").mkdir()
    with (tmp_path / "ant" / "a.png").open("wb") as file:
        file.truncate(4 << 30)
    with pytest.raises(DataError, match=r"a\.png has 4,294,967,296 bytes"):
        load_path(tmp_path, 16)


def table(home: Path, text: str | bytes) -> Path:
    (home / "images").mkdir(exist_ok=True)
    (home / "images" / "a.png").write_bytes(png())
    (home / "secret.png").write_bytes(png(1))
    path = home / "split.csv"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("filename,label\na.png,caf\xe9".encode("latin-1"), "not a CSV file in UTF-8"),
        (b"filename,label\n\x00\xff\xfe", "not a CSV file in UTF-8"),
        ("filename,label\na.png\n", "line 2: want one value for each column"),
        ("filename,label\na.png,\n", "line 2: want one value"),
        ("filename,label\n,ant\n", "line 2: want one value"),
        ("filename,label\na.png,ant,bee\n", "line 2: want one value"),
        ("filename,label\n../secret.png,ant\n", r"line 2: \.\./secret\.png leads out of"),
        ("filename,label\n/etc/passwd,ant\n", "line 2: /etc/passwd leads out of"),
        ("filename,label\nb.png,ant\n", r"line 2: b\.png is not in"),
        (f"filename,label\n{'x' * 5000}.png,ant\n", "split.csv"),
        (f"filename,label\n{'x' * 200_000},ant\n", "split.csv"),
        ("file,class\na.png,ant\n", "needs the columns filename,label"),
        ("", "needs the columns"),
    ],
)
def test_tables_that_are_wrong(tmp_path: Path, text: str | bytes, why: str) -> None:
    path = table(tmp_path, text)
    with pytest.raises(DataError, match=why) as caught:
        csv_members(tmp_path / "images", path)
    assert str(path) in str(caught.value)


def test_a_table_from_a_spreadsheet_begins_with_a_mark(tmp_path: Path) -> None:
    (member,) = csv_members(tmp_path / "images", table(tmp_path, "\ufefffilename,label\r\na.png,None\r\n"))
    assert (member.id, member.read()) == ("None/a", png())


def test_caches_that_are_torn_or_not_ours(tmp_path: Path) -> None:
    (tmp_path / "own" / "ant").mkdir(parents=True)
    (tmp_path / "own" / "ant" / "a.png").write_bytes(png())
    cache = tmp_path / "cache"
    load_path(tmp_path / "own", 16, cache)
    (stored,) = cache.glob("*.npy")
    whole = stored.read_bytes()
    wrong = io.BytesIO()
    np.save(wrong, np.zeros((1, 16, 16, 3), np.float32))
    pickled = io.BytesIO()
    np.save(pickled, np.array([{}], dtype=object), allow_pickle=True)
    for data in (b"", whole[:5], whole[:100], whole[:-1], b"PK\x03\x04", wrong.getvalue(), pickled.getvalue()):
        stored.write_bytes(data)
        with pytest.raises(DataError, match="delete it") as caught:
            load_path(tmp_path / "own", 16, cache)
        assert str(stored) in str(caught.value)


def test_a_name_that_is_no_text_does_not_stop_a_fingerprint(tmp_path: Path) -> None:
    (tmp_path / "ant").mkdir()
    (tmp_path / "ant" / os.fsdecode(b"\xff.png")).write_bytes(png())
    assert len(fingerprint(folder_members(tmp_path))) == 16


def test_a_line_of_a_million_pixels_is_no_line_of_billions(tmp_path: Path) -> None:
    line = Image.new("RGB", (1_000_000, 1), "teal")
    assert (square(line, 92) == np.array([0, 128, 128])).all()
    assert (square(line.transpose(Image.Transpose.ROTATE_90), 92) == np.array([0, 128, 128])).all()


def splits(home: Path, *names: str) -> Path:
    for name in names:
        (home / name / "ant").mkdir(parents=True)
        (home / name / "ant" / "a.png").write_bytes(png())
    return home


def test_splits_are_not_taken_for_classes(tmp_path: Path) -> None:
    whole = splits(tmp_path / "own", "train", "val", "test")
    assert "holds splits (test, train, val), not classes: choose one with --split" in refused(whole)
    assert "holds splits (test)" in refused(splits(tmp_path / "one", "test"))
    assert len(load_split(str(whole), "val", size=16)) == len(load_path(whole / "val", 16)) == 1
    assert "holds splits (valid)" in refused(zipped(tmp_path / "all.zip", "valid/ant/a.png"))
    (tmp_path / "zips").mkdir()
    for name in ("train", "test-0"):
        zipped(tmp_path / "zips" / f"{name}.zip", f"{name}/a.png")
    assert "holds splits (test, train)" in refused(tmp_path / "zips")
    table(tmp_path, "filename,label\na.png,ant\n").rename(tmp_path / "images" / ".." / "test.csv")
    (tmp_path / "feat" / "images").mkdir(parents=True)
    (tmp_path / "test.csv").rename(tmp_path / "feat" / "test.csv")
    assert "holds splits (test)" in refused(tmp_path / "feat")


def test_a_class_may_be_called_train(tmp_path: Path) -> None:
    assert {m.label for m in find_members(splits(tmp_path, "train", "bus"))} == {"train", "bus"}


def test_one_bad_member_is_named_whatever_the_others_are(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("ant/a.png", png())
        archive.writestr("ant/b.png", b"")
    with pytest.raises(ValueError, match=r"a\.zip:ant/b\.png is empty"):
        decode(zip_members([tmp_path / "a.zip"]), 16)
