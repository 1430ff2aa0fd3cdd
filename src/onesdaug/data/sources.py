"""The three layouts images come in, read as one list of members.

    folder/class/file.jpg                        `folder_members`
    a.zip, b.zip, … each with class/file.jpg     `zip_members` (together they form one split)
    images/file.jpg + split.csv                  `csv_members` (FEAT's layout: filename,label)

A member knows its class, its name and how to read its bytes; nothing is decoded here.
"""

from __future__ import annotations

import csv
import hashlib
import os
import threading
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import IO, Any

from onesdaug.errors import DataError

# what is taken as an image: Pillow's name of the format, and the endings of its files
FORMATS = {
    "JPEG": ("jpg", "jpeg"), "PNG": ("png",), "WEBP": ("webp",), "BMP": ("bmp",), "GIF": ("gif",),
    "TIFF": ("tif", "tiff"), "PPM": ("ppm",),
}  # fmt: skip
_SPLITS = {"train", "training", "val", "valid", "validation", "dev", "test", "testing", "eval", "base", "novel"}
STORED = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)  # the ones that zipfile never inflates beyond what is asked for
MAX_BYTES = 1 << 28  # of one file: 256 MiB is what the most pixels an image may have take uncompressed
EXTENSIONS = tuple(ending for endings in FORMATS.values() for ending in endings)


@dataclass(frozen=True)
class Member:
    """One image file of a class, wherever it lies."""

    label: str
    name: str  # the file's own name, without folders
    read: Callable[[], bytes]
    where: str  # for error messages
    stat: Callable[[], tuple[int, int]]  # size in bytes and CRC-32

    @property
    def id(self) -> str:
        return f"{self.label}/{PurePosixPath(self.name).stem}"


def is_image(name: str, endings: Sequence[str] = EXTENSIONS) -> bool:
    """Whether a file is one to take, by its name alone: hidden files are not."""
    path = PurePosixPath(name)
    return path.suffix[1:].lower() in endings and bool(path.suffix) and not path.name.startswith(".")


def _file_member(path: Path, label: str) -> Member:
    def read() -> bytes:
        with _named(path), path.open("rb") as handle:
            return _within(path, os.fstat(handle.fileno()).st_size, handle)

    def stat() -> tuple[int, int]:
        data = read()
        return len(data), zlib.crc32(data)

    return Member(label, path.name, read, str(path), stat)


def _within(where: object, size: int, handle: IO[bytes]) -> bytes:
    """As many bytes as a file says it has, unless it says too much."""
    if size > MAX_BYTES:
        raise DataError(f"{where} has {size:,} bytes; an image of a data set has at most {MAX_BYTES:,}")
    return handle.read(size)


@contextmanager
def _named(where: object, what: str = "cannot be read") -> Iterator[None]:
    """One line that names the file, whatever the standard library throws (zipfile: eight kinds of errors)."""
    try:
        yield
    except DataError:
        raise
    except Exception as error:
        raise DataError(f"{where} {what}: {getattr(error, 'strerror', None) or error}") from error


def folder_members(folder: Path) -> list[Member]:
    """`folder/class/…/file`: the first level names the class, deeper levels only sort files."""
    if not folder.is_dir():
        raise DataError(f"{folder} is not a folder")
    members = [
        _file_member(path, kind.name)
        for kind in sorted(p for p in folder.iterdir() if p.is_dir() and not p.name.startswith("."))
        for path in sorted(kind.rglob("*"))
        if path.is_file() and is_image(path.name)
    ]
    return _checked(members, str(folder), "one sub-folder per class with images in it")


def zip_members(paths: Sequence[Path]) -> list[Member]:
    """The same tree inside zip files. Each thread opens its own handle: a shared one would serialise reads."""
    members: list[Member] = []
    for path in paths:
        members += _one_zip(Path(path))
    return _checked(members, ", ".join(str(p) for p in paths), "members named class/file")


def loose_members(path: Path) -> list[Member]:
    """Every image of a zip file or below a folder, whatever lies where: photographs that belong to no class."""
    if path.is_dir():
        found = [_file_member(file, "") for file in sorted(path.rglob("*")) if file.is_file() and is_image(file.name)]
    else:
        found = [replace(member, label="") for member in _one_zip(path, classes=False)]
    return _checked(found, str(path), "photographs")


