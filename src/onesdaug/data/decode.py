"""Files become one uint8 array, once and in parallel.

The working size is the short side. 92 is what FEAT's evaluation resizes to before its 84 centre crop, so an
array of 92×92 squares loses nothing that evaluation looks at and leaves training room for random crops;
miniImageNet is stored at 84×84 and stays as it is.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from onesdaug.common.files import whole_file
from onesdaug.common.progress import progress
from onesdaug.data.dataset import Dataset
from onesdaug.data.images import decode_image, opened
from onesdaug.data.sources import Member, fingerprint
from onesdaug.errors import DataError

A = TypeVar("A")
B = TypeVar("B")

WORKING_SIZE = 92
TASK = 32  # images that a thread decodes before it asks for more
SMALL = 8192  # bytes of a file: some 200 pixels
_LONGEST = 100  # times the short side: what is farther from the centre is cut off before resizing, not after


def square(image: Image.Image, size: int) -> NDArray[np.uint8]:
    """Short side to `size` (bilinear with antialiasing, as FEAT), then the central size×size square."""
    width, height = image.size
    long = _LONGEST * min(width, height)
    if max(width, height) > long:  # a line of a million pixels would be resized to billions
        left, top = max(0, (width - long) // 2), max(0, (height - long) // 2)
        image = image.crop((left, top, width - left, height - top))
        width, height = image.size
    if min(width, height) != size:
        # torchvision's rule: the long side is truncated, not rounded
        if width <= height:
            target = (size, max(size, int(size * height / width)))
        else:
            target = (max(size, int(size * width / height)), size)
        image = image.resize(target, Image.Resampling.BILINEAR)
        width, height = image.size
    left, top = round((width - size) / 2), round((height - size) / 2)
    return np.asarray(image.crop((left, top, left + size, top + size)), dtype=np.uint8)


def decode(members: Sequence[Member], size: int = WORKING_SIZE, workers: int | None = None) -> Dataset:
    """All members as a Dataset; classes are numbered in the order of their names."""
    images = np.empty((len(members), size, size, 3), dtype=np.uint8)

    def one(row: int) -> None:
        images[row] = square(_whole(members[row]), size)

    with progress(len(members), "images", "decoding") as bar:
        for done in _each(one, range(len(members)), workers or _workers(members)):
            bar.advance(len(done))
    return _dataset(images, members, fingerprint(members))


def _dataset(images: NDArray[np.uint8], members: Sequence[Member], mark: str) -> Dataset:
    names = tuple(sorted({m.label for m in members}))
    number = {name: i for i, name in enumerate(names)}
    labels = np.asarray([number[m.label] for m in members], dtype=np.int64)
    return Dataset(images, labels, names, tuple(m.id for m in members), mark, tuple(members))


def originals(dataset: Dataset, rows: slice) -> list[Image.Image]:
    """Some of the images at their own sizes, for networks that want more pixels than the working size has."""
    members = dataset.members[rows]
    return [image for some in _each(_whole, members, _workers(members)) for image in some]


def sizes(dataset: Dataset) -> list[tuple[int, int]]:
    """Width and height of each image's own file, from its header alone."""

    def size(member: Member) -> tuple[int, int]:
        with opened(member.read(), member.where) as image:
            return image.size

    return [one for some in _each(size, dataset.members, _workers(dataset.members)) for one in some]


def _whole(member: Member) -> Image.Image:
    return decode_image(member.read(), member.where)


def _workers(members: Sequence[Member]) -> int:
    """PIL decodes large files without Python's lock; over small ones threads only wait for each other."""
    few = [len(member.read()) for member in members[:8]]
    return min(16, os.cpu_count() or 1) if sum(few) > SMALL * len(few) else 1


def _each(work: Callable[[A], B], items: Sequence[A], workers: int) -> Iterator[list[B]]:
    """What comes of each item, in order, some at a time."""

    def some(start: int) -> list[B]:
        return [work(item) for item in items[start : start + TASK]]

    starts = range(0, len(items), TASK)
    if workers == 1:
        yield from map(some, starts)
        return
    with ThreadPoolExecutor(workers) as pool:
        yield from pool.map(some, starts)


def load_members(
    members: Sequence[Member], size: int, cache: Path | None = None, workers: int | None = None
) -> Dataset:
    """`decode`, or its result from `cache` when a run over exactly these files left it there."""
    if cache is None:
        return decode(members, size, workers)
    mark = fingerprint(members)
    stored = cache_file(cache, mark, size)
    if stored.is_file():
        return _dataset(_cached(stored, (len(members), size, size, 3)), members, mark)
    made = decode(members, size, workers)
    keep(made.images, stored)
    return made


def cache_file(cache: Path, mark: str, size: int) -> Path:
    """Where the decoded images of exactly these files lie."""
    return cache / f"{mark}-{size}.npy"


def keep(images: NDArray[np.uint8], stored: Path) -> None:
    with whole_file(stored) as temporary, temporary.open("wb") as handle:
        np.save(handle, images)


def _cached(stored: Path, shape: tuple[int, ...]) -> NDArray[np.uint8]:
    try:
        images: NDArray[np.uint8] = np.load(stored, mmap_mode="r", allow_pickle=False)
    except Exception as error:  # numpy reads the header as Python: a damaged one raises anything
        raise DataError(f"{stored} is damaged ({error}); delete it") from error
    if images.shape != shape or images.dtype != np.uint8:
        raise DataError(f"{stored} does not hold the images it is named after; delete it")
    return images
