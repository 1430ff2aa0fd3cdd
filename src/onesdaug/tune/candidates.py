"""What is tried: sources of views with their settings."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from onesdaug.augment.config import AugmentConfig, preset
from onesdaug.augment.operator import Augmenter
from onesdaug.augment.presets import PRESETS
from onesdaug.ensemble.sources import find_views
from onesdaug.fewshot.views import Views

NOISE, GUIDANCE, SCALE = (0.5, 0.7, 0.85, 0.95, 1.0), (2.0, 4.0, 8.0, 16.0), (0.7, 1.0)


@dataclass(frozen=True)
class Candidate:
    """A source of views; `config` holds a generator's settings, None means that the source has none."""

    source: str
    views: Views
    config: AugmentConfig | None = None

    @property
    def label(self) -> str:
        if self.config is None:
            return self.source
        c = self.config
        parts = [f"noise {c.noise_level:g}", f"guidance {c.guidance:g}", f"image scale {c.image_scale:g}"]
        parts += [c.mode] if c.mode else []
        return ", ".join([self.source, *parts, *([] if c.shape else ["no tweak"])])


def propose(sources: Sequence[str], count: int, device: torch.device, seed: int = 0) -> list[Candidate]:
    """Every source; of generators the presets made for them, then random settings, `count` for each generator."""
    found = []
    for source in sources:
        views = find_views(source, None, device)
        if isinstance(views, Augmenter) and views.generator is not None:
            for config in _settings(source, views, count, seed):
                drawn = Augmenter(views.generator, config)
                found.append(Candidate(source, Views(drawn, source, device), config))
        else:
            found.append(Candidate(source, Views(views, source, device)))
    return found


def _settings(source: str, views: Augmenter, count: int, seed: int) -> list[AugmentConfig]:
    generator = views.generator
    assert generator is not None
    named = [name for name in PRESETS if name.startswith(source)] or [generator.default_preset]
    first = [preset(name) for name in named]
    axes: dict[str, Sequence[Any]] = {
        "noise_level": NOISE, "guidance": GUIDANCE, "image_scale": SCALE, "mode": generator.modes or (None,),
        "shape": (first[0].shape, first[0].shape, None),  # mostly with the tweak
    }  # fmt: skip
    grid = [dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())]
    order = np.random.default_rng(seed).permutation(len(grid))
    drawn = (first[0].model_copy(update=grid[i]) for i in order)
    distinct = {config.digest(): config for config in itertools.chain(first, drawn)}
    return list(distinct.values())[:count]
