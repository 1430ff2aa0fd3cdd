"""The autoencoder of a generator of photographs, in two stages.

`autoencoder` learns to give every pixel back, with a little perceptual pressure. `decoder` leaves the latents as they
are and teaches the decoder alone to draw texture, against a discriminator.

What is asked for beside the pixels' absolute error takes a set share of its gradient, measured on the picture itself:
a share needs no tuning when networks or crops change, and no term can take over.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from onesdaug.generators.pocket.condition import EfficientLite, SlimRes12, feature_distance
from onesdaug.generators.pocket.deep import DeepAutoencoder, Discriminator
from onesdaug.generators.pocket.photographs import Photographs, floats
from onesdaug.generators.pocket.recipe import AutoencoderConfig
from onesdaug.generators.pocket.thumbnails import Thumbnails
from onesdaug.generators.pocket.train_stage import PocketStage
from onesdaug.training.stage import mixed_precision

KL = 3e-3  # for each number of the latent on average
COARSE, COARSE_ROWS = 0.1, 0.25  # weight of the halved latent's picture, and the share of rows it is drawn for


def shared(made: Tensor, error: Tensor, others: list[tuple[float, Tensor]]) -> Tensor:
    """The error's value; its gradient has those of the others added, each as long as its share of the error's own."""
    (own,) = torch.autograd.grad(error, made, retain_graph=True)
    total = own
    for share, other in others:
        (gradient,) = torch.autograd.grad(other, made, retain_graph=True)
        total = total + gradient * (share * own.norm() / gradient.norm().clamp(min=1e-12))
    pull = (made * total).sum()
    return error.detach() + pull - pull.detach()


class PhotoAutoencoderStage(PocketStage):
    """The loss of one step; `scores` is the PSNR of the photographs held out."""

    config: AutoencoderConfig
    model: nn.Module
    autoencoder: DeepAutoencoder

    def __init__(
        self, config: AutoencoderConfig, autoencoder: DeepAutoencoder, encoder: EfficientLite | SlimRes12,
        photographs: Photographs | Thumbnails, device: torch.device,
    ) -> None:  # fmt: skip
        super().__init__(config, device)
        self.photographs = photographs
        self.model = self.autoencoder = autoencoder.to(device, memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.encoder = encoder.to(device, memory_format=torch.channels_last).eval().requires_grad_(False)  # type: ignore[call-overload]
        self.posterior: Any = autoencoder.posterior
        self.decode: Any = autoencoder.decode
        self.distance: Any = feature_distance

    def pictures(self) -> Tensor:
        return self.photographs.pictures(self.config.batch, self.config.crop)

    def loss(self, step: int) -> Tensor:
        x = self.pictures()
        few = x[-max(1, int(COARSE_ROWS * len(x))) :]
        with mixed_precision(self.device):
            mean, logvar = self.posterior(x)
            z = mean + (0.5 * logvar).exp() * torch.randn_like(mean)
            made = self.decode(z)
            # what the halved latent draws is the halved picture: latents without fine noise are easier to denoise
            halved = self.autoencoder.decode(F.avg_pool2d(z[-len(few) :], 2))
            perceptual = self.distance(self.encoder, made, x)
        error = (made.float() - x).abs().mean()
        kl = 0.5 * (mean.square() + logvar.exp() - 1 - logvar).mean()
        coarse = (halved.float() - F.avg_pool2d(few, 2)).abs().mean()
        loss: Tensor = shared(made, error, [(self.config.perceptual, perceptual)]) + KL * kl + COARSE * coarse
        return loss

    def scores(self, model: nn.Module) -> dict[str, float]:
        assert isinstance(model, DeepAutoencoder)
        return {"psnr": psnr(model, self.photographs.held)}

    def optimizer(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(
            self.model.parameters(), lr=self.config.lr, betas=(0.9, 0.99), weight_decay=self.config.weight_decay,
            fused=self.device.type == "cuda",
        )  # fmt: skip

    def compile(self) -> None:
        """Steps from compiled networks. Worth it from some minutes of training on: compiling takes one or two."""
        self.posterior, self.decode, self.distance = (
            torch.compile(function, dynamic=False) for function in (self.posterior, self.decode, self.distance)
        )

    @torch.no_grad()
    def finish(self) -> None:
        """Latents of mean 0 and variance 1 in every channel are what the noise schedule expects."""
        model, images = self.autoencoder, self.photographs.images
        rows = torch.randperm(len(images), device=self.device)[:2048]
        z = torch.cat([model.posterior(floats(images[part]))[0] for part in torch.split(rows, 64)])
        model.shift.copy_(z.mean((0, 2, 3)))
        model.scale.copy_(1 / z.std((0, 2, 3)).clamp(min=1e-4))


class Contest(nn.Module):
    """The autoencoder and its discriminator, which are trained at once."""

    def __init__(self, autoencoder: DeepAutoencoder) -> None:
        super().__init__()
        self.autoencoder, self.discriminator = autoencoder, Discriminator()


class DecoderStage(PhotoAutoencoderStage):
    """Sharper pictures of the same latents: only the decoder learns, and the discriminator beside it."""

    model: Contest

    def __init__(
        self, config: AutoencoderConfig, autoencoder: DeepAutoencoder, encoder: EfficientLite | SlimRes12,
        photographs: Photographs | Thumbnails, device: torch.device,
    ) -> None:  # fmt: skip
        super().__init__(config, autoencoder, encoder, photographs, device)
        self.model = Contest(self.autoencoder).to(device, memory_format=torch.channels_last)  # type: ignore[call-overload]

    def loss(self, step: int) -> Tensor:
        x, judge = self.pictures(), self.model.discriminator
        with mixed_precision(self.device):
            with torch.no_grad():
                z = self.autoencoder.encode(x)
            made = self.decode(z)
            perceptual = self.distance(self.encoder, made, x)
            fixed = {name: value.detach() for name, value in judge.named_parameters()}
            fooled = -torch.func.functional_call(judge, fixed, (2 * made - 1,)).float().mean()
            real, drawn = judge(torch.cat([2 * x - 1, 2 * made.detach() - 1])).float().chunk(2)
        judged = F.relu(1 - real).mean() + F.relu(1 + drawn).mean()
        error = (made.float() - x).abs().mean()
        c = self.config
        # while the judge knows nothing, its opinion is noise
        adversarial = c.adversarial * min(1.0, step / (0.1 * self.steps))
        return shared(made, error, [(c.perceptual, perceptual), (adversarial, fooled)]) + judged

    def scores(self, model: nn.Module) -> dict[str, float]:
        assert isinstance(model, Contest)
        return super().scores(model.autoencoder)

    def optimizer(self) -> torch.optim.Optimizer:
        """The judge learns at the same rate, with less memory: what it judges changes."""
        drawing = [*self.autoencoder.decoder.parameters(), *self.autoencoder.draw.parameters()]
        groups: list[dict[str, Any]] = [
            {"params": drawing, "betas": (0.9, 0.99)},
            {"params": self.model.discriminator.parameters(), "betas": (0.5, 0.9)},
        ]
        return torch.optim.AdamW(
            groups, lr=self.config.lr, weight_decay=self.config.weight_decay, fused=self.device.type == "cuda"
        )

    def finish(self) -> None:
        """The latents are as they were."""


@torch.no_grad()
def psnr(model: DeepAutoencoder, images: Tensor) -> float:
    """Mean over the pictures, of whole pictures, in decibels."""
    errors = [(model.decode(model.encode(x)).clamp(0, 1) - x).square().mean((1, 2, 3)) for x in _batches(images)]
    return float(-10 * torch.cat(errors).clamp(min=1e-10).log10().mean())


def _batches(images: Tensor) -> list[Tensor]:
    return [floats(part) for part in torch.split(images, 50)]
