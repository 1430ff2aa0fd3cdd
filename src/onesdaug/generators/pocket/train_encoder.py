"""The encoders of a `pocket` generator: a wide Res12 learns from pictures, and teaches the one that is kept.

The wide one is not shipped; it also judges what is drawn. Agreeing with its answers and, place by place, with its
features tells the smaller one more of a picture than the name of its class does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from onesdaug.generators.pocket.condition import SlimRes12
from onesdaug.generators.pocket.recipe import EncoderConfig
from onesdaug.generators.pocket.thumbnails import Thumbnails
from onesdaug.generators.pocket.train_condition import ClassAndTurn
from onesdaug.generators.pocket.train_stage import PocketStage
from onesdaug.training.augment import DeviceAugment
from onesdaug.training.stage import mixed_precision

Look = Callable[[Any, int], dict[str, float]]


class Learner(ClassAndTurn):
    """An encoder with its two questions, and for one that is taught a linear map to its teacher's features."""

    def __init__(self, encoder: SlimRes12, n_classes: int, teacher_dim: int = 0) -> None:
        super().__init__(encoder, n_classes)
        self.match = nn.Linear(encoder.network.dim, teacher_dim) if teacher_dim else None

    def looks(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Logits of classes and of turns, and the features of the whole and of its places (B, 1 + places, d)."""
        whole, local = self.encoder(x)
        return self.classes(whole), self.turns(whole), torch.cat([whole[:, None], local], dim=1)


class EncoderStage(PocketStage):
    """`scores` is the share of held-out pictures whose class is named right; `look` is called as in the denoiser's."""

    config: EncoderConfig
    model: Learner
    validations = 8

    def __init__(
        self, config: EncoderConfig, model: Learner, thumbnails: Thumbnails, device: torch.device,
        teacher: Learner | None = None, look: Look | None = None,
    ) -> None:  # fmt: skip
        super().__init__(config, device)
        self.thumbnails, self.teacher, self.look, self.step = thumbnails, teacher, look, 0
        self.model = model.to(device, memory_format=torch.channels_last).requires_grad_(True)  # type: ignore[call-overload]
        self.augment = DeviceAugment(model.encoder.side, rotate=0.5)

    def loss(self, step: int) -> Tensor:
        self.step = step
        self.model.encoder.network.anneal(2 * step / self.steps)  # DropBlock comes in slowly
        rows = self.random_rows(len(self.thumbnails))
        x, turns = self.augment(self.thumbnails.images[rows])
        x = x.contiguous(memory_format=torch.channels_last)
        with mixed_precision(self.device):
            classes, turned, features = self.model.looks(x)
            error = F.cross_entropy(classes.float(), self.thumbnails.labels[rows])
            error = error + F.cross_entropy(turned.float(), turns)
            if self.teacher is None or self.model.match is None:
                return error
            with torch.no_grad():
                wanted = self.teacher.looks(x)
            places = self.model.match(features).float()
        c = self.config
        agreed = _answers(classes, wanted[0], c.temperature) + _answers(turned, wanted[1], c.temperature)
        apart = 1 - F.cosine_similarity(places, wanted[2].float(), dim=-1)
        # the whole counts as much as all places together
        agreed = agreed + c.features * (apart[:, 0].mean() + apart[:, 1:].mean())
        return (1 - c.taught) * error + c.taught * agreed

    def scores(self, model: nn.Module) -> dict[str, float]:
        assert isinstance(model, Learner)
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


def _answers(mine: Tensor, wanted: Tensor, temperature: float) -> Tensor:
    """How far these logits are from the teacher's, softened; as steep as a cross entropy whatever the temperature."""
    goal = (wanted.float() / temperature).softmax(1)
    return temperature**2 * F.kl_div((mine.float() / temperature).log_softmax(1), goal, reduction="batchmean")
