"""The encoder of a `pocket` generator: a Res12 that names classes and quarter turns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from onesdaug.generators.pocket.recipe import EncoderConfig
from onesdaug.generators.pocket.thumbnails import Thumbnails
from onesdaug.generators.pocket.train_condition import ClassAndTurn
from onesdaug.generators.pocket.train_stage import PocketStage
from onesdaug.training.augment import DeviceAugment
from onesdaug.training.stage import mixed_precision

Look = Callable[[Any, int], dict[str, float]]


class EncoderStage(PocketStage):
    """`scores` is the share of held-out pictures whose class is named right; `look` is called as in the denoiser's."""

    config: EncoderConfig
    model: ClassAndTurn
    validations = 4

    def __init__(
        self, config: EncoderConfig, model: ClassAndTurn, thumbnails: Thumbnails, device: torch.device,
        look: Look | None = None,
    ) -> None:  # fmt: skip
        super().__init__(config, device)
        self.thumbnails, self.look, self.step = thumbnails, look, 0
        self.model = model.to(device, memory_format=torch.channels_last).requires_grad_(True)  # type: ignore[call-overload]
        self.augment = DeviceAugment(model.encoder.side, rotate=0.5)

    def set_epochs(self, epochs: int, eval_every: int) -> None:
        """What was timed are the first steps: those of small pictures."""
        c = self.config
        cost = (c.small_side / self.augment.size) ** 2  # where a step of large ones costs 1
        share = cost / (c.small_share * cost + 1 - c.small_share)
        super().set_epochs(max(1, int(share * epochs)), max(1, int(share * eval_every)))

    def loss(self, step: int) -> Tensor:
        self.step = step
        self.model.encoder.network.anneal(2 * step / self.steps)  # DropBlock comes in slowly
        rows = self.random_rows(len(self.thumbnails))
        small = step < self.config.small_share * self.steps
        augment = replace(self.augment, size=self.config.small_side) if small else self.augment
        x, turns = augment(self.thumbnails.images[rows])
        x = x.contiguous(memory_format=torch.channels_last)
        with mixed_precision(self.device):
            classes, turned = self.model(x, augment.size)
        error = F.cross_entropy(classes.float(), self.thumbnails.labels[rows])
        return error + F.cross_entropy(turned.float(), turns)

    def scores(self, model: nn.Module) -> dict[str, float]:
        assert isinstance(model, ClassAndTurn)
        model.eval()
        with torch.no_grad(), mixed_precision(self.device):
            x = self.thumbnails.held.permute(0, 3, 1, 2).float() / 255
            named = torch.cat([model(part)[0].argmax(1) for part in torch.split(x, 256)])
        found = {"held": float((named == self.thumbnails.held_labels).float().mean())}
        if self.look is not None and self.step >= self.steps_per_epoch - 1:  # not while steps are counted
            found.update(self.look(model, self.step + 1))
        return found

    def facts(self) -> dict[str, Any]:
        return {"data": self.thumbnails.facts()}

    def optimizer(self) -> torch.optim.Optimizer:
        return self.sgd(self.model)
