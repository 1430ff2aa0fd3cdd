"""The pictures of a question: the image and its K views, made once per image and kept in a view store."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from onesdaug.augment.seeds import image_digest
from onesdaug.data.images import load_image
from onesdaug.errors import DataError, ImageError, OnesdaugError
from onesdaug.jobs.folder import ViewFolder
from onesdaug.jobs.job import run_job
from onesdaug.jobs.plan import Item, list_inputs
from onesdaug.jobs.survey import JobSettings

if TYPE_CHECKING:
    from PIL import Image

    from onesdaug.augment.operator import Augmenter


@dataclass(frozen=True)
class Loaded:
    """The original first, then its views; `problem` says why there are none. The digest is the original's."""

    images: list[Image.Image]
    digest: str
    problem: str | None = None


class Pictures:
    """Originals by name, with the views in `store` (k of each); `failures` tells why an image has none."""

    def __init__(
        self,
        folder: Path,
        names: Sequence[str],
        store: Path | None = None,
        k: int = 0,
        failures: dict[str, str] | None = None,
    ) -> None:
        self.folder, self.store, self.k = folder, store, k
        self._failures = failures or {}
        self._items: dict[str, Item] = {}
        self._seconds: dict[str, tuple[float, ...]] = {}
        if store is not None and k:
            self._items = dict(zip(names, items(folder, names, store), strict=True))
            self._made = ViewFolder(store)
            for name, item in self._items.items():
                rows = self._made.manifest.rows(item.prefix, k)
                self._seconds[name] = tuple(float(row.get("seconds", 0.0)) for row in rows)
        self._last: tuple[str, Loaded] | None = None

    def load(self, name: str) -> Loaded:
        """The original and its views; the last ones are kept for the next question. ImageError: not even that."""
        if self._last is None or self._last[0] != name:
            original = load_image(self.folder / name)
            views: list[Image.Image] = []
            problem = None
            try:
                views = self._views(name)
            except (DataError, ImageError) as error:
                problem = str(error)
            self._last = name, Loaded([original, *views], image_digest(original), problem)
        return self._last[1]

    def view_seconds(self, name: str) -> tuple[float, ...]:
        """What each view of an image cost when it was made."""
        return self._seconds.get(name, ())

    def _views(self, name: str) -> list[Image.Image]:
        if not self._items:
            return []
        item = self._items[name]
        if reason := self._failures.get(item.source):
            raise ImageError(f"no views of {name}: {reason}")
        return self._made.named(item.prefix, self.k)


def items(folder: Path, names: Sequence[str], store: Path) -> list[Item]:
    """The images as inputs of a view job; the store's file names are those of `onesdaug augment`."""
    found = {item.path: item for item in list_inputs([folder / name for name in names], store).items}
    return [found[folder / name] for name in names]


def make_views(
    augmenter: Augmenter,
    folder: Path,
    names: Sequence[str],
    store: Path,
    k: int,
    seed: int,
) -> dict[str, str]:
    """Make what is missing of every image's K views; gives the reasons of those that cannot be made, by source."""
    listing = list_inputs([folder / name for name in names], store)
    summary = run_job(augmenter, listing, JobSettings(store, k, seed))
    if summary.interrupted:
        raise KeyboardInterrupt
    if len(summary.failures) == len(listing.items):
        reason = next(iter(summary.failures.values()))
        raise OnesdaugError(f"no image has views in {store}; the first could not be made because: {reason}")
    return summary.failures
