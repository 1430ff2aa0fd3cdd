"""The benchmarks this package knows: what each should hold, how to check it, how to get it.

Layout under the data root (`ONESDAUG_DATA`), for each benchmark and split one of:

    NAME/SPLIT.zip   NAME/SPLIT-0.zip, NAME/SPLIT-1.zip, …   NAME/SPLIT/class/file   NAME/SPLIT.csv + NAME/images/
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from onesdaug.data.dataset import Dataset
from onesdaug.data.decode import WORKING_SIZE, load_members, load_path
from onesdaug.data.sources import Member, csv_members, find_members, fingerprint, folder_members, zip_members
from onesdaug.errors import DataError

SPLITS = ("train", "val", "test")
ENVIRONMENT = "ONESDAUG_DATA"


@dataclass(frozen=True)
class Split:
    classes: int
    images: int
    fingerprints: tuple[str, ...] = ()  # of copies known to be right; other encodings of the images differ


@dataclass(frozen=True)
class Benchmark:
    name: str
    title: str
    splits: Mapping[str, Split]
    size: int  # the working size images are decoded to
    resize: int  # FEAT's evaluation resize of the short side before the 84 centre crop
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


_FEAT = "class lists: data/{0}/split/*.csv of https://github.com/Sha-Lab/FEAT"

BENCHMARKS: dict[str, Benchmark] = {
    b.name: b
    for b in (
        Benchmark(
            "miniimagenet",
            "miniImageNet (Ravi & Larochelle split)",
            {
                "train": Split(64, 38_400, ("e4381031388ae776",)),
                "val": Split(16, 9_600, ("b96cfa27ba4eb6db",)),
                "test": Split(20, 12_000, ("df321420a19a99f6",)),
            },
            size=84,
            resize=92,
            how="ILSVRC-2012 (https://image-net.org, account needed), the 100 classes and files named in the "
            "split CSVs, 84×84; " + _FEAT.format("miniImagenet"),
        ),
        Benchmark(
            "tieredimagenet",
            "tieredImageNet",
            {"train": Split(351, 448_695), "val": Split(97, 124_261), "test": Split(160, 206_209)},
            size=84,
            resize=84,
            how="https://github.com/renmengye/few-shot-ssl-public (12.9 GB, 84×84), unpacked to class folders",
        ),
        Benchmark(
            "cub",
            "CUB-200-2011, whole images (FEAT's class split)",
            {
                "train": Split(100, 5_891, ("b8b9115bdc8e2876",)),
                "val": Split(50, 2_932, ("1d1dbd392059079f",)),
                "test": Split(50, 2_965, ("df61cb783ebf65ac",)),
            },
            size=WORKING_SIZE,
            resize=92,
            how="https://www.vision.caltech.edu/datasets/cub_200_2011 (1.1 GB); " + _FEAT.format("cub"),
            note="The paper and FEAT differ: FEAT crops by bounding box first, here images are whole.",
        ),
        Benchmark(
            "animals",
            "Animals (the carnivore faces of FUNIT, in FSL-Rectifier's split)",
            {"train": Split(119, 0), "val": Split(0, 0), "test": Split(30, 0)},
            size=WORKING_SIZE,
            resize=84,
            how="https://github.com/NVlabs/FUNIT lists ImageNet files and face boxes; cut out, one folder a class",
            note="Image counts are not known here; only classes are checked.",
        ),
    )
}


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
    base = data_root(root)
    if base is None:
        raise DataError(f"where is {name}? Set {ENVIRONMENT} or pass the data root. To get it: {benchmark.how}")
    return load_members(split_members(name, split, base), size or benchmark.size, cache, workers)


__all__ = [
    "BENCHMARKS", "ENVIRONMENT", "SPLITS", "Benchmark", "Found", "Split",
    "check", "data_root", "find_members", "load_path", "load_split", "split_members",
]  # fmt: skip
