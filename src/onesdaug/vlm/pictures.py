"""The pictures of a question: the image and its K views, made once per image and kept in a view store."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from onesdaug.augment.seeds import image_digest
from onesdaug.data.images import load_image
from onesdaug.errors import DataError, ImageError, OnesdaugError
from onesdaug.jobs.folder import ViewFolder
from onesdaug.jobs.job import run_job
from onesdaug.jobs.plan import Listing, list_inputs
from onesdaug.jobs.survey import JobSettings

if TYPE_CHECKING:
    from PIL import Image

    from onesdaug.augment.operator import Augmenter


@dataclass(frozen=True)
class Loaded:
    """The original first, then its views with what each cost to make; `problem` says why there are none."""

    images: list[Image.Image]
    digest: str  # of the original's pixels
    seconds: tuple[float, ...] = ()
    problem: str | None = None


class Pictures:
    """Originals by name, each with `k` views in `store` once they are made; file names are `onesdaug augment`'s."""

    def __init__(self, folder: Path, names: Sequence[str], store: Path, k: int) -> None:
        self.folder, self.store, self.k = folder, store, k
        self.failures: dict[str, str] = {}  # why an input has no views, by its source
        self._listing = list_inputs([folder / name for name in names], store) if k else Listing([])
        self._items = {item.path: item for item in self._listing.items}
        self._made: ViewFolder | None = None
        self.load = lru_cache(maxsize=1)(self._load)  # the questions about an image follow one another

    def make_views(self, augmenter: Augmenter, seed: int) -> None:
        """Make what is missing of every image's views."""
        done = run_job(augmenter, self._listing, JobSettings(self.store, self.k, seed))
        if done.interrupted:
            raise KeyboardInterrupt
        self.failures = done.failures
        if len(self.failures) == len(self._items):
            reason = next(iter(self.failures.values()))
            raise OnesdaugError(f"no image has views in {self.store}; the first could not be made because: {reason}")
        self._made = ViewFolder(self.store)

    def _load(self, name: str) -> Loaded:
        """The original and its views. ImageError: not even that."""
        original = load_image(self.folder / name)
        loaded = Loaded([original], image_digest(original))
        if self._made is None:
            return loaded
        item = self._items[self.folder / name]
        try:
            if reason := self.failures.get(item.source):
                raise ImageError(f"no views of {name}: {reason}")
            views = self._made.named(item.prefix, self.k)
        except (DataError, ImageError) as error:
            return replace(loaded, problem=str(error))
        seconds = tuple(float(row.get("seconds", 0.0)) for row in self._made.manifest.rows(item.prefix, self.k))
        return replace(loaded, images=[original, *views], seconds=seconds)
