"""Which rows run together, so that a rerun after a kill gives the same bytes as a run that was never cut.

A network's result for one row may differ in the last bit with the rows beside it. Batches are therefore planned
over the whole listing, and a batch that was cut is computed again as a whole, though only what is missing of it
is written.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from onesdaug.data.images import LoadedImage
from onesdaug.jobs.manifest import batch_id
from onesdaug.jobs.plan import Item


@dataclass(frozen=True, eq=False)
class PlannedView:
    """View k of one input, and what an earlier run left of it."""

    item: Item
    k: int
    loaded: LoadedImage
    digest: str
    key: str
    missing: tuple[str, ...]  # files to write, of "view" and "tweak"
    blocked: tuple[str, ...] = ()  # files that stand in the way: not ours, other settings, or changed since
    recorded: str | None = None  # the batch it was made in by the manifest, whether or not its files are there


@dataclass(frozen=True)
class PlannedBatch:
    """Rows to compute in one go, and the name that hashes them; those with `missing` files are written."""

    name: str
    rows: list[PlannedView]

    @classmethod
    def of(cls, rows: Sequence[PlannedView]) -> PlannedBatch:
        return cls(batch_id(row.key for row in rows), list(rows))

    def by_image(self) -> list[PlannedBatch]:
        """The same rows, each image on its own."""
        items = dict.fromkeys(row.item for row in self.rows)
        return [PlannedBatch.of([row for row in self.rows if row.item == item]) for item in items]


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


def to_compute(rows: Sequence[PlannedView]) -> list[PlannedBatch]:
    """What of a planned batch must run, given what earlier runs left."""
    missing = [row for row in rows if row.missing]
    if not missing:
        return []
    whole = PlannedBatch.of(rows)
    if len(missing) == len(rows) or any(row.recorded == whole.name for row in rows):
        return [whole]  # nothing there yet, or cut inside this very batch
    # The rest was made under another plan (K was smaller, images were added): only what is missing runs. That
    # batch may in turn have been cut; its rows are then those that carry its name.
    groups = []
    for name in dict.fromkeys(row.recorded for row in missing if row.recorded):
        again = PlannedBatch.of([row for row in rows if row.recorded == name])
        if again.name == name:
            groups.append(again)
            missing = [row for row in missing if row.recorded != name]
    return [*groups, PlannedBatch.of(missing)] if missing else groups
