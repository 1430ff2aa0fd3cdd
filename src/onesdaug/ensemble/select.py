"""Which views count: masks (B, K) of kept views."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity

from onesdaug.ensemble.combine import probabilities


def similarity(outputs: Tensor) -> Tensor:
    """Cosine of each view's output with the original's, (B, K): how DiffTPT filters its views."""
    return cosine_similarity(outputs[:, 1:], outputs[:, :1], dim=-1)


def confidence(outputs: Tensor) -> Tensor:
    """Minus the entropy of each view's prediction, (B, K): what TPT and DDA trust."""
    p = probabilities(outputs)[:, 1:]
    return torch.xlogy(p, p).sum(-1)


def margins(outputs: Tensor) -> Tensor:
    """By how much the best class of (B, C) outputs leads the second: probabilities, between 0 and 1."""
    best = probabilities(outputs).topk(2, dim=-1).values
    return best[..., 0] - best[..., 1]


SCORES: dict[str, Callable[[Tensor], Tensor]] = {"similarity": similarity, "confidence": confidence}


def kept_views(outputs: Tensor, select: str, keep: float) -> Tensor:
    """Mask (B, K): all views, or the best ⌈keep·K⌉ of each image (never none); equals go by position."""
    rows, views = outputs.shape[0], outputs.shape[1] - 1
    if select == "all" or views == 0:
        return torch.ones(rows, views, dtype=torch.bool, device=outputs.device)
    # 0.07·100 is 7.000000000000001 in binary: without the slack a whole view too many would stay
    count = max(1, math.ceil(keep * views - 1e-9))
    # a view whose output is nan is the last one to trust
    scores = SCORES[select](outputs).nan_to_num(nan=-torch.inf)
    best = scores.argsort(dim=1, descending=True, stable=True)[:, :count]
    return torch.zeros_like(scores, dtype=torch.bool).scatter(1, best, True)
