"""Res12: the 640-d residual backbone of FEAT (12,424,320 parameters), with DropBlock.

Four blocks of 64-160-320-640 channels, each three 3×3 convolutions with BN and LeakyReLU(0.1), a 1×1 shortcut,
MaxPool 2, and then dropout (blocks 1-2) or DropBlock of size 5 (blocks 3-4); the mean of the 5×5 map is the output.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from onesdaug.encoders.base import Backbone
from onesdaug.encoders.preprocess import RES12_MEAN, RES12_STD, Preprocess


class DropBlock(nn.Module):
    """Zeroes size×size squares (Ghiasi et al. 2018); `progress` in [0,1] brings the rate in slowly."""

    def __init__(self, rate: float, size: int = 5) -> None:
        super().__init__()
        self.rate, self.size, self.progress = rate, size, 1.0

    def forward(self, x: Tensor) -> Tensor:
        rate = self.rate * self.progress
        if not self.training or rate == 0:
            return x
        height, width = x.shape[-2:]
        size = min(self.size, height, width)
        # so many square corners that, with overlaps ignored, `rate` of the map is zero
        places = (height - size + 1) * (width - size + 1)
        gamma = rate * height * width / (size * size * places)
        shape = (len(x), x.shape[1], height - size + 1, width - size + 1)
        corners = torch.empty(shape, dtype=x.dtype, device=x.device, memory_format=torch.channels_last)
        corners.bernoulli_(gamma)
        dropped = F.max_pool2d(F.pad(corners, [size - 1] * 4), size, stride=1)
        keep = 1 - dropped
        # rescale so that the mean survives; the ratio stays on the device
        scale = keep.numel() / keep.sum(dtype=torch.float32).clamp(min=1)
        return x * keep * scale.to(x.dtype)


class ResidualBlock(nn.Module):
    """Three convolutions, a projected shortcut, pooling, and this block's way of dropping."""

    def __init__(self, inputs: int, width: int, drop: nn.Module) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, width, 3, padding=1, bias=False)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.conv3 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.bn1, self.bn2, self.bn3 = nn.BatchNorm2d(width), nn.BatchNorm2d(width), nn.BatchNorm2d(width)
        self.shortcut = nn.Sequential(nn.Conv2d(inputs, width, 1, bias=False), nn.BatchNorm2d(width))
        self.act = nn.LeakyReLU(0.1, inplace=True)
        self.pool = nn.MaxPool2d(2)
        self.drop = drop

    def forward(self, x: Tensor) -> Tensor:
        out = self.act(self.bn1(self.conv1(x)))
        out = self.act(self.bn2(self.conv2(out)))
        out = self.bn3(self.conv3(out))
        out = self.act(out + self.shortcut(x))
        dropped: Tensor = self.drop(self.pool(out))
        return dropped


class Res12(Backbone):
    dim = 640
    default_preprocess = Preprocess(mean=RES12_MEAN, std=RES12_STD)

    def __init__(
        self, widths: tuple[int, int, int, int] = (64, 160, 320, 640), drop_rate: float = 0.1, block_size: int = 5
    ) -> None:
        super().__init__()
        a, b, c, d = widths
        self.blocks = nn.Sequential(
            ResidualBlock(3, a, nn.Dropout(drop_rate)),
            ResidualBlock(a, b, nn.Dropout(drop_rate)),
            ResidualBlock(b, c, DropBlock(drop_rate, block_size)),
            ResidualBlock(c, d, DropBlock(drop_rate, block_size)),
        )
        self.dim = d
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="leaky_relu")

    def anneal(self, progress: float) -> None:
        """DropBlock's rate grows with training (FEAT: linearly over 40,000 batches); the trainer says how far."""
        for module in self.modules():
            if isinstance(module, DropBlock):
                module.progress = min(1.0, max(0.0, progress))

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.blocks(x)
        return out.mean((2, 3))
