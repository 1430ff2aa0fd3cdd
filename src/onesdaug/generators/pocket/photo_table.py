"""What the denoiser of photographs learns from, on the device: latents and condition features, computed once.

Pictures come part by part, as they arrive, and are forgotten when they are encoded. Of each, `views` pairs of crops
are kept: one to be drawn and one to be looked at. Both are mirrored or neither is, and one of the two is the whole
picture, because that is what is looked at when views are made, while what is drawn has been tweaked. Where a picture
is drawn in two sizes, the crops are the same, and the larger one is looked at.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from onesdaug.common.prefetch import prefetched
from onesdaug.data.dataset import Dataset
from onesdaug.errors import DataError
from onesdaug.generators.pocket.condition import measure, to_look_with
from onesdaug.generators.pocket.networks import Autoencoder, Tokens
from onesdaug.generators.pocket.photographs import floats, is_held_out
from onesdaug.training.stage import mixed_precision

KINDS = ("photographs", "data", "also")  # without classes; labelled; labelled and smaller
HELD = "held"  # of any kind
SMALLEST = 0.5  # share of the area of a crop that is drawn; 0.7 of one that is looked at
# validation and test classes of miniImageNet: no generator of ours may have seen a picture of them
_NOVEL = (
    "n01855672 n01930112 n01981276 n02091244 n02099601 n02110063 n02110341 n02114548 n02116738 n02129165 n02138441 "
    "n02174001 n02219486 n02443484 n02871525 n02950826 n02971356 n02981792 n03075370 n03127925 n03146219 n03272010 "
    "n03417042 n03535780 n03544143 n03584254 n03770439 n03773504 n03775546 n03980874 n04146614 n04149813 n04418357 "
    "n04522168 n07613480 n09256479"
)
NOVEL = frozenset(_NOVEL.split())
# the same of CUB, whose classes are called 001.Black_footed_Albatross and so on
_NOVEL_BIRDS = (
    "001 002 004 007 010 012 014 016 018 021 022 024 026 029 030 032 033 035 036 037 039 040 042 043 048 049 050 051 "
    "053 054 058 059 065 066 068 069 070 071 073 077 078 079 080 082 083 085 086 088 089 092 095 096 100 101 103 104 "
    "105 106 111 115 116 117 118 120 121 122 128 129 133 134 136 141 143 148 149 152 156 157 158 159 162 163 165 166 "
    "167 168 170 172 173 174 175 177 187 189 191 192 193 194 199 200"
)
NOVEL_BIRDS = frozenset(_NOVEL_BIRDS.split())
Source = Iterable[tuple[str, Dataset]]  # parts, each with its kind
Networks = tuple[Autoencoder, nn.Module]  # the second one is the condition encoder


def is_novel(name: str) -> bool:
    """Whether a class is one that views are measured on."""
    return name in NOVEL or (name[3:4] == "." and name[:3] in NOVEL_BIRDS)


def class_numbers(classes: list[str], part: Dataset) -> Tensor:
    """Of each picture of a part its class's number among all classes, to which those of the part are added."""
    if wrong := sorted(name for name in part.class_names if is_novel(name)):
        raise DataError(f"leave out {', '.join(wrong)}: validation and test classes of miniImageNet or CUB")
    classes += [name for name in part.class_names if name not in classes]
    return torch.tensor([classes.index(name) for name in part.class_names])[torch.from_numpy(part.labels)]


