"""Embed a data set and its views once, in chunks that survive a kill, into a feature bank.

Networks of up to `FRAME` pixels (FEAT's backbones, pocket) get the data set's working size, which FEAT's protocol
resizes to anyway. Encoders and generators that look at more (ViT, Stable Diffusion) get the files' own pixels, and the
views come back at the image's own size.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import torch
from PIL import Image
from safetensors.torch import load_file, save_file
from torch import Tensor

from onesdaug.common.files import whole_file
from onesdaug.common.progress import progress
from onesdaug.data.dataset import Dataset
from onesdaug.data.decode import is_whole, originals
from onesdaug.data.pixels import to_tensor
from onesdaug.errors import ConfigError
from onesdaug.fewshot.bank import ORACLE, SCHEMA, BankInfo, FeatureBank, to_dtype
from onesdaug.fewshot.views import Views, as_batch

FRAME = 96  # px, the side up to which the working size serves
WHOLE_CHUNK = 256  # whole images take more memory than squares of the working size


class Encoder(Protocol):
    """A frozen network with its own preprocessing; the fingerprint names its weights."""

    @property
    def fingerprint(self) -> str: ...

    @property
    def short_side(self) -> int:
        """What it resizes the short side of an image to."""

    def embed(self, images: Tensor) -> Tensor:
        """(B, 3, H, W) in [0, 1] -> (B, d)."""


def embed(
    dataset: Dataset,
    encoder: Encoder,
    output: Path,
    views: Views | str | None = None,
    k: int = 0,
    **settings: Any,
) -> FeatureBank:
    """Write the bank at `output` and open it; `views` is a maker of views, `"oracle"`, or None for originals only."""
    return embed_all(dataset, {output: encoder}, views, k, **settings)[output]


def embed_all(
    dataset: Dataset,
    encoders: Mapping[Path, Encoder],
    views: Views | str | None = None,
    k: int = 0,
    *,
    seed: int = 0,
    dtype: torch.dtype = torch.float16,
    chunk: int = 128,
    commit: str = "unknown",
    known: Mapping[Path, Tensor] | None = None,
) -> dict[Path, FeatureBank]:
    """One bank for each encoder at its output; views cost far more than looking at them, so all look at the same ones.

    `known` gives, for an output, features (N, d) of the originals that are known from another bank.
    Chunks lie beside the outputs until all are done, each under a name that hashes its images and all settings: a
    rerun takes up what a killed run left, and never what another setting made.
    """
    if (views is None) != (k == 0) or k < 0:
        raise ConfigError(f"k={k} does not go with views={'none' if views is None else 'given'}: k ≥ 1 needs views")
    if isinstance(views, str):
        if views != ORACLE:
            raise ConfigError(f"views must be a maker of views, {ORACLE!r} or None, not {views!r}")
        about, maker = {"source": ORACLE}, None
    else:
        about, maker = (views.describe() if views else {"source": "none"}), views
    pixels = Pixels(dataset, encoders.values(), maker)
    banks: dict[Path, FeatureBank] = {}
    jobs = []
    for output, encoder in encoders.items():
        info = BankInfo(
            class_names=tuple(dataset.class_names),
            ids=tuple(dataset.ids),
            data=dataset.fingerprint,
            encoder=encoder.fingerprint,
            views={**about, "k": k, **({"pixels": "whole images"} if pixels.of_views(encoder) else {})},
            seed=seed,
            commit=commit,
        )
        if output.is_file():
            there = FeatureBank.load(output)
            if _identity(there.info, there.features.dtype) == _identity(info, dtype):
                banks[output] = there
                continue
        jobs.append(_Job(encoder, output, info, dtype, (known or {}).get(output)))
    if not jobs:
        return banks
    chunk = min(chunk, WHOLE_CHUNK) if pixels.any_whole else chunk
    with progress(len(dataset), "images", "embedding") as bar:
        for start in range(0, len(dataset), chunk):
            rows = slice(start, min(start + chunk, len(dataset)))
            content = dataset.images[rows].tobytes()
            waiting = [(job, file) for job in jobs if not (file := job.part(start, content)).is_file()]
            if waiting:
                seen = Chunk(dataset, rows, maker, k, seed)
                for job, file in waiting:
                    first = None if job.known is None else job.known[rows]
                    whole = pixels.of_original(job.encoder), pixels.of_views(job.encoder)
                    features = to_dtype(_encode(job.encoder, seen, whole, first), dtype)
                    with whole_file(file) as temporary:
                        save_file({"features": features}, temporary)
            count = rows.stop - start
            bar.advance(count if waiting else 0, skipped=0 if waiting else count)
    for job in jobs:
        features = torch.cat([load_file(file)["features"] for file in job.files])
        FeatureBank(features, torch.as_tensor(dataset.labels), job.info).save(job.output)
        shutil.rmtree(job.parts)
        banks[job.output] = FeatureBank.load(job.output)
    return banks


class Pixels:
    """Who looks at whole images, and who at squares of the working size."""

    def __init__(self, dataset: Dataset, encoders: Iterable[Encoder], maker: Views | None) -> None:
        self._maker = maker is not None and maker.side > FRAME
        wide = self._maker or any(encoder.short_side > FRAME for encoder in encoders)
        self.any_whole = wide and bool(dataset.members) and not is_whole(dataset)

    def of_original(self, encoder: Encoder) -> bool:
        return self.any_whole and encoder.short_side > FRAME

    def of_views(self, encoder: Encoder) -> bool:
        return self.any_whole and (self._maker or encoder.short_side > FRAME)


class Chunk:
    """Some images and their views, in squares or whole; each is made when the first encoder asks for it."""

    def __init__(self, dataset: Dataset, rows: slice, maker: Views | None, k: int, seed: int) -> None:
        self.dataset, self.rows, self.maker, self.k, self.seed = dataset, rows, maker, k, seed

    def original(self, whole: bool) -> Tensor | list[Image.Image]:
        return self._files if whole else as_batch(self.dataset.images[self.rows])

    def views(self, whole: bool) -> Iterable[Tensor | Sequence[Image.Image]]:
        """The columns of views."""
        if self.maker is None:
            return ()
        return zip(*self._whole, strict=True) if whole else self._squares.unbind(1)

    @cached_property
    def _files(self) -> list[Image.Image]:
        return originals(self.dataset, self.rows)

    @cached_property
    def _squares(self) -> Tensor:
        assert self.maker is not None
        return self.maker.make(self.dataset.images[self.rows], self.dataset.ids[self.rows], self.k, self.seed)

    @cached_property
    def _whole(self) -> list[list[Image.Image]]:
        assert self.maker is not None
        return self.maker.whole(self._files, self.dataset.ids[self.rows], self.k, self.seed)


class _Job:
    """One bank that is being made."""

    def __init__(
        self, encoder: Encoder, output: Path, info: BankInfo, dtype: torch.dtype, known: Tensor | None
    ) -> None:
        self.encoder, self.output, self.info, self.known = encoder, output, info, known
        self.base = _identity(info, dtype).encode()
        self.parts = output.with_name(output.name + ".parts")
        self.parts.mkdir(parents=True, exist_ok=True)
        self.files: list[Path] = []

    def part(self, start: int, content: bytes) -> Path:
        """The next chunk's file."""
        key = hashlib.blake2b(self.base + content, digest_size=16).hexdigest()
        self.files.append(self.parts / f"{start:08d}-{key}.safetensors")
        return self.files[-1]


