"""Stage 1 of the pocket recipe: the condition encoder, a slim Res12 that classifies the base classes.

It is asked which way an image was turned, too: what answers that knows more than the base classes need.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from onesdaug.data.dataset import Dataset
from onesdaug.data.pixels import on_device
from onesdaug.generators.pocket.condition import SlimRes12
from onesdaug.generators.pocket.recipe import StageConfig
from onesdaug.generators.pocket.train_stage import PocketStage
from onesdaug.training.augment import DeviceAugment
from onesdaug.training.stage import mixed_precision


class ClassAndTurn(nn.Module):
    """The encoder with one linear layer over the base classes and one over the four quarter turns."""

    def __init__(self, encoder: SlimRes12, n_classes: int) -> None:
        super().__init__()
        self.encoder = encoder
        dim = encoder.network.dim
        self.classes, self.turns = nn.Linear(dim, n_classes), nn.Linear(dim, 4)

    def forward(self, x: Tensor, side: int | None = None) -> tuple[Tensor, Tensor]:
        features, _ = self.encoder(x, side)
        return self.classes(features), self.turns(features)


class ConditionStage(PocketStage):
    model: ClassAndTurn

    def __init__(self, config: StageConfig, encoder: SlimRes12, train: Dataset, device: torch.device) -> None:
        super().__init__(config, device)
        self.images = on_device(train.images, device)
        self.labels = torch.from_numpy(train.labels).to(device)
        self.model = ClassAndTurn(encoder, train.n_classes).to(device)
        self.model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.augment = DeviceAugment(encoder.side, rotate=0.5)

    def loss(self, step: int) -> Tensor:
        self.model.encoder.network.anneal(2 * step / self.steps)  # DropBlock comes in slowly
        rows = self.random_rows(len(self.images))
        images, turns = self.augment(self.images[rows])
        with mixed_precision(self.device):
            classes, turned = self.model(images.contiguous(memory_format=torch.channels_last))
        loss: Tensor = F.cross_entropy(classes.float(), self.labels[rows], label_smoothing=0.1)
        return loss + F.cross_entropy(turned.float(), turns)

    def optimizer(self) -> torch.optim.Optimizer:
        return self.sgd(self.model)
