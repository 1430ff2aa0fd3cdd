"""How the outputs for an image and its K views become one: functions of (B, 1+K, C) and weights (B, 1+K).

Column 0 is the original. A row of weights sums to 1; a weight of 0 means the view was dropped.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from onesdaug.errors import ConfigError

# Weighted tallies that differ by less are the same number of votes: 1/3 + 1/3 is not exact in binary.
TIE = 1e-5
# What the winner of a tie gets on top, as a share: large enough that argmax still sees it in bfloat16.
NUDGE = 0.01


def shares(views: int, original_weight: float = 0.5) -> list[float]:
    """What the original and each of its views weigh, 1 in all: the paper's ½ and K times ½/K."""
    if not 0 <= original_weight <= 1:
        raise ConfigError(f"original_weight must lie in [0, 1], not {original_weight}")
    return [original_weight, *[(1 - original_weight) / views] * views] if views else [1.0]


def view_weights(kept: Tensor, original_weight: float | None, dtype: torch.dtype = torch.float32) -> Tensor:
    """`shares` for each row of a mask (B, K) of kept views, (B, 1+K); None: the original weighs as much as a view."""
    count = kept.sum(1, keepdim=True).to(dtype)
    if kept.shape[1] == 0:
        own = torch.ones_like(count)
    elif original_weight is None:
        own = 1 / (1 + count)
    else:
        own = torch.full_like(count, original_weight)
    shared = (1 - own) / count.clamp(min=1)
    return torch.cat([own, kept * shared], dim=1)


def mean(outputs: Tensor, weights: Tensor) -> Tensor:
    """Weighted mean: the paper's 0.5·f(x) + 0.5/K·Σ f(view). Serves embeddings and logits alike."""
    w = weights.to(outputs.dtype).unsqueeze(-1)
    # a dropped view must not reach the sum at all, since 0·inf would be nan
    return torch.where(w > 0, w * outputs, torch.zeros_like(outputs)).sum(1)


def probs(outputs: Tensor, weights: Tensor) -> Tensor:
    """Weighted mean of class probabilities."""
    return mean(probabilities(outputs), weights)


def vote(outputs: Tensor, weights: Tensor) -> Tensor:
    """Vote shares per class, (B, C), each summing to 1; their argmax is the decision, ties already resolved.

    A tie goes to the original's class if it is among the tied classes; otherwise to the tied class with the
    largest weighted probability; if that is equal too, to the lowest index. An image with a NaN among the outputs
    that count has NaN shares, as its mean would be: no class was voted for.
    """
    p = probabilities(outputs)
    classes = p.shape[-1]
    ballots = one_hot(p.argmax(-1), classes).to(p.dtype)
    shares = mean(ballots, weights)
    tied = shares >= shares.amax(-1, keepdim=True) - TIE
    mass = mean(p, weights).masked_fill(~tied, -1.0)
    # argmax of a truth table is its first True, which does not hang on the last bit of a sum
    by_mass = (mass >= mass.amax(-1, keepdim=True) - TIE).to(torch.uint8).argmax(-1)
    own = p[:, 0].argmax(-1)
    winner = torch.where(tied.gather(1, own[:, None])[:, 0], own, by_mass)
    nudged = (1 - NUDGE) * shares + NUDGE * one_hot(winner, classes).to(p.dtype)
    decided = torch.where(tied.sum(-1, keepdim=True) > 1, nudged, shares)
    return decided.masked_fill((p.isnan().any(-1) & (weights > 0)).any(-1, keepdim=True), torch.nan)


def probabilities(outputs: Tensor) -> Tensor:
    """Softmax over classes, unless every row already is a distribution (as `predict_proba` gives)."""
    if outputs.shape[-1] < 2:
        raise ConfigError(
            "probabilities, votes and confidence need one column per class, but the model gives a single "
            "one; for a binary score use output=lambda s: torch.cat([-s, s], dim=1)"
        )
    distribution = (outputs >= 0).all(-1) & ((outputs.sum(-1) - 1).abs() < 1e-2)
    already = (distribution | outputs.isnan().any(-1)).all()  # a broken row says nothing of the others
    return outputs if bool(already) else outputs.softmax(-1)


COMBINE: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "embedding": mean,
    "logits": mean,
    "probs": probs,
    "vote": vote,
}
