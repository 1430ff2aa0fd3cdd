"""What `h200_photo.py` trains, photo or the next pocket: its recipe, its pictures, and who looks at it."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import argparse

RECIPES = ("photo", "pocket")
KINDS = {"coco": "photographs", "miniimagenet": "data", "cub": "data", "tiny": "also"}  # folder → as the recipe says
FINEST = 84  # pixels of pictures with classes: those of CUB are made as small as miniImageNet's
PATIENCE = 150.0  # seconds without a new parcel until those are learned from that are there
SEEN = {
    "photo": "COCO train2017 + miniImageNet base classes + Tiny-ImageNet outside miniImageNet",
    "pocket": "miniImageNet base classes + Tiny-ImageNet outside miniImageNet's other classes",
}


def seen(recipe: str, classes: Iterable[str]) -> str:
    """What a card says: pieces that were trained before CUB's base classes came in have not seen them."""
    birds = any(name[:3].isdigit() for name in classes)
    return SEEN[recipe] + (" + CUB base classes" if birds else "")


def recipe_of(args: argparse.Namespace) -> Any:
    from onesdaug.generators.pocket.smoke import STAGED

    given = dict(text.split("=") for text in args.seconds)
    seconds = {name: float(value) for name, value in given.items() if value != "rest"}
    recipe = STAGED[f"{args.recipe}{'-smoke' if args.smoke else ''}"]
    return recipe if args.smoke else recipe.with_seconds(seconds)


def device_of() -> Any:
    import torch

    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def training(args: argparse.Namespace, out: Path, log: Any = None, end: float | None = None) -> Any:
    """The run, with the pictures that are there or will come."""
    from onesdaug.generators.pocket.photo_training import PhotoTraining
    from onesdaug.generators.pocket.thumbnail_training import ThumbnailTraining

    recipe, common = recipe_of(args), {"device": device_of(), "deadline": end}
    if args.recipe != "photo":
        return ThumbnailTraining(recipe, lambda: arriving(args, log), out, **common)
    there = sorted((args.work / "data" / "coco").glob("*.zip"))
    finished = any((args.work / "photo.state" / "decoder").glob("model*"))
    parts = [] if finished else [decoded(args, archive) for archive in there]
    return PhotoTraining(recipe, parts, out, pictures=lambda: arriving(args, log), **common)


def of_noise(args: argparse.Namespace) -> Any:
    """The run on noise: to find out how fast its stages are."""
    import numpy as np

    from onesdaug.data.dataset import Dataset
    from onesdaug.generators.pocket.photo_training import PhotoTraining
    from onesdaug.generators.pocket.thumbnail_training import ThumbnailTraining

    recipe, out = recipe_of(args), args.work / "probe"
    size = recipe.network.size
    images = np.random.default_rng(0).integers(0, 255, (64, size, size, 3), dtype=np.uint8)

    def noise(kind: str) -> tuple[str, Dataset]:
        ids = tuple(f"{kind}/{i}" for i in range(64))  # of its own: a name counts once
        return kind, Dataset(images, np.arange(64) % 2, ("a", "b"), ids, "noise")

    pictures = [noise("photographs"), noise("data")]
    if args.recipe == "photo":
        return PhotoTraining(recipe, [pictures[0][1]], out, device_of(), pictures=lambda: pictures)
    return ThumbnailTraining(recipe, lambda: pictures[1:], out, device_of())


def decoded(args: argparse.Namespace, archive: Path) -> Any:
    """A zip file as a data set, decoded once: later calls read the array."""
    from onesdaug.data.sources import zip_members
    from onesdaug.generators.pocket.photographs import read_labelled, read_photographs

    size, cache = recipe_of(args).network.size, args.work / "cache"
    if archive.parent.name == "coco":
        return read_photographs(archive, size, cache)[0]
    return read_labelled(zip_members([archive]), min(size, FINEST), cache)


def arriving(args: argparse.Namespace, log: Any) -> Iterator[tuple[str, Any]]:
    """Every archive that was prepared, as it comes; those that take too long are not waited for."""
    listed = args.work / "expected.json"
    waiting = set(json.loads(listed.read_text())) if listed.is_file() else set()
    waiting |= {str(path.relative_to(args.work)) for path in (args.work / "data").glob("*/*.zip")}
    last = time.monotonic()
    while waiting:
        ready = sorted(name for name in waiting if (args.work / name).with_suffix(".done").is_file())
        for name in ready:
            yield KINDS[Path(name).parent.name], decoded(args, args.work / name)
            last = time.monotonic()
        waiting -= set(ready)
        if not ready and time.monotonic() - last > (20.0 if args.smoke else PATIENCE):
            log(f"not waited for: {', '.join(sorted(waiting))}")
            return
        time.sleep(0.2)


@cache
def judge_of(work: Path, smoke: bool, folder: str = "judge") -> Any:
    """Classifiers and pictures of validation classes, where they were carried."""
    from benchmarks.pocket_judge import Judge
    from onesdaug.data.decode import load_members
    from onesdaug.data.sources import zip_members

    if not (work / folder / "val.zip").is_file():
        return None
    data = load_members(zip_members([work / folder / "val.zip"]), 84, work / "cache")
    folders = sorted(path.parent for path in (work / folder).glob("*/card.json"))
    return Judge(data, folders, device_of(), *((20, 2) if smoke else ()))


def watching(args: argparse.Namespace, task: Any, stage: str) -> Any:
    """What looks at a stage as it goes."""
    from benchmarks.photo_look import Look, ThumbnailLook, first_of

    if args.recipe != "photo":
        return ThumbnailLook(task, judge_of(args.work, args.smoke), args.work, stage)
    there = sorted((args.work / "data" / "coco").glob("*.zip"))
    held = next((path for path in there if path.name == "held-out.zip"), there[0])
    return Look(task, first_of(decoded(args, held)), args.work, stage, judge_of(args.work, args.smoke))
