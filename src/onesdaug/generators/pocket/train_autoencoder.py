"""Stage 2 of the pocket recipe: the autoencoder, by absolute error, feature distance and a small KL term."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from onesdaug.data.dataset import Dataset
from onesdaug.data.pixels import on_device
from onesdaug.generators.pocket.condition import SlimRes12, feature_distance
from onesdaug.generators.pocket.networks import Autoencoder
from onesdaug.generators.pocket.recipe import StageConfig
from onesdaug.generators.pocket.train_stage import PocketStage
from onesdaug.training.augment import DeviceAugment
from onesdaug.training.stage import mixed_precision

PERCEPTUAL = 0.5
KL = 1e-6


class AutoencoderStage(PocketStage):
    model: Autoencoder

    def __init__(
        self, config: StageConfig, model: Autoencoder, encoder: SlimRes12, size: int, train: Dataset,
        device: torch.device,
    ) -> None:  # fmt: skip
        super().__init__(config, device)
        self.images = on_device(train.images, device)
        self.model = model.to(device)
        self.encoder = encoder.to(device).eval().requires_grad_(False)
        self.augment = DeviceAugment(size, crop_scale=(0.4, 1.0), jitter=0.15)

    def loss(self, step: int) -> Tensor:
        rows = self.random_rows(len(self.images))
        x = self.augment(self.images[rows])[0]
        with mixed_precision(self.device):
            mean, logvar = self.model.posterior(x)
            z = mean + (0.5 * logvar).exp() * torch.randn_like(mean)
            made = self.model.decode(z * self.model.scale)
            perceptual = feature_distance(self.encoder, made, x)
        kl = 0.5 * (mean.square() + logvar.exp() - 1 - logvar).sum((1, 2, 3)).mean()
        return (made.float() - x).abs().mean() + PERCEPTUAL * perceptual + KL * kl

    def scores(self, model: nn.Module) -> dict[str, float]:
        """PSNR of fixed images: a number to watch."""
        assert isinstance(model, Autoencoder)
        with torch.no_grad():
            step = max(1, len(self.images) // 256)
            x = self.images[::step][:256].permute(0, 3, 1, 2).float() / 255
            size = self.augment.size
            x = F.interpolate(x, (size, size), mode="bilinear", align_corners=False)
            error = (model.decode(model.encode(x)).clamp(0, 1) - x).square().mean((1, 2, 3))
            return {"psnr": float(-10 * error.log10().mean())}

    def optimizer(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(
            self.model.parameters(), lr=self.config.lr, betas=(0.9, 0.99), weight_decay=self.config.weight_decay,
            fused=self.device.type == "cuda",
        )  # fmt: skip

    @torch.no_grad()
    def finish(self) -> None:
        """Latents of unit variance are what the noise schedule expects."""
        model = self.model
        model.scale.fill_(1.0)
        rows = torch.randperm(len(self.images), device=self.device)[:2048]
        z = torch.cat([model.encode(self.augment(self.images[part])[0]) for part in torch.split(rows, 256)])
        model.scale.fill_(1.0 / float(z.std()))