class PhotoTable:
    """Rows of one kind lie together. All tensors are (N, views, …) in half precision, but `labels` and `sides`."""

    latents: Tensor
    whole: Tensor
    local: Tensor
    sides: Tensor
    labels: Tensor

    def __init__(
        self, size: int, views: int, device: torch.device, kinds: Sequence[str] = KINDS, relative: bool = False
    ) -> None:
        """Of the `kinds` alone. `relative`: the finest pictures are told to be of `size`, however small they are."""
        self.size, self.views, self.device, self.kinds, self.relative = size, views, device, kinds, relative
        self.small: PhotoTable | None = None  # of the pictures with classes, drawn smaller
        self._found: dict[str, list[list[Tensor]]] = {kind: [] for kind in (*KINDS, HELD)}

    def take(self, kind: str, *columns: Tensor) -> None:
        """Some rows: latents, whole, local, sides and labels."""
        self._found[kind].append(list(columns))

    def close(self, classes: list[str], fingerprint: str) -> None:
        """All rows are there: to be picked from. What is said of the pictures is said of those of all tables."""
        self.classes, self.fingerprint = classes, fingerprint
        self.counts = {kind: sum(len(chunk[0]) for chunk in self._found[kind]) for kind in KINDS}
        self.images = sum(self.counts.values())
        if not self.images:
            return
        chunks = [chunk for kind in (*KINDS, HELD) for chunk in self._found.pop(kind)]
        self.latents, self.whole, self.local, self.sides, self.labels = (_column(chunks, i) for i in range(5))
        if self.relative:
            self.sides *= self.size / float(self.sides.max())
        everything = torch.arange(len(self.latents), device=self.device)
        self.held = everything[self.images :] if len(everything) > self.images else everything[:1]
        self._index()

    def _index(self) -> None:
        """Labelled rows ordered by class, so that another one of a class is found at once; how likely each is."""
        labels = self.labels[: self.images]
        self.order = torch.argsort(labels, stable=True)
        every = torch.arange(len(self.classes), device=self.device)
        self.starts = torch.searchsorted(labels[self.order], every)
        sizes = torch.bincount(labels + 1, minlength=len(self.classes) + 1)
        self.sizes = sizes[1:]
        self.reach = sizes[labels + 1].double().rsqrt().cumsum(0)

    def learned(self) -> dict[str, int]:
        """How many pictures of each kind there are, here or in the small table."""
        tables = [self, self.small] if self.small else [self]
        return {kind: max(table.counts[kind] for table in tables) for kind in KINDS}

    def facts(self) -> dict[str, Any]:
        images = sum(self.learned().values())
        return {"images": images, "fingerprint": self.fingerprint, "classes": sorted(self.classes)}

    def pick(self, batch: int, shares: tuple[float, ...]) -> Tensor:
        """Random rows, so many of each kind that is there; of a small class more than its share of the pictures.

        A class counts by the root of its size: one of CUB has sixty pictures where one of miniImageNet has 600.
        """
        there = [(kind, share) for kind, share in zip(KINDS, shares, strict=True) if self.counts[kind] and share]
        total, rows, left = sum(share for _, share in there), [], batch
        for i, (kind, share) in enumerate(there, 1):
            count = left if i == len(there) else round(batch * share / total)
            start = sum(self.counts[k] for k in KINDS[: KINDS.index(kind)])
            last = start + self.counts[kind] - 1
            low = self.reach[start - 1] if start else 0.0
            at = low + (self.reach[last] - low) * torch.rand(count, device=self.device, dtype=torch.float64)
            rows.append(torch.searchsorted(self.reach, at, right=True).clamp_(start, last))
            left -= count
        return torch.cat(rows)

    def another(self, rows: Tensor) -> Tensor:
        """A random row of the same class; rows without a class, or of one of which there are none, are given back."""
        labels = self.labels[rows]
        if not self.classes:
            return rows
        known = labels.clamp(min=0)
        place = (torch.rand(len(rows), device=self.device) * self.sizes[known]).long()
        others = self.order[(self.starts[known] + place).clamp(max=self.images - 1)]
        return torch.where((labels < 0) | (self.sizes[known] == 0), rows, others)

    def set_statistics(self, tokens: Tokens) -> None:
        """Condition features leave the encoder standardised by their mean and deviation."""
        few = slice(0, self.images, max(1, self.images // 4096))
        for name, values in (("g", self.whole[few]), ("l", self.local[few])):
            flat = values.reshape(-1, values.shape[-1]).float()
            getattr(tokens, f"mean_{name}").copy_(flat.mean(0))
            getattr(tokens, f"std_{name}").copy_(flat.std(0) + 1e-3)


class Pictures:
    """Those of all parts, each once, a few at a time: (kind, whether they are held out, images, labels; −1: none).

    Some of the kinds of `held_of` are held out. In the end `classes` and `fingerprint` are those of all parts.
    """

    def __init__(self, parts: Source, chunk: int, held_of: Sequence[str]) -> None:
        self.parts, self.chunk, self.held_of = parts, chunk, held_of
        self.classes: list[str] = []
        self._marks: list[str] = []

    def __iter__(self) -> Iterator[tuple[str, bool, Tensor, Tensor]]:
        seen: set[str] = set()
        for kind, part in prefetched(_read(self.parts)):
            self._marks.append(part.fingerprint)
            labels = class_numbers(self.classes, part) if kind != "photographs" else torch.full((len(part),), -1)
            new = [row for row, name in enumerate(part.ids) if name not in seen]
            seen.update(part.ids)
            out = {row for row in new if kind in self.held_of and is_held_out(part.ids[row])}
            for held in (True, False):
                rows = [row for row in new if (row in out) == held]
                for start in range(0, len(rows), self.chunk):
                    few = rows[start : start + self.chunk]
                    yield kind, held, torch.from_numpy(part.images[few]), labels[few]

    @property
    def fingerprint(self) -> str:
        return hashlib.sha256("\n".join(self._marks).encode()).hexdigest()[:16]


def _read(parts: Source) -> Source:
    """Parts with their pixels in memory."""
    for kind, part in parts:
        if kind not in KINDS:
            raise DataError(f"pictures are of the kinds {', '.join(KINDS)}, not {kind!r}")
        part.images.max(initial=0)  # an array in a file is read when it is looked at: now, not while the GPU waits
        yield kind, part


@torch.no_grad()
def fill(
    parts: Source, networks: Networks, table: PhotoTable, small: PhotoTable | None = None, chunk: int = 256,
    held_of: Sequence[str] = KINDS[:1],
) -> PhotoTable:  # fmt: skip
    """Encode pictures while the next ones are read, for each table that takes their kind; gives back the first."""
    tables, pictures = [table, small] if small else [table], Pictures(parts, chunk, held_of)
    networks = networks[0], to_look_with(networks[1], table.device)
    for kind, held, images, labels in prefetched(pictures):
        takers = [one for one in tables if kind in one.kinds]
        x, labels = floats(images.to(table.device)), labels.to(table.device)
        pairs = [_pair(networks, x, view, [one.size for one in takers]) for view in range(table.views)]
        whole, local, sides, *latents = (torch.stack(column, dim=1) for column in zip(*pairs, strict=True))
        for taker, z in zip(takers, latents, strict=True):
            taker.take(HELD if held else kind, z, whole, local, sides, labels)
    for one in tables:
        one.close(pictures.classes, pictures.fingerprint)
    if not table.images:
        raise DataError("there is no picture to train the denoiser on")
    table.small = small if small and small.images else None
    return table


def _pair(networks: Networks, x: Tensor, view: int, sizes: Sequence[int]) -> list[Tensor]:
    """What is drawn is whole in even views, what is looked at in odd ones: features, sides, latents of each size."""
    autoencoder, condition = networks
    mirrored = torch.rand(len(x), device=x.device) < 0.5
    drawn, share = _windows(1.0 if view % 2 == 0 else SMALLEST, mirrored)
    looked_at, _ = _windows(1.0 if view % 2 else 0.7, mirrored)
    whole, local = measure(condition, _cut(x, looked_at, max(sizes)))
    targets = [_cut(x, drawn, size) for size in sizes]
    with mixed_precision(x.device):
        latents = [autoencoder.encode(target) for target in targets]
    return [whole.half(), local.half(), x.shape[-1] * share.sqrt(), *(z.half() for z in latents)]


def _column(chunks: list[list[Tensor]], number: int) -> Tensor:
    """All of one kind of numbers; its chunks are given up, or everything would lie in memory twice."""
    column = torch.cat([chunk[number] for chunk in chunks])
    for chunk in chunks:
        chunk[number] = column[:0]
    if column.is_cuda:
        torch.cuda.empty_cache()
    return column


def crops(images: Tensor, size: int, smallest: float, mirrored: Tensor) -> tuple[Tensor, Tensor]:
    """A random part of each of (N, H, W, 3) uint8, of at least this share of its area, as a square in [0, 1].

    Returns the shares, too.
    """
    windows, share = _windows(smallest, mirrored)
    return _cut(floats(images), windows, size), share


def _windows(smallest: float, mirrored: Tensor) -> tuple[Tensor, Tensor]:
    """Where parts lie, for each picture at random, as affine maps (N, 2, 3); their shares of the area."""
    n, device = len(mirrored), mirrored.device
    share = torch.empty(n, device=device).uniform_(smallest, 1.0)
    side = share.sqrt()
    theta = torch.zeros(n, 2, 3, device=device)
    theta[:, 0, 0], theta[:, 1, 1] = torch.where(mirrored, -side, side), side
    theta[:, :, 2] = torch.empty(n, 2, device=device).uniform_(-1, 1) * (1 - side)[:, None]
    return theta, share


def _cut(x: Tensor, windows: Tensor, size: int) -> Tensor:
    """These parts of pictures as squares. Enlarged as `Augmenter` enlarges."""
    grid = F.affine_grid(windows, [len(x), 3, size, size], align_corners=False)
    x = F.grid_sample(x, grid, mode="bicubic", padding_mode="reflection", align_corners=False).clamp_(0, 1)
    return x.contiguous(memory_format=torch.channels_last)
