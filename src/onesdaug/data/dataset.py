"""A labelled set of images, decoded once: one uint8 array and what names its rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from onesdaug.errors import DataError

if TYPE_CHECKING:
    from onesdaug.data.sources import Member


@dataclass(frozen=True)
class Dataset:
    """N images with their classes; rows of every array belong together."""

    images: NDArray[np.uint8]  # (N, H, W, 3)
    labels: NDArray[np.int64]  # (N,), 0..C-1, an index into class_names
    class_names: tuple[str, ...]
    ids: tuple[str, ...]  # "class/stem": names an image whatever its file type or layout
    fingerprint: str  # of the files it came from, see sources.fingerprint
    members: tuple[Member, ...] = ()  # those files: what wants more than the working size reads them again

    def __post_init__(self) -> None:
        n = len(self.images)
        if not (n == len(self.labels) == len(self.ids)):
            raise DataError(f"{n} images, {len(self.labels)} labels and {len(self.ids)} ids do not match")

    def __len__(self) -> int:
        return len(self.images)

    @property
    def n_classes(self) -> int:
        return len(self.class_names)

    def counts(self) -> NDArray[np.int64]:
        """Images per class, (C,)."""
        return np.bincount(self.labels, minlength=self.n_classes).astype(np.int64)

    def take(self, per_class: int, classes: int | None = None) -> Dataset:
        """The first `per_class` images of the first `classes` classes: a small set for trying things out."""
        keep: list[int] = []
        for label in range(self.n_classes if classes is None else min(classes, self.n_classes)):
            keep += np.flatnonzero(self.labels == label)[:per_class].tolist()
        names = self.class_names if classes is None else self.class_names[:classes]
        return self._rows(keep, names, f"{self.fingerprint}[:{per_class}x{len(names)}]")

    def sample(self, per_class: int | None, seed: int = 0) -> Dataset:
        """A random part with as many images of every class: files of a class are often not in random order.

        None: all of it.
        """
        if per_class is None:
            return self
        if per_class > self.counts().min():
            raise DataError(f"{per_class} images of each class asked for, one class has {self.counts().min()}")
        rng = np.random.default_rng(seed)
        picked = [
            rng.choice(np.flatnonzero(self.labels == label), per_class, replace=False)
            for label in range(self.n_classes)
        ]
        rows = np.sort(np.concatenate(picked)).tolist()
        return self._rows(rows, self.class_names, f"{self.fingerprint}[{per_class} of each, seed {seed}]")

    def rows(self, keep: list[int], part: str) -> Dataset:
        """The images at these places, in this order; `part` says in the fingerprint which they are."""
        return self._rows(keep, self.class_names, f"{self.fingerprint}[{part}]")

    def joined(self, more: Dataset) -> Dataset:
        """With the images of another set, of the same size; classes of the same name are one."""
        names = tuple(sorted({*self.class_names, *more.class_names}))
        place = {name: number for number, name in enumerate(names)}
        both = (self, more)
        labels = [np.array([place[name] for name in one.class_names], dtype=np.int64)[one.labels] for one in both]
        return Dataset(
            np.concatenate([one.images for one in both]),
            np.concatenate(labels),
            names,
            self.ids + more.ids,
            f"{self.fingerprint}+{more.fingerprint}",
            self.members + more.members if self.members and more.members else (),
        )

    def _rows(self, keep: list[int], names: tuple[str, ...], fingerprint: str) -> Dataset:
        rows = np.asarray(keep, dtype=np.int64)
        ids, members = tuple(self.ids[i] for i in keep), tuple(self.members[i] for i in keep if self.members)
        return Dataset(self.images[rows], self.labels[rows], names, ids, fingerprint, members)
