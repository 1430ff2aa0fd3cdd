"""What is there already: each input is loaded, and its views on disk are compared with the manifest."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from onesdaug.common.files import sha256_of
from onesdaug.data.images import LoadedImage, read_image
from onesdaug.errors import ImageError
from onesdaug.jobs.batches import PlannedView
from onesdaug.jobs.manifest import Manifest, view_key
from onesdaug.jobs.plan import Item

if TYPE_CHECKING:
    from onesdaug.augment.operator import Augmenter, Row, View

In = TypeVar("In")
Out = TypeVar("Out")


@dataclass(frozen=True)
class JobSettings:
    """The settings of a job besides the augmenter's."""

    out: Path
    k: int = 3
    seed: int = 0
    save_aug: bool = False
    overwrite: bool = False


class Survey:
    """Looks up inputs for one job; `look` may be called from several threads."""

    def __init__(self, augmenter: Augmenter, settings: JobSettings, manifest: Manifest) -> None:
        self.settings, self.manifest = settings, manifest
        self.config_json = augmenter.config.model_dump_json()
        self.fingerprint = augmenter.fingerprint
        self.tweaks = settings.save_aug and augmenter.config.shape is not None
        self._augmenter = augmenter

    def geometry(self, rows: list[Row]) -> list[View]:
        """The tweaks behind views that are there already: stage 1 alone draws the same psi from the same stream."""
        from onesdaug.augment.operator import Augmenter

        whole = self._augmenter
        stage = Augmenter(None, whole.config, batch_size=whole.batch_size, device=whole.device, side=whole.side)
        table = whole.table
        t0, steps = (table.t0, len(table)) if table is not None else (0, 0)
        return [replace(view, t0=t0, steps_run=steps) for view in stage.run(rows, tweaked=True)]

    def files(self, item: Item, k: int) -> list[tuple[str, str, str]]:
        """Kind, path and manifest field of the checksum of each file of view k."""
        view = ("view", item.view(k), "sha256")
        return [view, ("tweak", item.tweak(k), "tweak_sha256")] if self.tweaks else [view]

    def look(self, item: Item) -> list[PlannedView] | ImageError:
        """The K rows of one input, or why it cannot be used."""
        from onesdaug.augment.seeds import image_digest

        try:
            loaded = read_image(item.path)
        except ImageError as error:
            return error
        digest = image_digest(loaded.image)
        return [self._row(item, k, loaded, digest) for k in range(1, self.settings.k + 1)]

    def _row(self, item: Item, k: int, loaded: LoadedImage, digest: str) -> PlannedView:
        key = view_key(digest, self.config_json, self.settings.seed, k, self.fingerprint)
        known = self.manifest.views.get(item.view(k), {})
        ours = known.get("key") == key
        missing, blocked = [], []
        for kind, name, field in self.files(item, k):
            there = sha256_of(self.settings.out / name)
            if there is not None and ours and there == known.get(field):
                continue
            if there is None or self.settings.overwrite:
                missing.append(kind)
            else:
                blocked.append(name)
        recorded = known["batch"] if ours else None
        return PlannedView(item, k, loaded, digest, key, tuple(missing), tuple(blocked), recorded)


def ahead(
    work: Callable[[In], Out], inputs: Iterable[In], pool: ThreadPoolExecutor, depth: int
) -> Iterator[tuple[In, Out]]:
    """Results in order, computed by the pool a few inputs ahead; memory does not grow with their number."""
    queue: deque[tuple[In, Future[Out]]] = deque()
    for value in inputs:
        queue.append((value, pool.submit(work, value)))
        if len(queue) > depth:
            first, future = queue.popleft()
            yield first, future.result()
    while queue:
        first, future = queue.popleft()
        yield first, future.result()
