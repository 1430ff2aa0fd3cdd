"""What the stages of the pocket recipe share: a length in steps, and the last averaged weights are kept."""

from __future__ import annotations

from dataclasses import replace

import torch

from onesdaug.generators.pocket.recipe import EPOCH, StageConfig
from onesdaug.training.stage import Stage


class PocketStage(Stage):
    steps_per_epoch = EPOCH
    validations = 1
    config: StageConfig

    def __init__(self, config: StageConfig, device: torch.device) -> None:
        self.config, self.device = config, device

    @property
    def steps(self) -> int:
        return self.config.steps

    def set_epochs(self, epochs: int, eval_every: int) -> None:
        self.config = replace(self.config, steps=epochs * self.steps_per_epoch)

    def random_rows(self, high: int) -> torch.Tensor:
        """One number below `high` for each row of a batch."""
        return torch.randint(high, (self.config.batch,), device=self.device)

    def finish(self) -> None:
        """Called with the final weights in place."""
