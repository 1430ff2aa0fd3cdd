"""Embed a data set and its views once, in chunks that survive a kill, into a feature bank."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

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
    *,
    seed: int = 0,
    dtype: torch.dtype = torch.float16,
    chunk: int = 128,
    commit: str = "unknown",
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> FeatureBank:
    """Write the bank at `output` and open it; `views` is a maker of views, `"oracle"`, or None for originals only.

    Chunks lie beside the output until all are done, each under a name that hashes its images and all settings: a
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
            progress(len(dataset), len(dataset))
            return there
    parts = output.with_name(output.name + ".parts")
    parts.mkdir(parents=True, exist_ok=True)
    base = _identity(info, dtype)
    files = []
    for start in range(0, len(dataset), chunk):
        rows = slice(start, start + chunk)
        images, ids = dataset.images[rows], dataset.ids[rows]
        key = hashlib.blake2b(base.encode() + images.tobytes(), digest_size=16).hexdigest()
        files.append(parts / f"{start:08d}-{key}.safetensors")
        if not files[-1].is_file():
            made = maker.make(images, ids, k, seed) if maker else None
            features = to_dtype(_encode(encoder, as_batch(images), made), dtype)
            temporary = files[-1].with_suffix(".tmp")
            save_file({"features": features}, temporary)
            temporary.replace(files[-1])
        progress(min(start + chunk, len(dataset)), len(dataset))
    features = torch.cat([load_file(file)["features"] for file in files])
    FeatureBank(features, torch.as_tensor(dataset.labels), info).save(output)
    shutil.rmtree(parts)
    return FeatureBank.load(output)


@torch.inference_mode()
def _encode(encoder: Encoder, originals: Tensor, views: Tensor | None) -> Tensor:
    """(B, 3, H, W) and (B, K, 3, H, W) -> (B, 1+K, d); column by column, so that a batch is never larger than B."""
    columns = [originals] if views is None else [originals, *views.unbind(1)]
    return torch.stack([encoder.embed(column).float().cpu() for column in columns], dim=1)


def _identity(info: BankInfo, dtype: torch.dtype) -> str:
    """Everything that decides the features' values; the commit is a note, not a cause."""
    return json.dumps(
        [SCHEMA, info.data, info.encoder, dict(info.views), info.seed, str(dtype), list(info.ids)], sort_keys=True
    )
