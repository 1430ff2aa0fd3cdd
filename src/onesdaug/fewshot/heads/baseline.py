"""Classifier-Baseline and Meta-Baseline (Chen et al., 2021): nearest class mean by cosine."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from onesdaug.fewshot.heads.base import Head, cosine, prototypes


class ClassifierBaseline(Head):
    """logits = cos(q, w_n), w_n the mean support feature, on a backbone trained as a plain classifier."""

    def forward(self, support: Tensor, query: Tensor) -> Tensor:
        return cosine(query, prototypes(support))


class MetaBaseline(Head):
    """logits = τ·cos(q, w_n), with the scale τ learnt in meta-training (10 at the start)."""

    def __init__(self, scale: float = 10.0) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(float(scale)))

    def forward(self, support: Tensor, query: Tensor) -> Tensor:
        return self.scale * cosine(query, prototypes(support))
