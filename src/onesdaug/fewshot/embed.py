"""Embed a data set and its views once, in chunks that survive a kill, into feature banks.

Networks of up to `FRAME` pixels (FEAT's backbones, pocket) get the data set's working size, which FEAT's protocol
resizes to anyway. Encoders and generators that look at more (ViT, Stable Diffusion) get the files' own pixels, and the
views come back at the image's own size.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from safetensors.torch import save_file
from torch import Tensor

from onesdaug.common.files import whole_file
from onesdaug.common.progress import progress
from onesdaug.common.reading import read_tensors
from onesdaug.data.dataset import Dataset
from onesdaug.data.decode import originals, sizes
from onesdaug.data.pixels import to_tensor
from onesdaug.encoders.base import Encoder
from onesdaug.errors import ConfigError
from onesdaug.fewshot.bank import ORACLE, SCHEMA, BankInfo, FeatureBank, to_dtype
from onesdaug.fewshot.views import Views, as_batch

FRAME = 96  # px, the side up to which the working size serves
WHOLE_CHUNK = 256  # whole images take more memory than squares of the working size
WHOLE_PIXELS = 1 << 26  # of the images of such a chunk: a gigabyte, as pictures and as floats


def embed(
    dataset: Dataset, encoder: Encoder, output: Path, views: Views | str | None = None, k: int = 0, **settings: Any
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
    about, maker = _described(views, k)
    wide_views = maker is not None and maker.side > FRAME
    wide = wide_views or any(encoder.short_side > FRAME for encoder in encoders.values())
    own = sizes(dataset) if wide else []
    any_whole = any(size != dataset.images.shape[1:3] for size in own)  # else decoding lost nothing
    jobs: list[_Job] = []
    for output, encoder in encoders.items():
        wide = encoder.short_side > FRAME
        whole = (any_whole and wide, any_whole and (wide or wide_views))
        info = BankInfo(
            class_names=tuple(dataset.class_names),
            ids=tuple(dataset.ids),
            data=dataset.fingerprint,
            encoder=encoder.fingerprint,
            views={**about, "k": k, **({"pixels": "whole images"} if whole[1] else {})},
            seed=seed,
            commit=commit,
        )
        jobs.append(_Job(encoder, output, info, dtype, whole, (known or {}).get(output)))
    if missing := [job for job in jobs if not job.finished()]:
        pixels = [width * height for width, height in own] if any_whole else [0] * len(dataset)
        with progress(len(dataset), "images", "embedding", parts=k) as bar:
            for rows in _slices(pixels, min(chunk, WHOLE_CHUNK) if any_whole else chunk):
                pictures = _Chunk(dataset, rows, maker, k, seed)
                made = sum(job.embed(pictures) for job in missing)
                bar.advance(len(pictures) if made else 0, skipped=0 if made else len(pictures))
    for job in missing:
        job.join(torch.as_tensor(dataset.labels))
    return {job.output: FeatureBank.load(job.output) for job in jobs}


def _slices(pixels: Sequence[int], most: int) -> Iterator[slice]:
    """Consecutive rows, at most so many and not too many pixels at once; an image alone may have any number."""
    start = total = 0
    for row, count in enumerate(pixels):
        if row > start and (row == start + most or total + count > WHOLE_PIXELS):
            yield slice(start, row)
            start, total = row, 0
        total += count
    yield slice(start, len(pixels))


def _described(views: Views | str | None, k: int) -> tuple[dict[str, Any], Views | None]:
    """What a bank says of its views, and who makes them; nobody does for an oracle, whose views are other images."""
    if (views is None) != (k == 0) or k < 0:
        raise ConfigError(f"k={k} does not go with views={'none' if views is None else 'given'}: k ≥ 1 needs views")
    if isinstance(views, str):
        if views != ORACLE:
            raise ConfigError(f"views must be a maker of views, {ORACLE!r} or None, not {views!r}")
        return {"source": ORACLE}, None
    return (views.describe() if views else {"source": "none"}), views


class _Chunk:
    """Some images and their views, in squares or whole; each is made when the first encoder asks for it."""

    def __init__(self, dataset: Dataset, rows: slice, maker: Views | None, k: int, seed: int) -> None:
        self.dataset, self.rows, self.maker, self.k, self.seed = dataset, rows, maker, k, seed
        self.content = dataset.images[rows].tobytes()

    def __len__(self) -> int:
        return len(self.dataset.images[self.rows])

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
    """One bank to be made; `whole`: whether its encoder sees whole images, as originals and as views."""

    def __init__(
        self, encoder: Encoder, output: Path, info: BankInfo, dtype: torch.dtype, whole: tuple[bool, bool],
        known: Tensor | None,
    ) -> None:  # fmt: skip
        self.encoder, self.output, self.info, self.dtype = encoder, output, info, dtype
        self.whole, self.known, self.identity = whole, known, _identity(info, dtype)
        self.parts = output.with_name(output.name + ".parts")
        self.files: list[Path] = []

    def finished(self) -> bool:
        if not self.output.is_file():
            return False
        there = FeatureBank.load(self.output)
        return _identity(there.info, there.features.dtype) == self.identity

    def embed(self, chunk: _Chunk) -> bool:
        """Write the features of a chunk; False where a run before did."""
        key = hashlib.blake2b(self.identity.encode() + chunk.content, digest_size=16).hexdigest()
        file = self.parts / f"{chunk.rows.start:08d}-{key}.safetensors"
        self.files.append(file)
        if file.is_file():
            return False
        known = None if self.known is None else self.known[chunk.rows]
        features = to_dtype(_encode(self.encoder, chunk, self.whole, known), self.dtype, self.info.ids[chunk.rows])
        with whole_file(file) as temporary:
            save_file({"features": features}, temporary)
        return True

    def join(self, labels: Tensor) -> None:
        features = torch.cat([read_tensors(file, "delete it and run again")["features"] for file in self.files])
        FeatureBank(features, labels, self.info).save(self.output)
        shutil.rmtree(self.parts)


@torch.inference_mode()
def _encode(encoder: Encoder, chunk: _Chunk, whole: tuple[bool, bool], known: Tensor | None = None) -> Tensor:
    """(B, 1+K, d), column by column, so that a batch is never larger than B; `whole`: the original, the views."""
    columns = [_features(encoder, chunk.original(whole[0])) if known is None else known.float()]
    columns += [_features(encoder, column) for column in chunk.views(whole[1])]
    return torch.stack(columns, dim=1)


def _features(encoder: Encoder, images: Tensor | Sequence[Image.Image]) -> Tensor:
    """Features of a batch, or of pictures of any sizes, on the host."""
    batch = images if isinstance(images, Tensor) else [to_tensor(image) for image in images]
    return encoder.embed(batch).float().cpu()


def _identity(info: BankInfo, dtype: torch.dtype) -> str:
    """Everything that decides the features' values; the commit is a note, not a cause."""
    return json.dumps(
        [SCHEMA, info.data, info.encoder, dict(info.views), info.seed, str(dtype), list(info.ids)], sort_keys=True
    )
