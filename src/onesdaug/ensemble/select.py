"""Which views count: masks (B, K) of kept views."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

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


def settled(before: Tensor, now: Tensor, views: int) -> Tensor:
    """Whether the answers of (…, C) outputs are done with: one more view like the last one could not change them.

    `before` and `now` are the outputs without and with view number `views`, which moved the probabilities by the sum
    of their absolute changes. One more that lies as far from the mean moves that by views / (views + 1) as much: an
    answer is settled when its best class leads the second by more. A rule of thumb, not a bound: a view may be unlike
    all before it.
    """
    moved = (probabilities(now) - probabilities(before)).abs().sum(-1)
    return margins(now) > moved * views / (views + 1)


def stops(looks: Sequence[Tensor], threshold: float | None = None) -> Tensor:
    """At which of its looks each answer is given, (…): the last one, or the first that says enough.

    looks: outputs (…, C) for the original alone, then with ever more views. The original is enough where it leads by
    more than `threshold`, a later look where it is `settled`.
    """
    found = torch.full(looks[0].shape[:-1], len(looks) - 1, device=looks[0].device)
    for number in range(len(looks) - 2, 0, -1):
        found = found.masked_fill(settled(looks[number - 1], looks[number], number), number)
    return found if threshold is None else found.masked_fill(margins(looks[0]) > threshold, 0)


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
