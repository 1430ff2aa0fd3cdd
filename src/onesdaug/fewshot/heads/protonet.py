"""Prototypical networks (Snell et al., 2017): nearest class mean."""

from __future__ import annotations

from typing import Literal

from torch import Tensor

from onesdaug.errors import ConfigError
from onesdaug.fewshot.heads.base import Head, cosine, nearest, prototypes, squared_euclidean

Metric = Literal["euclidean", "cosine"]


class ProtoNet(Head):
    """logits = -||q - p_n||² / T, or cos(q, p_n) / T."""

    def __init__(self, metric: Metric = "euclidean", temperature: float = 1.0) -> None:
        super().__init__()
        if metric not in ("euclidean", "cosine"):
            raise ConfigError(f"metric must be 'euclidean' or 'cosine', not {metric!r}")
        if temperature <= 0:
            raise ConfigError(f"temperature must be positive, not {temperature}")
        self.metric = metric
        self.temperature = temperature

    def forward(self, support: Tensor, query: Tensor) -> Tensor:
        centres = prototypes(support)
        if self.metric == "cosine":
            return cosine(query, centres) / self.temperature
        return squared_euclidean(query, centres) / -self.temperature

    def predict(self, support: Tensor, query: Tensor) -> Tensor:
        return nearest(query, prototypes(support)) if self.metric == "euclidean" else super().predict(support, query)
