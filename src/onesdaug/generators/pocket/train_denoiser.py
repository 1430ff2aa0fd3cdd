"""Stages 3 and 4 of the pocket recipe: the denoiser with its tokens, and the perceptual polish.

Latents and condition features of a few crops of every image are computed once and stay on the device: a step is
nothing but gathers and the denoiser.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from onesdaug.data.dataset import Dataset
from onesdaug.data.pixels import on_device
from onesdaug.generators.pocket.condition import SlimRes12, feature_distance, measure
from onesdaug.generators.pocket.networks import Autoencoder, Denoiser, Tokens
from onesdaug.generators.pocket.recipe import DenoiserConfig
from onesdaug.generators.pocket.train_stage import PocketStage
from onesdaug.generators.schedule import Schedule
from onesdaug.training.augment import DeviceAugment
from onesdaug.training.stage import mixed_precision


class CropTable:
    """Of each image, latents of `target_views` crops and condition features of `condition_views` other crops."""

    def __init__(
        self,
        train: Dataset,
        autoencoder: Autoencoder,
        condition: nn.Module,
        size: int,
        target_views: int,
        condition_views: int,
        device: torch.device,
        chunk: int = 512,
    ) -> None:
        images = on_device(train.images, device)
        self.labels = torch.from_numpy(train.labels).to(device)
        count = int(torch.bincount(self.labels).min())
        order = torch.argsort(self.labels, stable=True)
        # row c: as many images of class c as the smallest class has
        starts = torch.searchsorted(self.labels[order], torch.arange(train.n_classes, device=device))
        self.members = order[starts[:, None] + torch.arange(count, device=device)]
        targets = DeviceAugment(size, crop_scale=(0.5, 1.0), crop_ratio=(0.85, 1.18), jitter=0.0)
        conditions = DeviceAugment(size, crop_scale=(0.6, 1.0), crop_ratio=(0.85, 1.18), jitter=0.0)
        self.latents = self._each(images, targets, target_views, chunk, lambda x: (autoencoder.encode(x),))[0]
        self.whole, self.local = self._each(
            images, conditions, condition_views, chunk, lambda x: measure(condition, x)
        )  # fmt: skip

    @staticmethod
    @torch.no_grad()
    def _each(
        images: Tensor, augment: DeviceAugment, views: int, chunk: int, of: Callable[[Tensor], Sequence[Tensor]]
    ) -> list[Tensor]:
        """(N, views, …) half-precision tensors, one per output of `of`."""
        made: list[list[Tensor]] = []
        for _ in range(views):
            parts = []
            for rows in torch.split(images, chunk):
                with mixed_precision(images.device):
                    parts.append([out.half() for out in of(augment(rows)[0])])
            made.append([torch.cat(column) for column in zip(*parts, strict=True)])
        return [torch.stack(column, dim=1) for column in zip(*made, strict=True)]

    def set_statistics(self, tokens: Tokens) -> None:
        """Condition features leave the encoder standardised by the base classes' mean and deviation."""
        for name, values in (("g", self.whole[:, 0]), ("l", self.local[:: max(1, len(self.local) // 4096), 0])):
            flat = values.reshape(-1, values.shape[-1]).float()
            getattr(tokens, f"mean_{name}").copy_(flat.mean(0))
            getattr(tokens, f"std_{name}").copy_(flat.std(0) + 1e-3)


class ConditionedDenoiser(nn.Module):
    """The denoiser and what makes its tokens: they are trained together."""

    def __init__(self, denoiser: Denoiser, tokens: Tokens) -> None:
        super().__init__()
        self.denoiser, self.tokens = denoiser, tokens

    def forward(
        self, z: Tensor, t: Tensor, whole: Tensor, local: Tensor, same: Tensor, dropped: Tensor,
        told: Tensor | None = None,
    ) -> Tensor:  # fmt: skip
        tokens = self.tokens(whole, local, same)
        tokens = torch.where(dropped[:, None, None], self.tokens.null.to(tokens.dtype), tokens)
        out: Tensor = self.denoiser(z, t, tokens, told)
        return out


class DenoiserStage(PocketStage):
    """The loss of one step: ||v − v_theta(z_t, t, c)||², and in the polish the feature distance of its x0."""

    config: DenoiserConfig

    def __init__(
        self, config: DenoiserConfig, model: ConditionedDenoiser, table: CropTable, autoencoder: Autoencoder,
        encoder: SlimRes12, device: torch.device,
    ) -> None:  # fmt: skip
        super().__init__(config, device)
        self.table = table
        self.model = model.to(device)
        self.autoencoder = autoencoder.to(device).eval().requires_grad_(False)
        self.encoder = encoder.to(device).eval().requires_grad_(False)
        abar = torch.from_numpy(Schedule.scaled_linear().abar).to(device, torch.float32)
        self.signal, self.noise = abar.sqrt(), (1 - abar).sqrt()

    def loss(self, step: int) -> Tensor:
        c, table, pick = self.config, self.table, self.random_rows
        rows = pick(len(table.latents))
        z0 = table.latents[rows, pick(c.target_views)].float()
        coin = torch.rand(c.batch, device=self.device)
        dropped, same = coin < c.dropped, (coin >= c.dropped) & (coin < c.dropped + c.same_class)
        other = table.members[table.labels[rows], pick(table.members.shape[1])]
        source, crop = torch.where(same, other, rows), pick(c.condition_views)
        whole, local = table.whole[source, crop].float(), table.local[source, crop].float()
        t = pick(len(self.signal))
        signal, noise = (root[t][:, None, None, None] for root in (self.signal, self.noise))
        eps = torch.randn_like(z0)
        z = signal * z0 + noise * eps
        with mixed_precision(self.device):
            v = self.model(z, t, whole, local, same, dropped).float()
        loss = F.mse_loss(v, signal * eps - noise * z0)
        if c.perceptual:
            few = slice(0, c.perceptual_rows)
            with mixed_precision(self.device):
                got, want = drawn_alike(self.autoencoder, (signal * z - noise * v)[few], z0[few])
                loss = loss + c.perceptual * feature_distance(self.encoder, got, want)
        return loss

    def optimizer(self) -> torch.optim.Optimizer:
        c = self.config
        return decayed_matrices(self.model, c.lr, c.weight_decay, self.device)


def drawn_alike(autoencoder: Autoencoder, made: Tensor, real: Tensor) -> tuple[Tensor, Tensor]:
    """The pictures of two batches of latents, both cut and mirrored alike, by chance: noise which fools an encoder at
    one place does not pay."""
    with torch.no_grad():
        want = autoencoder.decode(real)
    got = autoencoder.decode(made)
    side = got.shape[-1]
    left, top = (int(i) for i in torch.randint(side // 12 + 1, (2,)))  # on the host: nothing waits
    size, mirrored = side - side // 12, bool(torch.rand(()) < 0.5)
    got, want = (x[..., top : top + size, left : left + size] for x in (got, want))
    got, want = (x.flip(-1) if mirrored else x for x in (got, want))
    return got, want


def decayed_matrices(model: nn.Module, lr: float, weight_decay: float, device: torch.device) -> torch.optim.AdamW:
    """AdamW that lets matrices decay, and nothing else."""
    matrices = [p for p in model.parameters() if p.ndim > 1]
    rest = [p for p in model.parameters() if p.ndim <= 1]
    groups = [{"params": matrices, "weight_decay": weight_decay, "lr": lr},
              {"params": rest, "weight_decay": 0.0, "lr": lr}]  # fmt: skip
    return torch.optim.AdamW(groups, lr=lr, betas=(0.9, 0.99), fused=device.type == "cuda")
