"""What the training loop reads of a stage's settings. No torch here: help texts are made from these classes."""

from __future__ import annotations

import math
from typing import Any


class StageSettings:
    """The base of frozen dataclasses that have these fields among theirs."""

    lr: float
    warmup_epochs: float
    ema: float
    eval_every: int
    seed: int

    def lr_scale(self, step: int, steps_per_epoch: int, total: int) -> float:
        """Warm-up, then cosine to zero."""
        warmup = self.warmup_epochs * steps_per_epoch
        if step < warmup:
            return (step + 1) / (warmup + 1)
        return 0.5 * (1 + math.cos(math.pi * (step - warmup) / max(1, total - warmup)))

    def to_dict(self) -> dict[str, Any]:
        return dict(vars(self))
