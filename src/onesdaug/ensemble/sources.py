"""Where views come from: an Augmenter, a folder of stored views, plain geometry, or your own function.

`as_source` turns each of them into one `Source`; the ensemble knows nothing else.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from os import PathLike
from typing import Any, Protocol, runtime_checkable

from PIL import Image
from torch import Tensor

from onesdaug.data.pixels import to_pil, to_tensor
from onesdaug.errors import ConfigError


@runtime_checkable
class ViewSource(Protocol):
    """Anything that turns a (B, 3, H, W) batch in [0, 1] into (B, K, 3, H, W) views; one seed per row."""

    def tensors(self, batch: Tensor, k: int, seeds: Sequence[int | str] | None = None) -> Tensor: ...


@dataclass(frozen=True)
class Source:
    """A view source in the two forms the ensemble asks for: (what is fed, number of views, base seed)."""

    tensors: Callable[[Tensor, int, int], Tensor]
    images: Callable[[list[Image.Image], int, int], list[list[Image.Image]]]


def as_source(views: Any) -> Source:
    """From an Augmenter, a ViewFolder or its path, a ShapeTweak, a `ViewSource`, or f(batch, k, seeds)."""
    from onesdaug.augment.shape import ShapeTweak

    if isinstance(views, ShapeTweak):
        from onesdaug.augment.config import preset
        from onesdaug.augment.operator import Augmenter

        views = Augmenter.from_pretrained("shape", config=preset("paper", shape=views))
    elif isinstance(views, str | PathLike):
        from onesdaug.jobs.folder import ViewFolder

        views = ViewFolder(views)
    make = getattr(views, "tensors", views)
    if not callable(make) or isinstance(views, type):
        raise ConfigError(
            f"views={views!r} cannot make views; give an Augmenter, a folder written by `onesdaug augment`, "
            "a ShapeTweak, an object with .tensors(batch, k, seeds), or a function f(batch, k, seeds)"
        )
    # an Augmenter derives the seed of each row itself, so that aug(image, seed=0) gives these very views
    own_seeds = make is not views and "seed" in inspect.signature(make).parameters

    def tensors(batch: Tensor, k: int, seed: int) -> Tensor:
        made = make(batch, k, seed=seed) if own_seeds else make(batch, k, row_seeds(batch, seed))
        expected = (len(batch), k, *batch.shape[1:])
        if not isinstance(made, Tensor) or tuple(made.shape) != expected:
            got = tuple(made.shape) if isinstance(made, Tensor) else type(made).__name__
            raise ConfigError(f"the view source must give a tensor {expected} for k={k}, but gave {got}")
        return made

    def images(originals: list[Image.Image], k: int, seed: int) -> list[list[Image.Image]]:
        if hasattr(views, "views"):
            made = [list(views.views(image, k)) for image in originals]
        elif own_seeds and callable(views) and "seed" in inspect.signature(views).parameters:
            made = [list(row) for row in views(originals, k=k, seed=seed)]
        else:  # one by one, because their sizes may differ
            made = [to_pil(tensors(to_tensor(image)[None], k, seed)[0]) for image in originals]
        if [len(row) for row in made] != [k] * len(originals):
            counts = [len(row) for row in made]
            raise ConfigError(f"the view source must give {k} views per image, but gave {counts}")
        return made

    return Source(tensors, images)


def row_seeds(batch: Tensor, seed: int = 0) -> list[str]:
    """One seed per image, from the base seed and the image's content: its neighbours do not matter."""
    from onesdaug.augment.seeds import image_seed, tensor_digests

    return [image_seed(seed, digest) for digest in tensor_digests(batch)]
