"""FEAT (Ye et al., 2020): prototypes adapted to the task by self-attention over the set of them."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from onesdaug.errors import ConfigError
from onesdaug.fewshot.heads.base import Head, nearest, prototypes, squared_euclidean
from onesdaug.fewshot.heads.protonet import Metric


class SetAttention(nn.Module):
    """x -> LayerNorm(x + fc(softmax(QKᵀ/√d) V)) over a set of rows (B, n, d); one head, d_k = d_v = d."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.query = nn.Linear(dim, dim, bias=False)
        self.key = nn.Linear(dim, dim, bias=False)
        self.value = nn.Linear(dim, dim, bias=False)
        self.fc = nn.Linear(dim, dim)
        self.norm = nn.LayerNorm(dim)
        self.attention_dropout = nn.Dropout(0.1)
        self.dropout = nn.Dropout(0.5)
        for layer in (self.query, self.key, self.value, self.fc):
            nn.init.xavier_normal_(layer.weight)  # std √(2 / (d + d_k)), FEAT's own

    def forward(self, x: Tensor) -> Tensor:
        scores = self.query(x) @ self.key(x).transpose(1, 2) / math.sqrt(x.shape[-1])
        mixed = self.attention_dropout(scores.softmax(-1)) @ self.value(x)
        adapted: Tensor = self.norm(x + self.dropout(self.fc(mixed)))
        return adapted


class FEAT(Head):
    """logits = -||q - p̃_n||² / T with p̃ = SetAttention(p), or q·(p̃_n / ||p̃_n||) / T; queries are left as they are.

    `temperature2` belongs to the contrastive term, which only training uses.
    """

    @classmethod
    def build(cls, dim: int, **settings: Any) -> FEAT:
        return cls(dim, **settings)

    def __init__(
        self, dim: int, metric: Metric = "euclidean", temperature: float = 64.0, temperature2: float = 64.0
    ) -> None:
        super().__init__()
        if metric not in ("euclidean", "cosine"):
            raise ConfigError(f"metric must be 'euclidean' or 'cosine', not {metric!r}")
        if temperature <= 0 or temperature2 <= 0:
            raise ConfigError(f"temperatures must be positive, not {temperature} and {temperature2}")
        self.metric = metric
        self.temperature = temperature
        self.temperature2 = temperature2
        self.attention = SetAttention(dim)

    def forward(self, support: Tensor, query: Tensor) -> Tensor:
        return self._score(query, self.attention(prototypes(support)), self.temperature)

    def predict(self, support: Tensor, query: Tensor) -> Tensor:
        if self.metric == "cosine":
            return super().predict(support, query)
        return nearest(query, self.attention(prototypes(support)))

    def forward_train(self, support: Tensor, query: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Logits, and the contrastive term: every instance of the episode is to find its own class centre.

        The set function runs per class over all its instances, support and query together; the centre is the mean
        of what comes out, c_n = mean_i T(x_n)_i, and the instances as they went in are classified to the centres.
        """
        episodes, way, _, dim = support.shape
        instances = torch.cat([support, query.reshape(episodes, way, -1, dim)], dim=2)
        adapted = self.attention(instances.flatten(0, 1)).view(episodes, way, -1, dim)
        aux_logits = self._score(instances.flatten(1, 2), adapted.mean(2), self.temperature2)
        labels = torch.arange(way, device=query.device).repeat_interleave(instances.shape[2])
        return self(support, query), aux_logits, labels.expand(episodes, -1)

    def _score(self, query: Tensor, centres: Tensor, temperature: float) -> Tensor:
        if self.metric == "cosine":
            return query @ F.normalize(centres, dim=-1).transpose(1, 2).to(query.dtype) / temperature
        return squared_euclidean(query, centres) / -temperature
