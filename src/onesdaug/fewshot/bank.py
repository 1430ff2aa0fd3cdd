"""The feature bank: every image and its K views embedded once, in one safetensors file.

Tensors `features` (N, 1+K, d), column 0 the original, and `labels` (N,); the header carries what made them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from onesdaug.common.files import whole_file
from onesdaug.common.reading import parse_json
from onesdaug.ensemble.combine import mean, shares, view_weights
from onesdaug.ensemble.select import kept_views
from onesdaug.errors import ConfigError, DataError

SCHEMA = 1
ORACLE = "oracle"


@dataclass(frozen=True)
class BankInfo:
    """Where a bank comes from: enough to make it again and to tell whether two banks may be compared."""

    class_names: tuple[str, ...]
    ids: tuple[str, ...]
    data: str  # the data set's fingerprint
    encoder: str  # the encoder's fingerprint
    views: Mapping[str, Any]  # source, k, and the source's own settings
    seed: int
    commit: str
    schema: int = SCHEMA

    def __post_init__(self) -> None:
        k = self.views.get("k")
        if not isinstance(self.views.get("source"), str) or type(k) is not int or k < 0:
            raise DataError(
                f"views of a bank have a source, a text, and k, a number from 0 on, not {dict(self.views)}"
            )

    def to_json(self) -> str:
        return json.dumps(vars(self) | {"views": dict(self.views)})

    def summary(self) -> dict[str, Any]:
        """What a result file repeats of it: everything but the long lists."""
        named = {name: value for name, value in vars(self).items() if name not in ("ids", "class_names")}
        return named | {"views": dict(self.views), "classes": len(self.class_names), "images": len(self.ids)}


@dataclass(frozen=True)
class FeatureBank:
    features: Tensor
    labels: Tensor
    info: BankInfo

    def __post_init__(self) -> None:
        shape, n = tuple(self.features.shape), len(self.info.ids)
        columns = 1 + (0 if self.oracle else self.k)
        if len(shape) != 3 or shape[:2] != (n, columns) or tuple(self.labels.shape) != (n,):
            raise DataError(
                f"a bank needs features (N, 1+K, d) with N labels and ids, got {shape}, {tuple(self.labels.shape)} "
                f"and {n} ids, with K = {columns - 1}"
            )
        if not self.features.is_floating_point() or self.labels.dtype != torch.int64 or bool((self.labels < 0).any()):
            kinds = f"{self.features.dtype} and {self.labels.dtype}"
            raise DataError(f"features of a bank are floating point, labels int64 and not negative; got {kinds}")

    @property
    def k(self) -> int:
        """Views per image. An oracle bank stores none: its views are other originals, drawn per episode."""
        return int(self.info.views["k"])

    @property
    def oracle(self) -> bool:
        return bool(self.info.views["source"] == ORACLE)

    @property
    def dim(self) -> int:
        return self.features.shape[2]

    def combined(
        self, views: int, original_weight: float = 0.5, *, normalise: bool = False, select: str = "all",
        keep: float = 0.5,
    ) -> Tensor:  # fmt: skip
        """w·f(x) + (1 - w)/K·Σ_k f(view_k) with the first `views` views; f(x) alone for none: (N, d) float32.

        `normalise` brings all features to length 1 first; `select` and `keep` leave views out, as in the ensemble.
        """
        if not 0 <= views < self.features.shape[1]:
            raise ConfigError(f"{views} views asked for, the bank holds {self.features.shape[1] - 1} per image")

        def column(number: int) -> Tensor:
            found = self.features[:, number].float()
            return torch.nn.functional.normalize(found, dim=-1) if normalise else found

        own, *others = shares(views, original_weight)
        if select != "all" and others:
            columns = torch.stack([column(number) for number in range(1 + views)], dim=1)
            return mean(columns, view_weights(kept_views(columns, select, keep), original_weight))
        total = column(0) * own
        for number, weight in enumerate(others, start=1):
            total += column(number) * weight
        return total

    def save(self, path: Path | str) -> None:
        """Write the file whole or not at all."""
        tensors = {"features": self.features.contiguous(), "labels": self.labels.contiguous()}
        with whole_file(Path(path)) as temporary:
            save_file(tensors, temporary, metadata={"onesdaug": self.info.to_json()})

    @classmethod
    def load(cls, path: Path | str) -> FeatureBank:
        """Open a bank; its features stay on disk (memory-mapped) until they are used."""
        if not Path(path).is_file():
            raise DataError(f"no feature bank at {path}; `onesdaug fewshot embed` writes one")
        what = "a feature bank of this package"
        try:
            with safe_open(path, framework="pt") as file:
                info = parse_json((file.metadata() or {}).get("onesdaug", ""), BankInfo, str(path), what)
                features, labels = file.get_tensor("features"), file.get_tensor("labels")
        except (SafetensorError, OSError, KeyError) as error:
            raise DataError(f"{path} is not {what}: {error}") from error
        if info.schema != SCHEMA:
            raise DataError(f"{path} has bank format {info.schema}, this version reads {SCHEMA}: embed again")
        try:
            bank = cls(features, labels, info)
        except DataError as error:
            raise DataError(f"{path} is not {what}: {error}") from error
        if (wrong := not_finite(features)) is not None:
            row, column = wrong
            of = "the original" if column == 0 else f"view {column}"
            raise DataError(
                f"{path} holds features that are NaN or infinite: row {row} ({info.ids[row]}), {of}; embed again"
            )
        return bank


def not_finite(features: Tensor) -> tuple[int, int] | None:
    """The first row and column of (N, 1+K, d) that hold NaN or infinity. A sum finds out that there are none."""
    if torch.isfinite(features.sum(dtype=torch.float64)):
        return None
    row, column = (~torch.isfinite(features).all(-1)).nonzero()[0].tolist()
    return row, column


def to_dtype(features: Tensor, dtype: torch.dtype, ids: Sequence[str] = ()) -> Tensor:
    """Cast features (N, …) for storing; refuse rather than store infinities."""
    stored = features.to(dtype)
    if not torch.isfinite(stored).all():
        bad = int((~torch.isfinite(stored).reshape(len(stored), -1).all(1)).nonzero()[0])
        cause = f"the encoder gave values that are not finite for {ids[bad] if ids else f'row {bad}'}"
        if torch.isfinite(features).all():
            cause = "features too large for float16; use --dtype float32"
        raise DataError(f"cannot store these features: {cause}")
    return stored
