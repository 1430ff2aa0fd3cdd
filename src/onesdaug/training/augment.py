"""Training augmentation on the device: whole uint8 batches that already lie in its memory.

One affine grid does the random resized crop, the flip, turns and shears in a single resampling; colours and the rest
follow in place. Every random number is drawn as a tensor on the device, so nothing waits for the host.
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
    warp: float = 0.0  # turned, and sheared along each axis, by up to this part of 45 degrees
    edits: float = 0.0  # probability of one more edit, see `_edited`
    erase: float = 0.0  # probability that noise stands in the place of a rectangle

    def __call__(self, batch: Tensor) -> tuple[Tensor, Tensor]:
        n, device = len(batch), batch.device
        images = batch.permute(0, 3, 1, 2).float().div_(255)
        theta, turns = self._affine(n, images.shape[-1] / images.shape[-2], device)
        grid = F.affine_grid(theta, [n, 3, self.size, self.size], align_corners=False)
        out = F.grid_sample(images, grid, mode="bilinear", padding_mode="reflection", align_corners=False)
        out = self._colour(out) if self.jitter else out
        out = _edited(out, self.edits) if self.edits else out
        return (_erased(out, self.erase) if self.erase else out), turns

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
        if self.warp:
            theta[:, :, :2] = theta[:, :, :2] @ self._warped(n, device)
        return theta, turns

    def _warped(self, n: int, device: torch.device) -> Tensor:
        angle, *shears = torch.empty(3, n, device=device).uniform_(-self.warp, self.warp).mul_(math.pi / 4)
        cos, sin = angle.cos(), angle.sin()
        across, down = (shear.tan() / 2 for shear in shears)
        turned = torch.stack([cos, -sin, sin, cos], dim=1).view(n, 2, 2)
        one = torch.ones_like(angle)
        return turned @ torch.stack([one, across, down, one], dim=1).view(n, 2, 2)

    def _colour(self, x: Tensor) -> Tensor:
        """Brightness, contrast, saturation in this order; each blends with black, mean grey, own grey."""
        factor = torch.empty(3, len(x), 1, 1, 1, device=x.device).uniform_(1 - self.jitter, 1 + self.jitter)
        weights = _grey_weights(x.device)
        x = (x * factor[0]).clamp_(0, 1)
        mean = (x * weights).sum(1, keepdim=True).mean((2, 3), keepdim=True)
        x = torch.lerp(mean.expand_as(x), x, factor[1].expand_as(x)).clamp_(0, 1)
        grey = (x * weights).sum(1, keepdim=True)
        return torch.lerp(grey.expand_as(x), x, factor[2].expand_as(x)).clamp_(0, 1)


def _edited(x: Tensor, share: float) -> Tensor:
    """One of five edits of RandAugment's, on this share of the pictures.

    Bright values inverted, few levels, grey, sharper or blurred, or stretched to the whole range.
    """
    chosen = torch.randint(0, 5, (len(x), 1, 1, 1), device=x.device)
    chosen = torch.where(torch.rand(len(x), 1, 1, 1, device=x.device) < share, chosen, -1)
    amount = torch.rand(len(x), 1, 1, 1, device=x.device)
    levels = 3 + (5 * amount).floor()
    low, high = x.amin((1, 2, 3), keepdim=True), x.amax((1, 2, 3), keepdim=True)
    blurred = F.avg_pool2d(x, 3, 1, 1, count_include_pad=False)
    made = (
        torch.where(x >= 0.4 + 0.6 * amount, 1 - x, x),
        (x * levels).round() / levels,
        (x * _grey_weights(x.device)).sum(1, keepdim=True).expand_as(x),
        torch.lerp(blurred, x, 2.5 * amount).clamp_(0, 1),
        (x - low) / (high - low).clamp(min=1e-3),
    )
    for number, edit in enumerate(made):
        x = torch.where(chosen == number, edit, x)
    return x


def _erased(x: Tensor, share: float) -> Tensor:
    area = torch.empty(len(x), device=x.device).uniform_(0.02, 0.3)
    ratio = torch.empty(len(x), device=x.device).uniform_(-1.2, 1.2).exp_()
    hit = torch.rand(len(x), 1, 1, 1, device=x.device) < share
    return torch.where(_box(area, ratio, *x.shape[-2:]) & hit, torch.rand_like(x), x)


def mixed(images: Tensor, share: float) -> tuple[Tensor, Tensor]:
    """Mix this share of (B,3,H,W) with the picture before each: half of them blended, half with a piece of it.

    Returns the pictures and how much of each is its own, (B,). Mixup (Zhang et al., 2018) and CutMix (Yun et al.,
    2019), each picture by itself.
    """
    n, (height, width), device = len(images), images.shape[-2:], images.device
    chance, blend = torch.rand(2, n, 1, 1, 1, device=device)
    keep = torch.where(chance < share / 2, blend, torch.ones_like(chance))
    piece = _box(torch.rand(n, device=device), torch.ones(n, device=device), height, width)
    cut = ((chance >= share / 2) & (chance < share)) & piece
    weight = torch.where(cut, torch.zeros_like(keep), keep)
    return torch.lerp(images.roll(1, 0), images, weight.to(images.dtype)), weight.mean((1, 2, 3))


def _box(area: Tensor, ratio: Tensor, height: int, width: int) -> Tensor:
    """(B,1,H,W) truth values: a rectangle of this share of the area and this aspect, somewhere; edges cut it off."""
    n, device = len(area), area.device
    wide, high = (area * ratio).sqrt() * width, (area / ratio).sqrt() * height
    across = (torch.arange(width, device=device) + 0.5)[None] - torch.rand(n, 1, device=device) * width
    down = (torch.arange(height, device=device) + 0.5)[None] - torch.rand(n, 1, device=device) * height
    return ((down.abs() < high[:, None] / 2)[:, :, None] & (across.abs() < wide[:, None] / 2)[:, None])[:, None]
