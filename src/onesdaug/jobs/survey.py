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
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from onesdaug.common.files import sha256_of
from onesdaug.data.images import LoadedImage, read_bytes, read_image
from onesdaug.errors import ImageError
from onesdaug.jobs.manifest import Manifest, batch_id, view_key
from onesdaug.jobs.plan import Item, identities

if TYPE_CHECKING:
    from onesdaug.augment.operator import Augmenter

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


@dataclass(frozen=True)
class Standing:
    """What OUT holds in the place of one view, known without a look at its image; nothing, where that is nothing."""

    key: str | None = None  # of what is recorded there
    batch: str | None = None  # that it was made in
    whole: tuple[str, ...] = ()  # of "view" and "tweak", the files that are as they were recorded
    blocked: tuple[tuple[str, str, str], ...] = ()  # kind and name of files that are not to be replaced, and why


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


def files_of(item: Item, k: int, tweaks: bool) -> list[tuple[str, str, str]]:
    """Kind, path and manifest field of the checksum of each file of view k."""
    view = ("view", item.view(k), "sha256")
    return [view, ("tweak", item.tweak(k), "tweak_sha256")] if tweaks else [view]


def load(item: Item) -> LoadedImage:
    """The image of an input, wherever that lies."""
    return read_image(item.path) if item.part is None else read_bytes(item.part.read(), item.source)


class Place:
    """The output folder as it stands; may be asked from several threads."""

    def __init__(self, settings: JobSettings, manifest: Manifest, inputs: Iterable[Item], tweaks: bool) -> None:
        self.settings, self.manifest, self.tweaks = settings, manifest, tweaks
        self.inputs = identities(item.path for item in inputs) if settings.overwrite else frozenset()

    def of(self, item: Item, k: int) -> Standing:
        """What is there of view k."""
        known = self.manifest.views.get(item.view(k), {})
        whole, blocked = [], []
        for kind, name, field in files_of(item, k, self.tweaks):
            path = self.settings.out / name
            if (there := sha256_of(path)) is None:
                continue
            if there == known.get(field):
                whole.append(kind)
            if (reason := self._stays(path)) is not None:
                blocked.append((kind, name, reason))
        return Standing(known.get("key"), known.get("batch"), tuple(whole), tuple(blocked))

    def _stays(self, path: Path) -> str | None:
        """Why something at the place of a view is not replaced; None where it may be."""
        if not self.settings.overwrite:
            return "holds something else (other settings, or not made here); --overwrite replaces it"
        if identities([path]) & self.inputs:
            return "is itself an input of this job, which is never replaced; give another output folder"
        if path.is_dir() and not path.is_symlink():
            return "is a folder, which --overwrite does not replace"
        return None


class Survey:
    """Looks at the inputs of one job; `look` may be called from several threads."""

    def __init__(self, augmenter: Augmenter, settings: JobSettings) -> None:
        self.settings, self.fingerprint = settings, augmenter.fingerprint
        self.config_json = augmenter.config.model_dump_json()
        self.tweaks = settings.save_aug and augmenter.config.shape is not None

    def look(
        self, item: Item, standing: Callable[[Item, int], Standing], numbers: Iterable[int] | None = None
    ) -> list[PlannedView] | ImageError:
        """The K rows of one input, or those of some numbers, or why it cannot be used."""
        from onesdaug.augment.seeds import image_digest

        try:
            loaded = load(item)
        except ImageError as error:
            return error
        digest = image_digest(loaded.image)
        numbers = range(1, self.settings.k + 1) if numbers is None else numbers
        return [self._row(item, k, loaded, digest, standing(item, k)) for k in numbers]

    def _row(self, item: Item, k: int, loaded: LoadedImage, digest: str, standing: Standing) -> PlannedView:
        key = view_key(digest, self.config_json, self.settings.seed, k, self.fingerprint)
        ours = standing.key == key
        stay = {kind: (name, reason) for kind, name, reason in standing.blocked}
        kinds = [kind for kind, _, _ in files_of(item, k, self.tweaks)]
        wanted = [kind for kind in kinds if not (ours and kind in standing.whole)]
        missing = tuple(kind for kind in wanted if kind not in stay)
        blocked = tuple(stay[kind] for kind in wanted if kind in stay)
        return PlannedView(item, k, loaded, digest, key, missing, blocked, standing.batch if ours else None)


def in_the_way(rows: Sequence[PlannedView], out: object) -> str | None:
    """Why some views of an input are not made: files that are not replaced."""
    if not (blocked := [one for row in rows for one in row.blocked]):
        return None
    (name, why), others = blocked[0], f" (and {len(blocked) - 1} more)" if len(blocked) > 1 else ""
    return f"{name} in {out} was left as it is{others}: it {why}"


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
