"""Embed a data set and its views once, in chunks that survive a kill, into a feature bank."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from onesdaug.data.dataset import Dataset
from onesdaug.errors import ConfigError
from onesdaug.fewshot.bank import ORACLE, SCHEMA, BankInfo, FeatureBank, to_dtype
from onesdaug.fewshot.views import Views, as_batch


class Encoder(Protocol):
    """A frozen network with its own preprocessing; the fingerprint names its weights."""

    @property
    def fingerprint(self) -> str: ...

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
    originals: Mapping[Path, Tensor] | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> dict[Path, FeatureBank]:
    """One bank for each encoder at its output; views cost far more than looking at them, so all look at the same ones.

    `originals` gives, for an output, features (N, d) of the originals that are known from another bank.
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
    banks: dict[Path, FeatureBank] = {}
    jobs = []
    for output, encoder in encoders.items():
        info = BankInfo(
            class_names=tuple(dataset.class_names),
            ids=tuple(dataset.ids),
            data=dataset.fingerprint,
            encoder=encoder.fingerprint,
            views={**about, "k": k},
            seed=seed,
            commit=commit,
        )
        if output.is_file():
            there = FeatureBank.load(output)
            if _identity(there.info, there.features.dtype) == _identity(info, dtype):
                banks[output] = there
                continue
        jobs.append(_Job(encoder, output, info, dtype, (originals or {}).get(output)))
    if not jobs:
        progress(len(dataset), len(dataset))
        return banks
    for start in range(0, len(dataset), chunk):
        rows = slice(start, start + chunk)
        images, ids = dataset.images[rows], dataset.ids[rows]
        pixels = images.tobytes()
        waiting = [(job, file) for job in jobs if not (file := job.part(start, pixels)).is_file()]
        if waiting:
            plain = as_batch(images)
            made = maker.make(images, ids, k, seed) if maker else None
            for job, file in waiting:
                first = None if job.originals is None else job.originals[rows]
                features = to_dtype(_encode(job.encoder, plain, made, first), dtype)
                temporary = file.with_suffix(".tmp")
                save_file({"features": features}, temporary)
                temporary.replace(file)
        progress(min(start + chunk, len(dataset)), len(dataset))
    for job in jobs:
        features = torch.cat([load_file(file)["features"] for file in job.files])
        FeatureBank(features, torch.as_tensor(dataset.labels), job.info).save(job.output)
        shutil.rmtree(job.parts)
        banks[job.output] = FeatureBank.load(job.output)
    return banks


class _Job:
    """One bank that is being made."""

    def __init__(
        self, encoder: Encoder, output: Path, info: BankInfo, dtype: torch.dtype, originals: Tensor | None
    ) -> None:
        self.encoder, self.output, self.info, self.originals = encoder, output, info, originals
        self.base = _identity(info, dtype).encode()
        self.parts = output.with_name(output.name + ".parts")
        self.parts.mkdir(parents=True, exist_ok=True)
        self.files: list[Path] = []

    def part(self, start: int, pixels: bytes) -> Path:
        """The next chunk's file."""
        key = hashlib.blake2b(self.base + pixels, digest_size=16).hexdigest()
        self.files.append(self.parts / f"{start:08d}-{key}.safetensors")
        return self.files[-1]


@torch.inference_mode()
def _encode(encoder: Encoder, originals: Tensor, views: Tensor | None, known: Tensor | None = None) -> Tensor:
    """(B, 3, H, W) and (B, K, 3, H, W) -> (B, 1+K, d); column by column, so that a batch is never larger than B."""
    columns = [encoder.embed(originals).float().cpu() if known is None else known.float()]
    columns += [encoder.embed(column).float().cpu() for column in ([] if views is None else views.unbind(1))]
    return torch.stack(columns, dim=1)


def _identity(info: BankInfo, dtype: torch.dtype) -> str:
    """Everything that decides the features' values; the commit is a note, not a cause."""
    return json.dumps(
        [SCHEMA, info.data, info.encoder, dict(info.views), info.seed, str(dtype), list(info.ids)], sort_keys=True
    )
