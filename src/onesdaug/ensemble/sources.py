"""Where views come from: an Augmenter, a folder of stored views, plain geometry, or your own function.

`as_source` turns each of them into one `Source`; the ensemble knows nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch import Tensor

from onesdaug.augment.seeds import row_seeds
from onesdaug.augment.source import ViewSource, as_view_source, find_source
from onesdaug.common.own import calling
from onesdaug.common.registry import VIEWS
from onesdaug.errors import ConfigError, OnesdaugError

__all__ = ["Source", "ViewSource", "as_source", "find_views", "row_seeds"]


@dataclass(frozen=True)
class Source:
    """A view source that is asked with one seed for all, and whose answers are checked."""

    views: ViewSource

    def tensors(self, batch: Tensor, k: int, seed: int) -> Tensor:
        with calling(f"{self.views!r}, asked for {k} views of {len(batch)} images,", self.views.code):
            made: Any = self.views.tensors(batch, k, row_seeds(batch, seed))
        expected = (len(batch), k, *batch.shape[1:])
        if not isinstance(made, Tensor) or tuple(made.shape) != expected:
            got = tuple(made.shape) if isinstance(made, Tensor) else type(made).__name__
            raise ConfigError(f"the view source must give a tensor {expected} for k={k}, but gave {got}")
        return made

    def images(self, originals: list[Image.Image], k: int, seed: int) -> list[list[Image.Image]]:
        with calling(f"{self.views!r}, asked for {k} views of {len(originals)} images,", self.views.code):
            made = self.views.pictures(originals, k, seed)
        if [len(row) for row in made] != [k] * len(originals):
            counts = [len(row) for row in made]
            raise ConfigError(f"the view source must give {k} views per image, but gave {counts}")
        return made

    def nth(self, fed: Tensor | list[Image.Image], number: int, seed: int) -> Tensor | list[Image.Image]:
        """View `number` of each alone."""
        with calling(f"{self.views!r}, asked for view {number} of {len(fed)} images,", self.views.code):
            if not isinstance(fed, Tensor):
                return self.views.nth_pictures(fed, number, seed)
            made = self.views.nth(fed, number, row_seeds(fed, seed))
        if not isinstance(made, Tensor) or made.shape != fed.shape:
            got = tuple(made.shape) if isinstance(made, Tensor) else type(made).__name__
            raise ConfigError(f"the view source must give a tensor {tuple(fed.shape)} for one view, but gave {got}")
        return made


def as_source(views: Any) -> Source:
    """From a `ViewSource` (an Augmenter, a ViewFolder), a name or path, a ShapeTweak, or f(batch, k, seeds)."""
    from onesdaug.augment.shape import ShapeTweak

    if isinstance(views, ShapeTweak):
        from onesdaug.augment.config import preset
        from onesdaug.augment.operator import Augmenter

        views = Augmenter.from_pretrained("shape", config=preset("paper", shape=views))
    elif isinstance(views, str | PathLike):
        views = find_views(str(views))
    found = as_view_source(views)
    if found is None:
        raise ConfigError(
            f"views={views!r} cannot make views; give an Augmenter, a folder written by `onesdaug augment`, "
            "a ShapeTweak, an object with .tensors(batch, k, seeds), or a function f(batch, k, seeds)"
        )
    return Source(found)


def find_views(spec: str, preset: str | None = None, device: str | torch.device = "auto") -> Any:
    """What a name stands for: a registered view source, a folder of views, a generator, or your own of either kind.

    Views here are for a model, not for the eye: a generator is taken with the preset tuned for accuracy.
    """
    from onesdaug.augment.operator import Augmenter, default_preset
    from onesdaug.generators.load import find_generator
    from onesdaug.jobs.folder import ViewFolder
    from onesdaug.jobs.manifest import NAME

    stored = (Path(spec) / NAME).is_file()
    found = ViewFolder(spec) if stored else find_source(spec)
    if isinstance(found, ViewSource):
        if preset is not None:
            raise ConfigError(f"--preset {preset} is for generators: {spec} makes its views without one")
        return found
    try:
        find_generator(found or spec)
    except OnesdaugError as error:
        raise type(error)(f"{error}; views also come from {VIEWS.choices()}") from None
    return Augmenter.from_pretrained(found or spec, preset=preset or default_preset(found or spec), device=device)
