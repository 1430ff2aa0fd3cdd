"""Any transformers vision model as an encoder: ViT-Small, Swin-Tiny, or another hub id or local folder.

The preprocessing is read from the model's own processor file and done on tensors, so no torchvision is needed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from onesdaug.common.hub import find, how_to_get, loading, needs_extra
from onesdaug.encoders.base import Encoder
from onesdaug.encoders.preprocess import IMAGENET_MEAN, IMAGENET_STD, Preprocess
from onesdaug.errors import ConfigError

# The paper's ViTSmall and SwinTiny, "pretrained on ImageNet-1k"; it names no checkpoint. This ViT was converted from
# timm, whose weights of that name had seen ImageNet-21k before they were tuned on ImageNet-1k.
ALIASES = {"vit-small": "WinKawaks/vit-small-patch16-224", "swin-tiny": "microsoft/swin-tiny-patch4-window7-224"}
_RESAMPLE = {2: "bilinear", 3: "bicubic"}  # PIL's numbers, as processor files write them


class Pooled(nn.Module):
    """The model's own pooled output (ViT: the normalised class token; Swin: the mean of the last map)."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> Tensor:
        out = self.model(pixel_values=x)
        kind = getattr(getattr(self.model, "config", None), "model_type", "")
        if kind in ("vit", "deit") or getattr(out, "pooler_output", None) is None:
            # ViT's pooler is a tanh layer that ImageNet classifiers do not have: it would be random
            hidden: Tensor = out.last_hidden_state
            return hidden[:, 0] if hidden.ndim == 3 else hidden.mean((2, 3))
        pooled: Tensor = out.pooler_output
        return pooled.flatten(1)


def load_hub(model_id: str) -> Encoder:
    """Load from a local folder or the hub; WeightsMissing says how to get what is not there."""
    try:
        from transformers import AutoModel
    except ImportError as error:
        raise needs_extra(f"the encoder {model_id}") from error

    model_id = ALIASES.get(model_id, model_id)
    accepted = "vit-small, swin-tiny, or hf: with a folder in transformers format or a hub id"
    folder = find(model_id, "encoder", accepted, ("*.json", "*.safetensors", "*.bin"), download=True)
    with loading(model_id, how_to_get(model_id), kind="a vision model"):
        model = AutoModel.from_pretrained(folder)
        processor = folder / "preprocessor_config.json"
        described = from_processor(json.loads(processor.read_bytes()) if processor.is_file() else {})
    return Encoder(Pooled(model), described, None, f"hf:{model_id}")


def from_processor(described: Mapping[str, Any]) -> Preprocess:
    """A processor file as a Preprocess: sizes come as a number, {height, width} or {shortest_edge}."""
    size, squash = described.get("size", 224), False
    if isinstance(size, Mapping):
        squash = "shortest_edge" not in size
        resize = int(size.get("shortest_edge", size.get("height", 224)))
        if squash and size.get("height") != size.get("width"):
            raise ConfigError(f"only square inputs are supported; the processor wants {dict(size)}")
    else:
        resize, squash = int(size), True
    crop = resize  # also where a short side alone leaves images of different widths: take the centre
    if described.get("do_center_crop"):
        wanted = described.get("crop_size", resize)
        crop = int(wanted["height"] if isinstance(wanted, Mapping) else wanted)
    if "crop_pct" in described and crop == resize:  # ConvNeXt's way of writing resize 256, crop 224
        resize = int(crop / float(described["crop_pct"]))
        squash = False
    mean, std = described.get("image_mean", IMAGENET_MEAN), described.get("image_std", IMAGENET_STD)
    if described.get("do_normalize") is False:
        mean, std = (0.0, 0.0, 0.0), (1.0, 1.0, 1.0)
    interpolation = _RESAMPLE.get(int(described.get("resample", 2)), "bilinear")
    return Preprocess.from_dict(
        {"resize": resize, "crop": crop, "mean": mean, "std": std, "squash": squash, "interpolation": interpolation}
    )
