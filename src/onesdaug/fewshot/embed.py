"""Embed a data set and its views once, in chunks that survive a kill, into feature banks.

Networks of up to `FRAME` pixels (FEAT's backbones, pocket) get the data set's working size, which FEAT's protocol
resizes to anyway. Encoders and generators that look at more (ViT, Stable Diffusion) get the files' own pixels, and the
views come back at the image's own size.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from safetensors.torch import save_file
from torch import Tensor

from onesdaug.common.files import locked, whole_file
from onesdaug.common.progress import progress
from onesdaug.common.reading import read_tensors
from onesdaug.data.dataset import Dataset
from onesdaug.data.decode import originals, sizes
from onesdaug.data.pixels import image_bytes
from onesdaug.encoders.base import Encoder
from onesdaug.errors import ConfigError, OnesdaugError
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
    pixels = [width * height for width, height in own] if any_whole else [0] * len(dataset)
    slices = _slices(pixels, min(chunk, WHOLE_CHUNK) if any_whole else chunk)
    missing = [job for job in jobs if not job.finished()]
    with ExitStack() as held:
        for job in sorted(missing, key=lambda job: job.output):  # an order for all runs, or two would wait for ever
            held.enter_context(job.held())
        if missing := [job for job in missing if not job.finished()]:  # while we waited, another run may have
            _make(dataset, slices, missing, maker, k, seed)
    return {job.output: FeatureBank.load(job.output) for job in jobs}


def _make(
    dataset: Dataset, slices: Iterable[slice], missing: Sequence[_Job], maker: Views | None, k: int, seed: int
) -> None:
    with progress(len(dataset), "images", "embedding", parts=k) as bar:
        todo = [(chunk, files) for rows in slices for chunk, files in [_begun(dataset, rows, missing)] if files]
        bar.advance(0, skipped=len(dataset) - sum(len(chunk) for chunk, _ in todo))
        for made, files, features in _embedded(todo, missing, maker, k, seed):
            for number, file in files.items():
                missing[number].store(file, features[number], made.ids)
            bar.advance(len(made))
    for job in missing:
        job.join(torch.as_tensor(dataset.labels))


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


# how work is done by others, if it is: gives each unit with its result, None where that could not be had
Spreading = Callable[[Callable[[], Callable[[Any], Any]], Sequence[Any]], Iterator[tuple[Any, Any]]]
ELSEWHERE: ContextVar[Spreading | None] = ContextVar("elsewhere", default=None)
_SPENT: ContextVar[list[float] | None] = ContextVar("spent", default=None)


@contextmanager
def spending() -> Iterator[list[float]]:
    """The seconds of each chunk that is embedded within this block, whoever does it, without waiting for workers."""
    spent: list[float] = []
    before = _SPENT.set(spent)
    try:
        yield spent
    finally:
        _SPENT.reset(before)


@dataclass(frozen=True)
class _Chunk:
    """Some images: in the working size, and as they are in their files."""

    images: NDArray[np.uint8]
    ids: tuple[str, ...]
    files: Callable[[], list[Image.Image]]
    known: tuple[Tensor | None, ...]  # features of the originals that each job has already

    def __len__(self) -> int:
        return len(self.ids)


def _begun(dataset: Dataset, rows: slice, jobs: Sequence[_Job]) -> tuple[_Chunk, dict[int, Path]]:
    """A chunk and, by the number of its job, each file that its features are missing from."""
    known = tuple(None if job.known is None else job.known[rows] for job in jobs)
    images = dataset.images[rows]
    chunk, content = _Chunk(images, dataset.ids[rows], partial(originals, dataset, rows), known), images.tobytes()
    files = {number: job.file(rows.start, content) for number, job in enumerate(jobs)}
    return chunk, {number: file for number, file in files.items() if not file.is_file()}


def _embedded(
    todo: list[tuple[_Chunk, dict[int, Path]]], jobs: Sequence[_Job], maker: Views | None, k: int, seed: int
) -> Iterator[tuple[_Chunk, dict[int, Path], dict[int, Tensor]]]:
    """The features of every chunk for those jobs that miss them; made here, or by those who are asked to."""
    looking = _Looking([(job.encoder, job.whole) for job in jobs], maker, k, seed)
    spent = [] if (told := _SPENT.get()) is None else told
    if (spread := ELSEWHERE.get()) is None:
        for chunk, files in todo:
            features, seconds = looking(chunk, files)
            spent.append(seconds)
            yield chunk, files, features
        return
    whole = any(any(job.whole) for job in jobs)
    sent = [
        (place, replace(chunk, files=partial(list, chunk.files() if whole else ())), tuple(files))
        for place, (chunk, files) in enumerate(todo)
    ]
    for (place, chunk, _), made in spread(partial(_looks, looking), sent):
        if made is None:
            raise OnesdaugError(f"the workers that embed {chunk.ids[0]} to {chunk.ids[-1]} died each time")
        arrays, seconds = made
        spent.append(seconds)
        yield *todo[place], {number: torch.from_numpy(array) for number, array in arrays.items()}


def _looks(looking: _Looking) -> Callable[[Any], tuple[dict[int, NDArray[np.float32]], float]]:
    """What a worker does with what it is sent."""

    def look(sent: Any) -> tuple[dict[int, NDArray[np.float32]], float]:
        features, seconds = looking(sent[1], sent[2])
        return {number: found.numpy() for number, found in features.items()}, seconds

    return look


@dataclass(frozen=True)
class _Looking:
    """Encoders, each with whether it sees whole images (as originals, as views), and who makes the views."""

    encoders: list[tuple[Encoder, tuple[bool, bool]]]
    maker: Views | None
    k: int
    seed: int

    def __call__(self, chunk: _Chunk, numbers: Iterable[int]) -> tuple[dict[int, Tensor], float]:
        """Features (B, 1+K, d) of a chunk by these encoders, and seconds; views are made when the first asks."""
        began = time.perf_counter()
        pictures = _Pictures(chunk, self.maker, self.k, self.seed)
        asked = {number: self.encoders[number] for number in numbers}
        found = {n: _encode(encoder, pictures, whole, chunk.known[n]) for n, (encoder, whole) in asked.items()}
        return found, time.perf_counter() - began


class _Pictures:
    """The images of a chunk and their views, in squares or whole; each is made when the first encoder asks for it."""

    def __init__(self, chunk: _Chunk, maker: Views | None, k: int, seed: int) -> None:
        self.chunk, self.maker, self.k, self.seed = chunk, maker, k, seed

    def original(self, whole: bool) -> Tensor | list[Tensor]:
        return [image_bytes(image) for image in self._files] if whole else as_batch(self.chunk.images)

    def views(self, whole: bool) -> Iterable[Tensor | Sequence[Tensor]]:
        """The columns of views."""
        if self.maker is None:
            return ()
        return self._whole if whole else self._squares.unbind(1)

    @cached_property
    def _files(self) -> list[Image.Image]:
        return self.chunk.files()

    @cached_property
    def _squares(self) -> Tensor:
        assert self.maker is not None
        return self.maker.make(self.chunk.images, self.chunk.ids, self.k, self.seed)

    @cached_property
    def _whole(self) -> list[list[Tensor]]:
        """Columns, too; made into tensors once for all encoders."""
        assert self.maker is not None
        rows = self.maker.whole(self._files, self.chunk.ids, self.k, self.seed)
        return [[image_bytes(image) for image in column] for column in zip(*rows, strict=True)]


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

    def file(self, start: int, content: bytes) -> Path:
        """Where the features of these images lie until all are there; a run before may have left them."""
        key = hashlib.blake2b(self.identity.encode() + content, digest_size=16).hexdigest()
        self.files.append(self.parts / f"{start:08d}-{key}.safetensors")
        return self.files[-1]

    def store(self, file: Path, features: Tensor, ids: Sequence[str]) -> None:
        with whole_file(file) as temporary:
            save_file({"features": to_dtype(features, self.dtype, ids)}, temporary)

    def join(self, labels: Tensor) -> None:
        """One bank of all parts."""
        features = torch.cat([read_tensors(file, "delete it and run again")["features"] for file in self.files])
        FeatureBank(features, labels, self.info).save(self.output)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Make it alone: another run that wants the same bank waits, and finds it. Its parts go at the end."""
        with locked(self.parts, wait=True):
            yield
            shutil.rmtree(self.parts, ignore_errors=True)


@torch.inference_mode()
def _encode(encoder: Encoder, chunk: _Pictures, whole: tuple[bool, bool], known: Tensor | None = None) -> Tensor:
    """(B, 1+K, d), column by column, so that a batch is never larger than B; `whole`: the original, the views."""
    columns = [_features(encoder, chunk.original(whole[0])) if known is None else known.float()]
    columns += [_features(encoder, column) for column in chunk.views(whole[1])]
    return torch.stack(columns, dim=1)


def _features(encoder: Encoder, images: Tensor | Sequence[Tensor]) -> Tensor:
    """Features of a batch, or of pictures of any sizes, on the host."""
    return encoder.embed(images).float().cpu()


def _identity(info: BankInfo, dtype: torch.dtype) -> str:
    """Everything that decides the features' values; the commit is a note, not a cause."""
    return json.dumps(
        [SCHEMA, info.data, info.encoder, dict(info.views), info.seed, str(dtype), list(info.ids)], sort_keys=True
    )
