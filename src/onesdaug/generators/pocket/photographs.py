"""Photographs that belong to no class, on the device: what a generator of photographs mostly learns from.

Some are held out, by a rule that looks at a photograph's name alone: whatever part of a collection is there, in
whatever files, no run trains on what another one is measured by.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from statistics import median

import torch
from torch import Tensor

from onesdaug.data.dataset import Dataset
from onesdaug.data.decode import load_members
from onesdaug.data.images import opened
from onesdaug.data.sources import Member, loose_members
from onesdaug.errors import DataError
from onesdaug.training.augment import DeviceAugment

ONE_IN = 500  # photographs are held out
MEASURED = 200  # of those are measured on, at most
ENLARGED = 0.25  # share of a batch cut out smaller and enlarged, as small pictures will come


def name_number(identity: str) -> int:
    """A number from 0 to 2³² − 1 for a photograph's name, without its folder: all are equally likely."""
    stem = identity.rpartition("/")[2]
    return int.from_bytes(hashlib.sha256(stem.encode(errors="surrogateescape")).digest()[:4], "big")


def is_held_out(identity: str) -> bool:
    return name_number(identity) % ONE_IN == 0


def read_photographs(source: Path, size: int, cache: Path | None = None) -> list[Dataset]:
    """A zip file, a folder of zip files (a data set each), or a folder of photographs, as squares of `size`."""
    zips = sorted(source.glob("*.zip")) if source.is_dir() else []
    return [load_members(loose_members(path), size, cache) for path in zips or [source]]


def read_labelled(members: Sequence[Member], largest: int, cache: Path | None = None) -> Dataset:
    """Pictures with classes, no larger than most of them really are: enlarging comes later, and is told."""
    sides = []
    for member in members[:: max(1, len(members) // 64)]:
        with opened(member.read(), member.where) as image:
            sides.append(min(image.size))
    return load_members(members, min(largest, int(median(sides))), cache)


class Photographs:
    """`images` to train on and `held` to measure on, both (N, S, S, 3) uint8; a name counts once."""

    def __init__(self, parts: Sequence[Dataset], device: torch.device) -> None:
        places: dict[str, tuple[int, int]] = {}
        for number, part in enumerate(parts):
            for row, name in enumerate(part.ids):
                places.setdefault(name, (number, row))
        held = sorted((name for name in places if is_held_out(name)), key=name_number)
        held = held or sorted(places, key=name_number)[:1]  # of a small collection one
        out = set(held)
        if len(out) == len(places):
            raise DataError(f"the recipe needs photographs to train on, got {len(places)}, all of them held out")
        self.held = torch.stack([_image(parts, places[name]) for name in held[:MEASURED]]).to(device)
        self.images = _gathered(parts, [place for name, place in places.items() if name not in out], device)
        together = "\n".join(part.fingerprint for part in parts)
        self.fingerprint = hashlib.sha256(together.encode()).hexdigest()[:16]

    def __len__(self) -> int:
        return len(self.images)

    def pictures(self, batch: int, side: int) -> Tensor:
        """What an autoencoder learns from in one step: squares of random photographs, some of them enlarged."""
        rows = torch.randint(len(self.images), (batch,), device=self.images.device)
        few = max(1, int(ENLARGED * batch))
        enlarge = DeviceAugment(side, crop_scale=(0.02, 0.2), crop_ratio=(1.0, 1.0), jitter=0.0)
        x = torch.cat([enlarge(self.images[rows[:few]])[0], self.crops(rows[few:], side)])
        return x.contiguous(memory_format=torch.channels_last)

    def crops(self, rows: Tensor, side: int) -> Tensor:
        """A random square of each of these photographs, mirrored by chance, pixel by pixel: (B, 3, side, side)."""
        n, room, device = len(rows), self.images.shape[1] - side + 1, rows.device
        along = torch.arange(side, device=device)
        top, left = (torch.randint(room, (n, 1), device=device) + along for _ in range(2))
        left = torch.where(torch.rand(n, 1, device=device) < 0.5, left, left.flip(1))
        return floats(self.images[rows[:, None, None], top[:, :, None], left[:, None, :]])


def floats(images: Tensor) -> Tensor:
    """(B, H, W, 3) uint8 → (B, 3, H, W) in [0, 1], in the memory order of the bytes."""
    return images.permute(0, 3, 1, 2).float().div_(255)


def _image(parts: Sequence[Dataset], place: tuple[int, int]) -> Tensor:
    number, row = place
    return torch.tensor(parts[number].images[row])


def _gathered(parts: Sequence[Dataset], places: list[tuple[int, int]], device: torch.device) -> Tensor:
    """The images at (part, row), copied part by part: together they may not fit beside themselves."""
    out = torch.empty((len(places), *parts[0].images.shape[1:]), dtype=torch.uint8, device=device)
    start = 0
    for number, part in enumerate(parts):
        rows = [row for i, row in places if i == number]
        out[start : start + len(rows)] = torch.from_numpy(part.images[rows]).to(device)
        start += len(rows)
    return out
