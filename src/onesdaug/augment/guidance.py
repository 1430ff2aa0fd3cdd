"""Classifier-free guidance with an interval; where it is off, only the positive rows run."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch

from onesdaug.augment.solvers import Predict
from onesdaug.generators.base import Generator


def guided_steps(t: np.ndarray, length: int, guidance: float, interval: tuple[float, float]) -> list[bool]:
    """For each step, whether guidance is on: scale above 1 and t/T inside the interval. Known before the run."""
    if guidance <= 1.0:
        return [False] * len(t)
    return [bool(interval[0] <= step / max(1, length - 1) <= interval[1]) for step in t]


def guided(
    generator: Generator,
    attention: str,
    t: torch.Tensor,
    positive: torch.Tensor,
    negative: torch.Tensor | None,
    image_scale: torch.Tensor,
    guidance: float,
    on: list[bool],
) -> Predict:
    """eps of step i: eps_neg + w·(eps_pos − eps_neg) in one forward over [negative, positive], or eps_pos alone.

    `t` holds the timesteps on the device, one per step; `negative` may be None when guidance is never on, or when the
    generator guides itself and is told how much.
    """
    rows = positive if negative is None else torch.cat([negative, positive])
    rows = generator.prepared(rows)
    both, positive = None if negative is None else rows, rows[-len(positive) :]
    scales = torch.cat([image_scale, image_scale])
    # only a generator that knows another kind of attention takes the keyword
    how: dict[str, Any] = {} if attention == "decoupled" else {"attention": attention}
    predict: Callable[..., torch.Tensor] = partial(generator.predict, **how)

    def step(z: torch.Tensor, i: int) -> torch.Tensor:
        rows = z.shape[0]
        if on[i] and both is None:
            return predict(z, t[i].expand(rows), positive, image_scale, guidance=guidance)
        if not on[i] or both is None:
            return predict(z, t[i].expand(rows), positive, image_scale)
        if generator.shares_rows:
            eps = predict(z, t[i].expand(rows), both, scales)
        else:
            eps = predict(torch.cat([z, z]), t[i].expand(2 * rows), both, scales)
        eps_negative, eps_positive = eps.chunk(2)
        return eps_negative + guidance * (eps_positive - eps_negative)

    return step
