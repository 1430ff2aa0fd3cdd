"""The three layouts images come in, read as one list of members.

    folder/class/file.jpg                        `folder_members`
    a.zip, b.zip, … each with class/file.jpg     `zip_members` (together they form one split)
    images/file.jpg + split.csv                  `csv_members` (FEAT's layout: filename,label)

A member knows its class, its name and how to read its bytes; nothing is decoded here.
"""

from __future__ import annotations

import csv
import hashlib
import threading
import zipfile
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from onesdaug.errors import DataError

# what is taken as an image: Pillow's name of the format, and the endings of its files
FORMATS = {
    "JPEG": ("jpg", "jpeg"), "PNG": ("png",), "WEBP": ("webp",), "BMP": ("bmp",), "GIF": ("gif",),
    "TIFF": ("tif", "tiff"), "PPM": ("ppm",),
}  # fmt: skip
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
    def stat() -> tuple[int, int]:
        data = path.read_bytes()
        return len(data), zlib.crc32(data)

    return Member(label, path.name, path.read_bytes, str(path), stat)


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


def _one_zip(path: Path) -> list[Member]:
    try:
        with zipfile.ZipFile(path) as archive:
            infos = [i for i in archive.infolist() if not i.is_dir() and is_image(i.filename)]
    except (OSError, zipfile.BadZipFile) as error:
        raise DataError(f"{path} cannot be read as a zip file: {error}") from error
    local = threading.local()

    def handle() -> zipfile.ZipFile:
        archive: zipfile.ZipFile | None = getattr(local, "archive", None)
        if archive is None:
            archive = local.archive = zipfile.ZipFile(path)
        return archive

    def member(info: zipfile.ZipInfo) -> Member:
        parts = PurePosixPath(info.filename).parts
        if len(parts) < 2:
            raise DataError(f"{path}: {info.filename} lies in no class folder (want class/file)")
        return Member(
            label=parts[0],
            name=parts[-1],
            read=lambda: handle().read(info),
            where=f"{path}:{info.filename}",
            stat=lambda: (info.file_size, info.CRC),
        )

    return [member(info) for info in infos]


def csv_members(images: Path, split: Path) -> list[Member]:
    """FEAT's layout: all images in one folder, a CSV with `filename,label` rows per split."""
    if not split.is_file():
        raise DataError(f"{split} is not a file")
    with split.open(newline="", encoding="utf-8") as handle:
        rows = csv.DictReader(handle)
        if not rows.fieldnames or not {"filename", "label"} <= set(rows.fieldnames):
            raise DataError(f"{split} needs the columns filename,label; it has {rows.fieldnames}")
        members = [_file_member(images / row["filename"], row["label"]) for row in rows]
    for m in members:
        if not Path(m.where).is_file():
            raise DataError(f"{split} names {m.name}, which is not in {images}")
    return _checked(members, str(split), "at least one row")


def find_members(path: Path) -> list[Member]:
    """Whatever `path` is: a class folder, a zip, a folder of zips, or a split CSV beside `images/`."""
    if path.suffix.lower() == ".csv":
        return csv_members(path.parent / "images", path)
    if path.is_file():
        return zip_members([path])
    if path.is_dir():
        zips = sorted(path.glob("*.zip"))
        return zip_members(zips) if zips else folder_members(path)
    raise DataError(f"{path} does not exist")


def fingerprint(members: Iterable[Member]) -> str:
    """16 hex digits of the set of (class, file name, size, CRC-32): the same whatever the order or layout."""
    lines = sorted(f"{m.label}/{m.name} {size} {crc:08x}" for m in members for size, crc in [m.stat()])
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]


def _checked(members: list[Member], where: str, want: str) -> list[Member]:
    if not members:
        raise DataError(f"no images found in {where}; expected {want}")
    seen: dict[str, str] = {}
    for m in members:
        if m.id in seen:
            raise DataError(f"{m.where} and {seen[m.id]} are both called {m.id}; ids must be unique")
        seen[m.id] = m.where
    return sorted(members, key=lambda m: (m.label, m.name))
