"""Training augmentation on the device: whole uint8 batches that already lie in its memory.

One affine grid does the random resized crop, the flip and the quarter turns in a single resampling; colour
jitter follows in place. Every random number is drawn as a tensor on the device, so nothing waits for the host.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor


@functools.cache
def _grey_weights(device: torch.device) -> Tensor:
    """Luma of RGB, (1,3,1,1); copied to the device once, because every copy would make the host wait."""
    return torch.tensor([0.299, 0.587, 0.114], device=device).view(1, 3, 1, 1)


@dataclass(frozen=True)
class DeviceAugment:
    """`augment(batch)`: (B,H,W,3) uint8 → (B,3,size,size) float in [0,1] and the quarter turns, (B,) int64."""

    size: int = 84
    crop_scale: tuple[float, float] = (0.2, 1.0)  # share of the area, as RandomResizedCrop
    crop_ratio: tuple[float, float] = (3 / 4, 4 / 3)
    flip: bool = True
    jitter: float = 0.4  # brightness, contrast and saturation, each in 1 ± jitter
    rotate: float = 0.0  # probability of a quarter turn (90, 180 or 270 degrees, equally likely)

    def __call__(self, batch: Tensor) -> tuple[Tensor, Tensor]:
        n, device = len(batch), batch.device
        images = batch.permute(0, 3, 1, 2).float().div_(255)
        theta, turns = self._affine(n, images.shape[-1] / images.shape[-2], device)
        grid = F.affine_grid(theta, [n, 3, self.size, self.size], align_corners=False)
        out = F.grid_sample(images, grid, mode="bilinear", padding_mode="reflection", align_corners=False)
        return (self._colour(out) if self.jitter else out), turns

    def _affine(self, n: int, aspect: float, device: torch.device) -> tuple[Tensor, Tensor]:
        """Output → input coordinates: turn, flip, shrink to the crop, move to where the crop lies."""
        area = torch.empty(n, device=device).uniform_(*self.crop_scale)
        low, high = math.log(self.crop_ratio[0]), math.log(self.crop_ratio[1])
        ratio = torch.empty(n, device=device).uniform_(low, high).exp_()
        wide = (area * ratio / aspect).sqrt().clamp_(max=1)  # crop width and height as shares of the image
        high_ = (area / ratio * aspect).sqrt().clamp_(max=1)
        shift = torch.empty(2, n, device=device).uniform_(-1, 1)
        sign = torch.ones(n, device=device)
        if self.flip:
            sign = 1 - 2 * torch.randint(0, 2, (n,), device=device).float()
        turns = torch.zeros(n, dtype=torch.int64, device=device)
        if self.rotate:
            turned = torch.rand(n, device=device) < self.rotate
            turns = torch.randint(1, 4, (n,), device=device) * turned
        cos = (turns == 0).float() - (turns == 2).float()
        sin = (turns == 1).float() - (turns == 3).float()
        theta = torch.zeros(n, 2, 3, device=device)
        theta[:, 0, 0], theta[:, 0, 1] = wide * sign * cos, -wide * sign * sin
        theta[:, 1, 0], theta[:, 1, 1] = high_ * sin, high_ * cos
        theta[:, 0, 2], theta[:, 1, 2] = shift[0] * (1 - wide), shift[1] * (1 - high_)
        return theta, turns

    def _colour(self, x: Tensor) -> Tensor:
        """Brightness, contrast, saturation in this order; each blends with black, mean grey, own grey."""
        factor = torch.empty(3, len(x), 1, 1, 1, device=x.device).uniform_(1 - self.jitter, 1 + self.jitter)
        weights = _grey_weights(x.device)
        x = (x * factor[0]).clamp_(0, 1)
        mean = (x * weights).sum(1, keepdim=True).mean((2, 3), keepdim=True)
        x = torch.lerp(mean.expand_as(x), x, factor[1].expand_as(x)).clamp_(0, 1)
        grey = (x * weights).sum(1, keepdim=True)
        return torch.lerp(grey.expand_as(x), x, factor[2].expand_as(x)).clamp_(0, 1)
