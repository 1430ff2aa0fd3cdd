"""The folder job on a cluster: the batches that the local job would compute, drawn by workers, recorded here.

Workers read the inputs and draw; the machine of the command keeps the books, so a view counts once, whoever drew it.
What is computed together is planned over the whole listing as in `jobs/job.py`: that, not the worker, decides the
bytes.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from onesdaug.errors import ImageError
from onesdaug.jobs.draw import Drawing
from onesdaug.jobs.files import png_bytes, write_bytes
from onesdaug.jobs.job import kept_books
from onesdaug.jobs.ledger import JobReport, Ledger
from onesdaug.jobs.plan import Item, Listing
from onesdaug.jobs.survey import JobSettings, Place, PlannedView, Standing, Survey, batch_name, in_the_way, to_compute
from onesdaug.scale.spread import RayOptions, Spread, connected

if TYPE_CHECKING:
    from onesdaug.augment.config import AugmentConfig
    from onesdaug.augment.operator import Augmenter

Loader = Callable[[], "Augmenter"]  # travels to the workers, and loads there what draws
DIED = "its worker died each time that it was tried, the last time with this image alone"


@dataclass(frozen=True)
class Share:
    """The views of one input that belong to one batch, and what is there of them."""

    item: Item
    numbers: tuple[int, ...]
    standings: tuple[Standing, ...] = ()

    def standing(self, item: Item, k: int) -> Standing:
        return self.standings[self.numbers.index(k)] if self.standings else Standing()


@dataclass
class Outcome:
    """What a worker made of one unit: rows with the bytes of their files, and what it has to say."""

    made: list[tuple[dict[str, Any], dict[str, tuple[str, bytes]]]] = field(default_factory=list)
    skipped: int = 0
    failed: list[tuple[str, str, int]] = field(default_factory=list)  # source, reason, views
    notes: list[tuple[str, tuple[str, ...]]] = field(default_factory=list)


@dataclass(frozen=True)
class About:
    """What a job must know of an augmenter that lives elsewhere."""

    fingerprint: str
    config: AugmentConfig
    batch_size: int
    overlap: int
    side: int | None
    device: str
    summary: str
    generator: bool | None  # True where there is one; None: it is geometry, or a source of views
    source: bool  # of views, which has no settings

    @classmethod
    def of(cls, load: Loader) -> About:
        from onesdaug.augment.adapter import SourceAugmenter

        made = load()
        return cls(
            made.fingerprint, made.config, made.batch_size, made.overlap, made.side, str(made.device), made.summary(),
            None if made.generator is None else True, isinstance(made, SourceAugmenter),
        )  # fmt: skip


def planned(items: Sequence[Item], k: int, size: int) -> list[list[Share]]:
    """The batches of the local job: K rows of each input one after another, cut after every `size`."""
    batches: list[list[Share]] = []
    for start in range(0, len(items) * k, size):
        rows = range(start, min(start + size, len(items) * k))
        numbers: dict[int, list[int]] = {}
        for row in rows:
            numbers.setdefault(row // k, []).append(row % k + 1)
        batches.append([Share(items[place], tuple(found)) for place, found in numbers.items()])
    return batches


class Worker:
    """Reads, draws and encodes; one lives in each worker's process."""

    def __init__(self, load: Loader, settings: JobSettings) -> None:
        augmenter = load()
        self.settings = settings
        self.survey, self.drawing = Survey(augmenter, settings), Drawing(augmenter, settings)

    def __call__(self, batch: Sequence[Share]) -> Outcome:
        """One planned batch for a folder of files."""
        outcome = Outcome()
        rows = self.look(batch, outcome)
        outcome.skipped = sum(not row.missing for row in rows)
        for todo in to_compute(rows):
            self.draw(todo, outcome)
        return outcome

    def look(self, batch: Iterable[Share], outcome: Outcome) -> list[PlannedView]:
        """The rows that can run; what there is to say of the others goes into the outcome."""
        rows: list[PlannedView] = []
        for share in batch:
            source, found = share.item.source, self.survey.look(share.item, share.standing, share.numbers)
            if isinstance(found, ImageError):
                outcome.failed.append((source, str(found), len(share.numbers)))
                continue
            if reason := in_the_way(found, self.settings.out):
                outcome.failed.append((source, reason, sum(bool(row.blocked) for row in found)))
            if any(row.missing for row in found) and share.numbers[0] == 1:
                outcome.notes.append((source, found[0].loaded.notes))
            rows += [row for row in found if not row.blocked]
        return rows

    def draw(self, batch: Sequence[PlannedView], outcome: Outcome) -> None:
        """The missing views of a batch, as they are recorded and as bytes."""
        for rows, views in self.drawing.settled(batch):
            if isinstance(views, str):
                missing = sum(bool(row.missing) for row in rows)
                outcome.failed.append((rows[0].item.source, views, missing))
                continue
            name = batch_name(rows)
            for row, view in zip(rows, views, strict=True):
                if row.missing:
                    pictures = self.drawing.pictures(row, view)
                    files = {checksum: (path, png_bytes(image)) for path, checksum, image in pictures}
                    outcome.made.append((self.drawing.manifest_row(name, row, view), files))


