"""ConvNet-4: the 64-d backbone of FEAT (113,088 parameters)."""

from __future__ import annotations

from torch import Tensor, nn

from onesdaug.encoders.base import Backbone
from onesdaug.encoders.preprocess import Preprocess


class ConvNet(Backbone):
    """Four times (3×3 conv 64, BN, ReLU, MaxPool 2), then MaxPool 5 over the 5×5 map: 64-d, not 1600-d."""

    dim = 64
    default_preprocess = Preprocess()  # ImageNet's mean and std

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        blocks: list[nn.Module] = []
        for channels in (3, width, width, width):
            convolution = nn.Conv2d(channels, width, 3, padding=1)
            blocks += [convolution, nn.BatchNorm2d(width), nn.ReLU(inplace=True), nn.MaxPool2d(2)]
        self.layers = nn.Sequential(*blocks)
        self.pool = nn.MaxPool2d(5)
        self.dim = width

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.pool(self.layers(x))
        return out.flatten(1)
