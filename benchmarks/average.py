"""Weight averaging: fine-tuned weights pulled back towards where they started (WiSE-FT, Wortsman et al., 2022)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torch import Tensor

from onesdaug.errors import ConfigError


def average(parts: Sequence[tuple[Mapping[str, Tensor], float]]) -> dict[str, Tensor]:
    """Σ share·weights, in float64; a tensor that not all parts have (a head) is averaged over those that do.

    Whole-number tensors (batch counters) are the first part's.
    """
    if not parts or any(share < 0 for _, share in parts) or sum(share for _, share in parts) <= 0:
        raise ConfigError("an average needs parts with shares that are not negative and not all zero")
    mixed: dict[str, Tensor] = {}
    for name in {name: None for tensors, _ in parts for name in tensors}:
        having = [(tensors[name], share) for tensors, share in parts if name in tensors and share > 0]
        if len({value.shape for value, _ in having}) > 1:
            raise ConfigError(f"{name} has different shapes: these checkpoints are not of one architecture")
        if not having:
            continue
        first = having[0][0]
        if first.is_floating_point():
            total = sum(share for _, share in having)
            first = sum((value.double() * (share / total) for value, share in having), first.double() * 0).to(first)
        mixed[name] = first
    return mixed