def _one_zip(path: Path, classes: bool = True) -> list[Member]:
    with _named(path, "cannot be read as a zip file"), zipfile.ZipFile(path) as archive:
        infos = [i for i in archive.infolist() if not i.is_dir() and is_image(i.filename)]
    local = threading.local()

    def handle() -> zipfile.ZipFile:
        archive: zipfile.ZipFile | None = getattr(local, "archive", None)
        if archive is None:
            archive = local.archive = zipfile.ZipFile(path)
        return archive

    def member(info: zipfile.ZipInfo) -> Member:
        parts, where = PurePosixPath(info.filename).parts, f"{path}:{info.filename}"
        if (classes and len(parts) < 2) or {"..", "/"} & set(parts):
            raise DataError(f"{where} lies in no class folder (want class/file)")
        if info.flag_bits & 1:
            raise DataError(f"{where} is encrypted; unpack the zip file, or make it again without a password")
        if info.compress_type not in STORED:
            raise DataError(f"{where} is compressed by a method that is not read here; zip it again with `deflate`")

        def read() -> bytes:
            with _named(where), handle().open(info) as packed:
                return _within(where, info.file_size, packed)

        return Member(parts[0], parts[-1], read, where, lambda: (info.file_size, info.CRC))

    return [member(info) for info in infos]


def csv_members(images: Path, split: Path) -> list[Member]:
    """FEAT's layout: all images in one folder, a CSV with `filename,label` rows per split."""
    if not split.is_file():
        raise DataError(f"{split} is not a file")
    with _named(split, "is not a CSV file in UTF-8"), split.open(newline="", encoding="utf-8-sig") as handle:
        rows = csv.DictReader(handle)
        if not rows.fieldnames or not {"filename", "label"} <= set(rows.fieldnames):
            raise DataError(f"{split} needs the columns filename,label; it has {rows.fieldnames}")
        members = [_csv_member(images, row, f"{split}, line {rows.line_num}:") for row in rows]
    return _checked(members, str(split), "at least one row")


def _csv_member(images: Path, row: dict[str | None, Any], where: str) -> Member:
    name, label = row["filename"], row["label"]
    if not name or not label or None in row:  # DictReader fills up short rows, and files the rest of long ones there
        raise DataError(f"{where} want one value for each column, got {list(row.values())}")
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts:
        raise DataError(f"{where} {name} leads out of {images}")
    if not (images / name).is_file():
        raise DataError(f"{where} {name} is not in {images}")
    return _file_member(images / name, label)


def find_members(path: Path) -> list[Member]:
    """Whatever `path` is: a class folder, a zip, a folder of zips, or a split CSV beside `images/`; but one split."""
    if path.suffix.lower() == ".csv":
        return csv_members(path.parent / "images", path)
    if path.is_file():
        return zip_members([path])
    if path.is_dir():
        zips, tables = sorted(path.glob("*.zip")), sorted(path.glob("*.csv"))
        _refuse_splits(path, {_split_of(file) for file in zips}, at_least=2)
        if (path / "images").is_dir():
            _refuse_splits(path, {_split_of(file) for file in tables})
        return zip_members(zips) if zips else folder_members(path)
    raise DataError(f"{path} does not exist")


def _split_of(file: Path) -> str:
    """train.csv and train-0.zip are of the split train."""
    return file.stem.partition("-")[0]


def _refuse_splits(where: object, names: set[str], at_least: int = 1) -> None:
    """Splits taken for classes would give numbers that mean nothing."""
    if names <= _SPLITS and len(names) >= at_least:
        found = ", ".join(sorted(names))
        raise DataError(f"{where} holds splits ({found}), not classes: choose one with --split, or give its own path")


def fingerprint(members: Iterable[Member]) -> str:
    """16 hex digits of the set of (class, file name, size, CRC-32): the same whatever the order or layout."""
    lines = sorted(f"{m.label}/{m.name} {size} {crc:08x}" for m in members for size, crc in [m.stat()])
    return hashlib.sha256("\n".join(lines).encode(errors="surrogateescape")).hexdigest()[:16]


def _checked(members: list[Member], where: str, want: str) -> list[Member]:
    if not members:
        raise DataError(f"no images found in {where}; expected {want}")
    _refuse_splits(where, {m.label for m in members})
    seen: dict[str, str] = {}
    for m in members:
        if m.id in seen:
            raise DataError(f"{m.where} and {seen[m.id]} are both called {m.id}; ids must be unique")
        seen[m.id] = m.where
    return sorted(members, key=lambda m: (m.label, m.name))
