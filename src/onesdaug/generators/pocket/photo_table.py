"""What the denoiser of photographs learns from, on the device: latents and condition features, computed once.

Pictures come part by part, as they arrive, and are forgotten when they are encoded. Of each, `views` pairs of crops
are kept: one to be drawn and one to be looked at. Both are mirrored or neither is, and one of the two is the whole
picture, because that is what is looked at when views are made, while what is drawn has been tweaked.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from onesdaug.data.dataset import Dataset
from onesdaug.errors import DataError
from onesdaug.generators.pocket.condition import measure
from onesdaug.generators.pocket.networks import Autoencoder, Tokens
from onesdaug.generators.pocket.photographs import is_held_out
from onesdaug.training.stage import mixed_precision

KINDS = ("photographs", "data", "also")  # without classes; labelled; labelled and smaller
SMALLEST = 0.5  # share of the area of a crop that is drawn; 0.7 of one that is looked at
# validation and test classes of miniImageNet: no generator of ours may have seen a picture of them
_NOVEL = (
    "n01855672 n01930112 n01981276 n02091244 n02099601 n02110063 n02110341 n02114548 n02116738 n02129165 n02138441 "
    "n02174001 n02219486 n02443484 n02871525 n02950826 n02971356 n02981792 n03075370 n03127925 n03146219 n03272010 "
    "n03417042 n03535780 n03544143 n03584254 n03770439 n03773504 n03775546 n03980874 n04146614 n04149813 n04418357 "
    "n04522168 n07613480 n09256479"
)
NOVEL = frozenset(_NOVEL.split())
Source = Iterable[tuple[str, Dataset]]  # parts, each with its kind


def class_numbers(classes: list[str], part: Dataset) -> Tensor:
    """Of each picture of a part its class's number among all classes, to which those of the part are added."""
    if wrong := sorted(NOVEL.intersection(part.class_names)):
        raise DataError(f"leave out {', '.join(wrong)}: validation and test classes of miniImageNet")
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
        self, autoencoder: Autoencoder, condition: nn.Module, size: int, views: int, device: torch.device,
        chunk: int = 256, held_of: Sequence[str] = KINDS[:1], kinds: Sequence[str] = KINDS, relative: bool = False,
    ) -> None:  # fmt: skip
        """Of the `kinds` alone; some of those of `held_of` are held out.

        `relative`: the finest pictures that come are told to be of `size`, however small they are.
        """
        self.networks, self.size, self.views = (autoencoder, condition), size, views
        self.device, self.chunk, self.held_of, self.kinds = device, chunk, held_of, kinds
        self.relative, self.finest = relative, 0
        self.small: PhotoTable | None = None  # of the same pictures, drawn smaller
        self.classes: list[str] = []
        self._found: dict[str, list[list[Tensor]]] = {kind: [] for kind in (*KINDS, "held")}
        self._seen: set[str] = set()
        self._marks: list[str] = []

    def add(self, kind: str, part: Dataset) -> None:
        """Encode what is new in a part."""
        if kind not in KINDS:
            raise DataError(f"pictures are of the kinds {', '.join(KINDS)}, not {kind!r}")
        if kind not in self.kinds:
            return
        self.finest = max(self.finest, part.images.shape[1])
        self._marks.append(part.fingerprint)
        rows = [row for row, name in enumerate(part.ids) if name not in self._seen]
        self._seen.update(part.ids)
        held = [row for row in rows if kind in self.held_of and is_held_out(part.ids[row])]
        out = set(held)
        labels = self._labels(kind, part)
        self._found["held"] += self._encoded(part, held, labels)
        self._found[kind] += self._encoded(part, [row for row in rows if row not in out], labels)

    def close(self) -> None:
        """All parts are there: to be picked from."""
        found = self._found
        self.counts = {kind: sum(len(chunk[0]) for chunk in found[kind]) for kind in KINDS}
        self.fingerprint = hashlib.sha256("\n".join(self._marks).encode()).hexdigest()[:16]
        self.images = sum(self.counts.values())
        if not self.images:
            return
        chunks = [chunk for kind in (*KINDS, "held") for chunk in found.pop(kind)]
        self.latents, self.whole, self.local, self.sides, self.labels = (_column(chunks, i) for i in range(5))
        if self.relative:
            self.sides *= self.size / self.finest
        everything = torch.arange(len(self.latents), device=self.device)
        self.held = everything[self.images :] if len(everything) > self.images else everything[:1]
        self._index()

    def _labels(self, kind: str, part: Dataset) -> Tensor:
        """Numbers of the part's classes among those of all parts; −1: of none."""
        if kind == "photographs":
            return torch.full((len(part),), -1, device=self.device)
        return class_numbers(self.classes, part).to(self.device)

    @torch.no_grad()
    def _encoded(self, part: Dataset, rows: list[int], labels: Tensor) -> list[list[Tensor]]:
        """Chunks of [latents, whole, local, sides, labels] of these rows."""
        made = []
        for start in range(0, len(rows), self.chunk):
            few = rows[start : start + self.chunk]
            images = torch.from_numpy(part.images[few]).to(self.device)
            pairs = [self._pair(images, view) for view in range(self.views)]
            made.append([*(torch.stack(column, dim=1) for column in zip(*pairs, strict=True)), labels[few]])
        return made

    def _pair(self, images: Tensor, view: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """What is drawn is whole in even views, what is looked at in odd ones."""
        autoencoder, condition = self.networks
        mirrored = torch.rand(len(images), device=self.device) < 0.5
        drawn, share = crops(images, self.size, 1.0 if view % 2 == 0 else SMALLEST, mirrored)
        looked_at, _ = crops(images, self.size, 1.0 if view % 2 else 0.7, mirrored)
        with mixed_precision(self.device):
            z = autoencoder.encode(drawn)
            whole, local = measure(condition, looked_at)
        return z.half(), whole.half(), local.half(), images.shape[1] * share.sqrt()

    def _index(self) -> None:
        """Labelled rows ordered by class, so that another one of a class is found at once."""
        labels = self.labels[: self.images]
        self.order = torch.argsort(labels, stable=True)
        every = torch.arange(len(self.classes), device=self.device)
        self.starts = torch.searchsorted(labels[self.order], every)
        self.sizes = torch.bincount(labels + 1, minlength=len(self.classes) + 1)[1:]

    def facts(self) -> dict[str, Any]:
        return {"images": self.images, "fingerprint": self.fingerprint, "classes": sorted(self.classes)}

    def pick(self, batch: int, shares: tuple[float, ...]) -> Tensor:
        """Random rows, so many of each kind that is there."""
        there = [(kind, share) for kind, share in zip(KINDS, shares, strict=True) if self.counts[kind] and share]
        total, rows, left = sum(share for _, share in there), [], batch
        for i, (kind, share) in enumerate(there, 1):
            count = left if i == len(there) else round(batch * share / total)
            start = sum(self.counts[k] for k in KINDS[: KINDS.index(kind)])
            rows.append(start + torch.randint(self.counts[kind], (count,), device=self.device))
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


def fill(parts: Source, *tables: PhotoTable) -> list[PhotoTable]:
    """Each part goes into all tables as it comes, and is forgotten then. Gives back those that are not empty."""
    for kind, part in parts:
        for table in tables:
            table.add(kind, part)
    filled = []
    for table in tables:
        table.close()
        if table.images:
            filled.append(table)
    if not filled:
        raise DataError("there is no picture to train the denoiser on")
    return filled


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

    Returns the shares, too. Enlarged as `Augmenter` enlarges.
    """
    n, device = len(images), images.device
    share = torch.empty(n, device=device).uniform_(smallest, 1.0)
    side = share.sqrt()
    theta = torch.zeros(n, 2, 3, device=device)
    theta[:, 0, 0], theta[:, 1, 1] = torch.where(mirrored, -side, side), side
    theta[:, :, 2] = torch.empty(n, 2, device=device).uniform_(-1, 1) * (1 - side)[:, None]
    grid = F.affine_grid(theta, [n, 3, size, size], align_corners=False)
    x = images.permute(0, 3, 1, 2).float().div_(255)
    x = F.grid_sample(x, grid, mode="bicubic", padding_mode="reflection", align_corners=False).clamp_(0, 1)
    return x.contiguous(memory_format=torch.channels_last), share
