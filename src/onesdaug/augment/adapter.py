"""A source of views in the operator's place."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Sequence
from typing import Any

import torch
from PIL import Image

from onesdaug.augment.batch import Row, View
from onesdaug.augment.config import AugmentConfig
from onesdaug.augment.operator import Augmenter
from onesdaug.augment.seeds import Seed, row_seeds
from onesdaug.augment.source import ViewSource
from onesdaug.common.own import calling, code_mark

BATCH = 16  # views that a folder job asks for at once


class SourceAugmenter(Augmenter):
    """Draws with any source of views, so that folder jobs and studies take it by name; it has no settings."""

    def __init__(self, source: ViewSource, name: str) -> None:
        super().__init__(None, AugmentConfig(shape=None), batch_size=BATCH, side=source.side)
        self.source, self.name = source, name
        about = json.dumps([source.describe(), code_mark(source.code)], sort_keys=True)
        self.fingerprint = f"{name}-{hashlib.blake2b(about.encode(), digest_size=6).hexdigest()}"

    def run(self, rows: Sequence[Row], tweaked: bool = False, noised: bool = False) -> list[View]:
        """Each image once, with as many views as any of its rows asks for."""
        known: dict[tuple[int, Seed], list[Image.Image]] = {}
        found = []
        for row in rows:
            started, key = time.perf_counter(), (id(row.image), row.seed)
            if key not in known:
                most = max(other.k for other in rows if (id(other.image), other.seed) == key)
                known[key] = self.pictures([row.image], most, row.seed)[0]
            seconds = time.perf_counter() - started
            found.append(
                View(known[key][row.k - 1], None, row.k, row.seed, None, 0, 0, seconds, self.peak_memory_mb())
            )
        return found

    def tensors(
        self,
        batch: torch.Tensor,
        k: int = 3,
        seeds: Sequence[Seed] | None = None,
        seed: Seed = 0,
        image_scale: Sequence[float] | None = None,
    ) -> torch.Tensor:
        return self.source.tensors(batch, k, row_seeds(batch, seed) if seeds is None else seeds)

    def pictures(self, images: Sequence[Image.Image], k: int, seed: Seed = 0) -> list[list[Image.Image]]:
        with calling(f"view source {self.name}, given {len(images)} images,", self.source.code):
            return self.source.pictures(images, k, seed)

    def nth(self, batch: torch.Tensor, number: int, seeds: Sequence[Seed] | None = None) -> torch.Tensor:
        return self.source.nth(batch, number, row_seeds(batch) if seeds is None else seeds)

    def nth_pictures(self, images: Sequence[Image.Image], number: int, seed: Seed = 0) -> list[Image.Image]:
        return self.source.nth_pictures(images, number, seed)

    def with_config(self, config: AugmentConfig) -> SourceAugmenter:
        return self

    def describe(self) -> dict[str, Any]:
        return self.source.describe()

    @property
    def code(self) -> Any:
        return self.source.code

    def summary(self) -> str:
        return "a source of views, without a generator"

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.source, self.name)

    def __repr__(self) -> str:
        return f"Augmenter({self.name})"
