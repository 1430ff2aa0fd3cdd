"""Small labelled pictures on the device: what the encoders and the autoencoder of a `pocket` generator learn from.

All are enlarged to the generator's side once, as views will be. Some are held out by their names, as photographs are.
"""

from __future__ import annotations

import hashlib
from typing import Any

import torch
from torch import Tensor

from onesdaug.errors import DataError
from onesdaug.generators.pocket.photo_table import Source, class_numbers, crops
from onesdaug.generators.pocket.photographs import floats, is_held_out
from onesdaug.training.augment import DeviceAugment

WHOLE = 0.5  # share of a batch that is whole, as pictures come; the others are cut and their colours moved


class Thumbnails:
    """`images` (N, S, S, 3) uint8 with `labels` (N,) to train on; `held` with `held_labels` to measure on."""

    def __init__(self, parts: Source, side: int, device: torch.device, chunk: int = 1024) -> None:
        self.classes: list[str] = []
        images, labels, held, marks = [], [], [], []
        seen: set[str] = set()
        for _, part in parts:
            marks.append(part.fingerprint)
            rows = [row for row, name in enumerate(part.ids) if name not in seen]
            seen.update(part.ids)
            labels.append(class_numbers(self.classes, part)[rows])
            held += [is_held_out(part.ids[row]) for row in rows]
            for start in range(0, len(rows), chunk):
                few = torch.from_numpy(part.images[rows[start : start + chunk]]).to(device)
                images.append(_enlarged(few, side))
        out = torch.tensor(held, dtype=torch.bool)
        if len(self.classes) < 2 or len(out) - int(out.sum()) < 2:
            raise DataError(
                f"the recipe needs pictures of at least two classes, got {len(out)} of {len(self.classes)}"
            )
        if not out.any():  # of a small collection one
            out[0] = True
        everything = torch.cat(images)
        images.clear()
        # by name: parts may come in another order on another machine
        found, self.classes = self.classes, sorted(self.classes)
        numbers = torch.tensor([self.classes.index(name) for name in found])[torch.cat(labels)]
        self.held, self.held_labels = everything[out.to(device)], numbers[out].to(device)
        self.images, self.labels = everything[~out.to(device)], numbers[~out].to(device)
        self.fingerprint = hashlib.sha256("\n".join(marks).encode()).hexdigest()[:16]
        self.augment = DeviceAugment(side, crop_scale=(0.4, 1.0), jitter=0.15)

    def __len__(self) -> int:
        return len(self.images)

    def facts(self) -> dict[str, Any]:
        return {"images": len(self), "fingerprint": self.fingerprint, "classes": self.classes}

    def pictures(self, batch: int, side: int) -> Tensor:
        """What an autoencoder learns from in one step; `side` is that of all of them."""
        rows = torch.randint(len(self.images), (batch,), device=self.images.device)
        whole = int(WHOLE * batch)
        x = torch.cat([floats(self.images[rows[:whole]]), self.augment(self.images[rows[whole:]])[0]])
        if side != x.shape[-1]:
            raise DataError(f"thumbnails have {x.shape[-1]} pixels along a side; crops of {side} cannot be had")
        return x.contiguous(memory_format=torch.channels_last)


def _enlarged(images: Tensor, side: int) -> Tensor:
    mirrored = torch.zeros(len(images), dtype=torch.bool, device=images.device)
    x, _ = crops(images, side, 1.0, mirrored)
    return x.mul(255).round().to(torch.uint8).permute(0, 2, 3, 1).contiguous()