def run_on_ray(
    load: Loader, listing: Listing, settings: JobSettings, options: RayOptions, device: str,
    told: Callable[[About], None] = lambda _: None,
) -> tuple[JobReport, About]:  # fmt: skip
    """`run_job` on a cluster; `told` hears what draws there before the work begins."""
    with connected(options) as ray:
        spread: Spread[list[Share], Outcome] = Spread(ray, options, device)
        about: About = spread.ask(partial(About.of, load))
        told(about)
        with kept_books(settings, listing) as (ledger, writers):
            tweaks = settings.save_aug and about.config.shape is not None
            place = Place(settings, ledger.manifest, listing.items, tweaks)
            batches = [
                [Share(s.item, s.numbers, tuple(place.of(s.item, k) for k in s.numbers)) for s in batch]
                for batch in planned(listing.items, settings.k, about.batch_size)
            ]
            make = partial(Worker, load, settings)
            results = spread.run(make, batches, lambda batch: [[share] for share in batch], about.overlap)
            try:
                for batch, outcome in results:
                    _record(batch, outcome, ledger, writers)
            except KeyboardInterrupt:
                ledger.report.interrupted = True
            finally:
                results.close()
    return ledger.report, about


def _record(batch: Sequence[Share], outcome: Outcome | None, ledger: Ledger, writers: ThreadPoolExecutor) -> None:
    """Make what a worker sent count."""
    if outcome is None:
        for share in batch:
            ledger.fail(share.item.source, DIED, views=len(share.numbers))
        return
    for source, reason, views in outcome.failed:
        ledger.fail(source, reason, views)
    for source, notes in outcome.notes:
        ledger.note(source, notes)
    ledger.skip(outcome.skipped)
    out = ledger.settings.out
    writing = [
        (row, {field: (name, writers.submit(write_bytes, out, name, data)) for field, (name, data) in files.items()})
        for row, files in outcome.made
    ]
    if writing:
        ledger.commit(writing)


def loader(options: dict[str, Any], config: AugmentConfig) -> Loader:
    """Loads what `Augmenter.from_pretrained` would, in whatever process it is called."""
    return partial(_loaded, options, config, os.environ.get("HF_HUB_OFFLINE"))


def _loaded(options: dict[str, Any], config: AugmentConfig, offline: str | None) -> Augmenter:
    if offline is not None:
        os.environ.setdefault("HF_HUB_OFFLINE", offline)
    from onesdaug.augment.operator import Augmenter

    return Augmenter.from_pretrained(config=config, ip_adapter=config.conditioned, **options)
