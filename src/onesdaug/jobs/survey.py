"""What is there already, what is still to be made, and which rows run together.

Each input is loaded, and its views on disk are compared with the manifest. A network's result for one row may differ
in the last bit with the rows beside it; for a rerun after a kill to give the same bytes as a run that was never cut,
batches are planned over the whole listing, and one that was cut is computed again as a whole, though only what is
missing of it is written.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from onesdaug.common.files import sha256_of
from onesdaug.data.images import LoadedImage, read_image
from onesdaug.errors import ImageError
from onesdaug.jobs.manifest import Manifest, batch_id, view_key
from onesdaug.jobs.plan import Item, identities

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


@dataclass(frozen=True, eq=False)
class PlannedView:
    """View k of one input, and what an earlier run left of it."""

    item: Item
    k: int
    loaded: LoadedImage
    digest: str
    key: str
    missing: tuple[str, ...]  # files to write, of "view" and "tweak"
    blocked: tuple[tuple[str, str], ...] = ()  # files that stand in the way, and why they stay
    recorded: str | None = None  # the batch it was made in by the manifest, whether or not its files are there


class Survey:
    """Looks up inputs for one job; `look` may be called from several threads."""

    def __init__(
        self, augmenter: Augmenter, settings: JobSettings, manifest: Manifest, inputs: Iterable[Item] = ()
    ) -> None:
        self.settings, self.manifest = settings, manifest
        self.inputs = identities(item.path for item in inputs) if settings.overwrite else frozenset()
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
            path = self.settings.out / name
            there = sha256_of(path)
            if there is not None and ours and there == known.get(field):
                continue
            if there is None or (reason := self._stays(path)) is None:
                missing.append(kind)
            else:
                blocked.append((name, reason))
        recorded = known["batch"] if ours else None
        return PlannedView(item, k, loaded, digest, key, tuple(missing), tuple(blocked), recorded)

    def _stays(self, path: Path) -> str | None:
        """Why something at the place of a view is not replaced; None where it may be."""
        if not self.settings.overwrite:
            return "holds something else (other settings, or not made here); --overwrite replaces it"
        if identities([path]) & self.inputs:
            return "is itself an input of this job, which is never replaced; give another output folder"
        if path.is_dir() and not path.is_symlink():
            return "is a folder, which --overwrite does not replace"
        return None


def slots(inputs: Iterable[Sequence[PlannedView | None]], size: int) -> Iterator[list[PlannedView]]:
    """Cut the K rows of each input into batches by their place in the listing; None is a row that cannot run.

    A row that cannot run leaves its slot empty: what the others share a batch with does not hang on it.
    """
    batch: list[PlannedView] = []
    count = 0
    for rows in inputs:
        for row in rows:
            count += 1
            if row is not None:
                batch.append(row)
            if count % size == 0:
                yield batch
                batch = []
    yield batch


def to_compute(rows: Sequence[PlannedView]) -> list[Sequence[PlannedView]]:
    """What of a planned batch must run, given what earlier runs left."""
    missing = [row for row in rows if row.missing]
    if not missing:
        return []
    if len(missing) == len(rows) or batch_name(rows) in {row.recorded for row in rows}:
        return [rows]  # nothing there yet, or cut inside this very batch
    # The rest was made under another plan (K was smaller, images were added): only what is missing runs. That
    # batch may in turn have been cut; its rows are then those that carry its name.
    groups: list[Sequence[PlannedView]] = []
    for name in dict.fromkeys(row.recorded for row in missing if row.recorded):
        again = [row for row in rows if row.recorded == name]
        if batch_name(again) == name:
            groups.append(again)
            missing = [row for row in missing if row.recorded != name]
    return [*groups, missing] if missing else groups


def batch_name(rows: Sequence[PlannedView]) -> str:
    """The name that hashes a batch's rows."""
    return batch_id(row.key for row in rows)


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
