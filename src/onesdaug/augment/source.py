"""The base class of everything that makes views: an Augmenter, stored views, traditional edits, your own."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, SupportsIndex

from onesdaug.common.own import made
from onesdaug.common.registry import VIEWS, check_complete, is_from_file
from onesdaug.generators.base import Generator

if TYPE_CHECKING:
    from PIL import Image
    from torch import Tensor


class ViewSource(ABC):
    """K views of images. A view is (image, k): it must not depend on the other images of a batch."""

    side: int | None = None  # of the square it draws on; None: it works at any size
    origin: str | None = None  # what `find_source` was given, where that has made it

    @abstractmethod
    def tensors(self, batch: Tensor, k: int, seeds: Sequence[int | str] | None = None) -> Tensor:
        """(B, 3, H, W) in [0, 1] → (B, K, 3, H, W), with one seed per row."""

    def pictures(self, images: Sequence[Image.Image], k: int, seed: int | str = 0) -> list[list[Image.Image]]:
        """K views of each of these images, at its size."""
        from onesdaug.augment.seeds import row_seeds
        from onesdaug.data.pixels import same_size, to_pil, to_tensor

        found: dict[int, list[Image.Image]] = {}
        for places, batch in same_size([to_tensor(image) for image in images]):
            found |= zip(places, map(to_pil, self.tensors(batch, k, row_seeds(batch, seed))), strict=True)
        return [found[place] for place in range(len(images))]

    def nth(self, batch: Tensor, number: int, seeds: Sequence[int | str] | None = None) -> Tensor:
        """View `number`, from 1, of each row alone, (B, 3, H, W): the same as among others.

        To be overridden where the views before it need not be drawn for that.
        """
        return self.tensors(batch, number, seeds)[:, -1]

    def nth_pictures(self, images: Sequence[Image.Image], number: int, seed: int | str = 0) -> list[Image.Image]:
        """The same for images of any sizes."""
        from onesdaug.augment.seeds import row_seeds
        from onesdaug.data.pixels import same_size, to_pil, to_tensor

        found: dict[int, Image.Image] = {}
        for places, batch in same_size([to_tensor(image) for image in images]):
            found |= zip(places, to_pil(self.nth(batch, number, row_seeds(batch, seed))), strict=True)
        return [found[place] for place in range(len(images))]

    def describe(self) -> dict[str, Any]:
        """Everything but name, k and seed that decides the views' pixels, as JSON: stored features are keyed by it."""
        return {}

    @property
    def code(self) -> Any:
        """What draws in the end: where that is not ours, its file is part of keys and its errors are told as such."""
        return self

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        """As ever; one of a `file.py` as the name it was found by."""
        if self.origin is None or not is_from_file(self.code):
            return super().__reduce_ex__(protocol)
        return find_source, (self.origin,)


class OwnViews(ViewSource):
    """A plain function f(batch, k, seeds), or the method `tensors` of any object."""

    def __init__(self, views: Any) -> None:
        self.views = views
        self.function: Callable[..., Tensor] = views.tensors if hasattr(views, "tensors") else views

    def tensors(self, batch: Tensor, k: int, seeds: Sequence[int | str] | None = None) -> Tensor:
        from onesdaug.augment.seeds import row_seeds

        return self.function(batch, k, row_seeds(batch) if seeds is None else seeds)

    def nth(self, batch: Tensor, number: int, seeds: Sequence[int | str] | None = None) -> Tensor:
        from onesdaug.augment.seeds import row_seeds

        if not hasattr(self.views, "nth"):
            return super().nth(batch, number, seeds)
        view: Tensor = self.views.nth(batch, number, row_seeds(batch) if seeds is None else seeds)
        return view

    @property
    def code(self) -> Any:
        return self.views

    def __repr__(self) -> str:
        return str(getattr(self.views, "__qualname__", None) or repr(self.views))


def as_view_source(views: Any) -> ViewSource | None:
    """Of an object that makes views; None where it does not."""
    if isinstance(views, ViewSource):
        return views
    makes = callable(getattr(views, "tensors", None)) or (callable(views) and not isinstance(views, Generator))
    return None if isinstance(views, type) or not makes else OwnViews(views)


def find_source(spec: str) -> ViewSource | Generator | None:
    """What a registered view source or `file.py:object` stands for, made; None for any other name of a generator."""
    if spec not in VIEWS and (":" not in spec or Path(spec).exists()):
        return None
    found = VIEWS.get(spec)
    if isinstance(found, type) and issubclass(found, Generator):
        return None  # it knows how to make itself
    if isinstance(found, type):
        check_complete("view source", found)
    thing = made(found, f"view source {spec}")
    if isinstance(thing, Generator):
        return thing
    source = as_view_source(thing)
    if source is not None and is_from_file(source.code):
        object.__setattr__(source, "origin", spec)  # it may be a frozen dataclass
    return source
