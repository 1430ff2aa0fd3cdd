"""A user's own network, named `package.module:function`."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import torch
from torch import nn

from onesdaug.encoders.base import Encoder
from onesdaug.encoders.preprocess import Preprocess
from onesdaug.errors import ConfigError


def load_custom(spec: str) -> Encoder:
    """Call the named function; it returns an Encoder, or a module with optional `preprocess` and `dim`."""
    from onesdaug.encoders.load import wrap

    where, _, name = spec.partition(":")
    here = str(Path.cwd())
    if here not in sys.path:  # a script's own folder counts, as with `python -m`
        sys.path.insert(0, here)
    try:
        function = getattr(importlib.import_module(where), name)
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"cannot load {spec!r}: {error}") from error
    made = function()
    if isinstance(made, Encoder):
        return made
    if not isinstance(made, nn.Module):
        raise ConfigError(f"{spec} returned {type(made).__name__}; want an Encoder or a torch.nn.Module")
    made.eval()
    preprocess = getattr(made, "preprocess", None)
    if not isinstance(preprocess, Preprocess):
        preprocess = Preprocess()
    dim = getattr(made, "dim", None)
    if not isinstance(dim, int):  # ask the network itself
        with torch.inference_mode():
            out = made(torch.zeros(1, 3, preprocess.crop, preprocess.crop))
        if out.ndim != 2:
            raise ConfigError(f"{spec} must map (B,3,H,W) to (B,d); it gave {tuple(out.shape)}")
        dim = int(out.shape[1])
    return wrap(made, preprocess, dim, spec)
