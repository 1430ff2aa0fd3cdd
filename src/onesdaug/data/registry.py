"""The benchmarks this package knows: what each should hold, how to check it, how to get it.

Layout under the data root (`ONESDAUG_DATA`), for each benchmark and split one of:

    NAME/SPLIT.zip   NAME/SPLIT-0.zip, NAME/SPLIT-1.zip, …   NAME/SPLIT/class/file   NAME/SPLIT.csv + NAME/images/
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path

from onesdaug.data.dataset import Dataset
from onesdaug.data.decode import WORKING_SIZE, load_members
from onesdaug.data.sources import Member, csv_members, find_members, fingerprint, folder_members, zip_members
from onesdaug.errors import DataError

SPLITS = ("train", "val", "test")
ENVIRONMENT = "ONESDAUG_DATA"


@dataclass(frozen=True)
class Split:
    classes: int
    images: int
    fingerprints: Sequence[str] = ()  # of copies known to be right


@dataclass(frozen=True)
class Benchmark:
    """An entry of benchmarks.toml."""

    name: str
    title: str
    splits: Mapping[str, Split]
    size: int
    resize: int
    how: str
    note: str = ""


@dataclass(frozen=True)
class Found:
    """What lies on disk for one split; `problems` is empty when it is what it should be."""

    split: str
    classes: int = 0
    images: int = 0
    fingerprint: str = ""
    known: bool = False
    problems: tuple[str, ...] = field(default=())


def _benchmarks() -> dict[str, Benchmark]:
    found = tomllib.loads(files("onesdaug.data").joinpath("benchmarks.toml").read_text(encoding="utf-8"))
    return {
        name: Benchmark(name=name, splits={split: Split(**entry.pop(split)) for split in SPLITS}, **entry)
        for name, entry in found.items()
    }


BENCHMARKS = _benchmarks()


def data_root(root: Path | str | None = None) -> Path | None:
    """The folder benchmarks lie in: the argument, else `ONESDAUG_DATA`, else none."""
    chosen = root or os.environ.get(ENVIRONMENT)
    return Path(chosen).expanduser() if chosen else None


def split_members(name: str, split: str, root: Path) -> list[Member]:
    """The files of a benchmark's split in whichever layout they lie; DataError says what was looked for."""
    home = root / name
    numbered = sorted(home.glob(f"{split}-*.zip"), key=lambda p: (len(p.name), p.name))
    if (home / f"{split}.zip").is_file():
        return zip_members([home / f"{split}.zip"])
    if numbered:
        return zip_members(numbered)
    if (home / split).is_dir():
        return folder_members(home / split)
    if (home / f"{split}.csv").is_file():
        return csv_members(home / "images", home / f"{split}.csv")
    raise DataError(f"no {split} split of {name} in {home} (want {split}.zip, {split}-*.zip, {split}/ or {split}.csv)")


def check(name: str, split: str, root: Path) -> Found:
    """Count and fingerprint one split without decoding a pixel."""
    want = BENCHMARKS[name].splits[split]
    try:
        members = split_members(name, split, root)
    except DataError as error:
        return Found(split, problems=(str(error),))
    classes = len({m.label for m in members})
    problems = []
    if want.classes and classes != want.classes:
        problems.append(f"{classes} classes, expected {want.classes}")
    if want.images and len(members) != want.images:
        problems.append(f"{len(members)} images, expected {want.images}")
    mark = fingerprint(members)
    return Found(split, classes, len(members), mark, mark in want.fingerprints, tuple(problems))


def train_members(name: str, root: Path | str | None = None) -> list[Member]:
    """The files of a train split, of a benchmark or of a user's own folder with train/ in it."""
    if name in BENCHMARKS:
        return split_members(name, "train", _root(name, root))
    home = Path(name).expanduser()
    return split_members(home.name, "train", home.parent)


def _root(name: str, root: Path | str | None) -> Path:
    base = data_root(root)
    if base is None:
        raise DataError(f"where is {name}? Set {ENVIRONMENT} or pass the data root. To get it: {BENCHMARKS[name].how}")
    return base


def load_split(
    name: str,
    split: str,
    root: Path | str | None = None,
    size: int | None = None,
    cache: Path | None = None,
    workers: int | None = None,
) -> Dataset:
    """A benchmark's split by name, or a user's own: `name` may be a folder with train/, val/ … in it."""
    if split not in SPLITS:
        raise DataError(f"split {split!r} is none of {', '.join(SPLITS)}")
    benchmark = BENCHMARKS.get(name)
    if benchmark is None:
        home = Path(name).expanduser()
        if not home.exists():
            raise DataError(f"{name!r} is neither a known benchmark ({', '.join(BENCHMARKS)}) nor a folder")
        return load_members(split_members(home.name, split, home.parent), size or WORKING_SIZE, cache, workers)
    return load_members(split_members(name, split, _root(name, root)), size or benchmark.size, cache, workers)


def load_path(
    path: Path | str, size: int = WORKING_SIZE, cache: Path | None = None, workers: int | None = None
) -> Dataset:
    """A user's own folder, zip or split CSV; no registry entry needed."""
    return load_members(find_members(Path(path)), size, cache, workers)


def load_data(name: str, split: str | None, root: Path | str | None, default: str) -> Dataset:
    """As the command line names it: a benchmark's split (else the `default` one), or a user's own data."""
    if name in BENCHMARKS or split is not None:
        return load_split(name, split or default, root)
    return load_path(name)