@torch.inference_mode()
def _encode(encoder: Encoder, chunk: Chunk, whole: tuple[bool, bool], known: Tensor | None = None) -> Tensor:
    """(B, 1+K, d), column by column, so that a batch is never larger than B; `whole`: the original, the views."""
    columns = [_look(encoder, chunk.original(whole[0])) if known is None else known.float()]
    columns += [_look(encoder, column) for column in chunk.views(whole[1])]
    return torch.stack(columns, dim=1)


def _look(encoder: Encoder, images: Tensor | Sequence[Image.Image]) -> Tensor:
    """Features of a batch, or of pictures of any sizes, on the host."""
    if isinstance(images, Tensor):
        return encoder.embed(images).float().cpu()
    sizes: dict[tuple[int, int], list[int]] = {}
    for row, image in enumerate(images):
        sizes.setdefault(image.size, []).append(row)
    found = [encoder.embed(torch.stack([to_tensor(images[row]) for row in rows])) for rows in sizes.values()]
    order = torch.tensor([row for rows in sizes.values() for row in rows]).argsort()
    return torch.cat(found).float().cpu()[order]


def _identity(info: BankInfo, dtype: torch.dtype) -> str:
    """Everything that decides the features' values; the commit is a note, not a cause."""
    return json.dumps(
        [SCHEMA, info.data, info.encoder, dict(info.views), info.seed, str(dtype), list(info.ids)], sort_keys=True
    )
