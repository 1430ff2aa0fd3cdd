"""One vector per image, out of whatever a network gives."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from onesdaug.errors import ConfigError

# Where a transformers ModelOutput keeps the one vector per image: the first of these it has is taken.
FIELDS = ("logits", "image_embeds", "pooler_output", "last_hidden_state")


def as_vectors(raw: Any, rows: int, who: str = "the model", how: str = "") -> Tensor:
    """What a network gave as (N, C): a tensor, an array, a list of N vectors, or a field of a ModelOutput."""
    name = type(raw).__name__
    found: Any = raw
    if isinstance(raw, Mapping):
        field = next((f for f in FIELDS if raw.get(f) is not None), None)
        name, found = f"{name}.{field}", raw[field] if field else None
        if field == "last_hidden_state" and found.ndim == 3:
            found = found[:, 0]  # the CLS token; models without one need output=
    elif isinstance(raw, list | tuple):
        vectors = [torch.as_tensor(r) for r in raw if isinstance(r, Tensor | np.ndarray | list)]
        alike = len(vectors) == len(raw) == rows and len({tuple(v.shape) for v in vectors}) == 1
        found = torch.stack(vectors) if alike else None
    if isinstance(found, Tensor | np.ndarray):
        matrix = torch.as_tensor(found)
        while matrix.ndim > 2 and matrix.shape[-1] == 1:  # pooled maps, (N, C, 1, 1)
            matrix = matrix.squeeze(-1)
        if matrix.ndim == 2 and len(matrix) == rows:
            return matrix if matrix.is_floating_point() else matrix.float()
        name = f"{name} of shape {tuple(matrix.shape)}"
    raise ConfigError(f"{who} must give one vector per image, ({rows}, C), but gave {name}{how}")
