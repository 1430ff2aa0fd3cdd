"""The folder job: list → decode ahead → batches → views on disk with their manifest. Rerun = resume.

Three kinds of work go on at once: inputs are decoded some way ahead, batches are prepared while another is on the
device (so many as the augmenter allows: `overlap`), and finished views are encoded and written. All queues are bounded
by the batch, so memory does not grow with the number of images; batches count strictly in their order.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from onesdaug.common.files import locked
from onesdaug.common.progress import progress
from onesdaug.errors import ImageError, OnesdaugError
from onesdaug.jobs.draw import DISK_FULL, Drawing
from onesdaug.jobs.files import remove_leftovers, write_png
from onesdaug.jobs.ledger import JobReport, Ledger, Writing
from onesdaug.jobs.plan import Item, Listing
from onesdaug.jobs.survey import (
    JobSettings,
    Place,
    PlannedView,
    Survey,
    ahead,
    batch_name,
    in_the_way,
    slots,
    to_compute,
)

if TYPE_CHECKING:
    from onesdaug.augment.operator import Augmenter, View

__all__ = ["WORKERS", "JobReport", "kept_books", "run_job"]
# threads that decode, and as many that encode and wait for the disk; more would only queue up for the interpreter
WORKERS = max(2, min(8, os.cpu_count() or 2))


@contextmanager
def kept_books(settings: JobSettings, listing: Listing) -> Iterator[tuple[Ledger, ThreadPoolExecutor]]:
    """The output folder, held for this job, and threads that write to it; errors of the disk are told for people."""
    start = time.perf_counter()
    with (
        locked(settings.out),
        ThreadPoolExecutor(WORKERS) as writers,
        progress(len(listing.items) * settings.k, "views", parts=1) as bar,
    ):
        ledger = Ledger(settings, bar, listing)
        try:
            ledger.open()
            yield ledger, writers
            ledger.close()
        except OSError as error:
            writers.shutdown(cancel_futures=True)
            remove_leftovers(ledger.folders)
            what = "the disk is full" if error.errno in DISK_FULL else str(error)
            raise OnesdaugError(
                f"stopped, could not write to {settings.out}: {what}. "
                "All finished views are kept; put that right and run the same command again to go on"
            ) from error
    ledger.report.seconds = time.perf_counter() - start


def run_job(augmenter: Augmenter, listing: Listing, settings: JobSettings) -> JobReport:
    """Make the views of all listed inputs under `settings.out`. Run again, it does only what is missing."""
    # pools of their own: with one, reading ahead would wait behind the slower writing and the device behind both
    with (
        kept_books(settings, listing) as (ledger, writers),
        ThreadPoolExecutor(WORKERS) as readers,
        ThreadPoolExecutor(augmenter.overlap) as runners,
    ):
        job = _Job(augmenter, ledger, (readers, writers, runners))
        try:
            try:
                job.run()
            except KeyboardInterrupt:
                ledger.report.interrupted = True
                job.stop()
        except OSError:
            for threads in (readers, runners):
                threads.shutdown(cancel_futures=True)
            raise
    return ledger.report


class _Job:
    def __init__(self, augmenter: Augmenter, ledger: Ledger, pools: tuple[ThreadPoolExecutor, ...]) -> None:
        self.augmenter, self.ledger, self.settings = augmenter, ledger, ledger.settings
        self.overlap = augmenter.overlap
        self.readers, self.writers, self.runners = pools
        self.running: deque[tuple[Sequence[PlannedView], Future[list[View]]]] = deque()  # batches under way, in order
        self.survey, self.drawing = Survey(augmenter, self.settings), Drawing(augmenter, self.settings)
        self.place = Place(self.settings, ledger.manifest, ledger.listing.items, self.survey.tweaks)
        self.pending: list[Writing] = []  # the batch that is computed but does not count yet

    def run(self) -> None:
        items, ledger = self.ledger.listing.items, self.ledger
        # with several batches under way one more must be at hand: its images are decoded meanwhile
        more = self.augmenter.batch_size // max(1, self.settings.k) if self.overlap > 1 else 0
        looking = partial(self.survey.look, standing=self.place.of)
        looked = ahead(looking, items, self.readers, depth=WORKERS + more)
        for batch in slots((self.rows(*one) for one in looked), max(1, self.augmenter.batch_size)):
            ledger.skip(sum(not row.missing for row in batch))
            for todo in to_compute(batch):
                self.start(todo)
        while self.running:
            self.settle_next()
        self.commit()

    def rows(self, item: Item, found: list[PlannedView] | ImageError) -> list[PlannedView | None]:
        """The K rows of one input; those that cannot run are None, and the input is recorded as failed."""
        if isinstance(found, ImageError):
            self.ledger.fail(item.source, str(found), views=self.settings.k)
            return [None] * self.settings.k
        if reason := in_the_way(found, self.settings.out):
            self.ledger.fail(item.source, reason, views=sum(bool(row.blocked) for row in found))
        if any(row.missing for row in found):
            self.ledger.note(item.source, found[0].loaded.notes)
        return [None if row.blocked else row for row in found]

    def start(self, batch: Sequence[PlannedView]) -> None:
        """Have one batch computed, at once or, where several may be under way, beside those before."""
        if self.overlap == 1:
            self.settle(batch, partial(self.drawing.views_of, batch))
            return
        self.running.append((batch, self.runners.submit(self.drawing.views_of, batch)))
        if len(self.running) == self.overlap:
            self.settle_next()

    def settle_next(self) -> None:
        batch, future = self.running[0]
        wait([future])  # a Ctrl-C here leaves the batch in its place
        self.running.popleft()
        try:
            self.settle(batch, future.result)
        except KeyboardInterrupt:
            self.running.clear()  # batches count in their order: none after one that does not
            raise

    def settle(self, batch: Sequence[PlannedView], outcome: Callable[[], list[View]]) -> None:
        """Take one batch's views, and begin to write those that are missing."""
        for rows, views in self.drawing.settled(batch, outcome):
            if isinstance(views, str):
                self.ledger.fail(rows[0].item.source, views, views=sum(bool(row.missing) for row in rows))
                continue
            name = batch_name(rows)
            writing = [self.write(name, row, view) for row, view in zip(rows, views, strict=True) if row.missing]
            self.commit()  # of the batch before: its files were written while this one was computed
            self.pending = writing

    def stop(self) -> None:
        """After Ctrl-C: batches that are computed still count, up to the first that is not."""
        for _, future in self.running:
            future.cancel()
        while self.running and self.running[0][1].done() and not self.running[0][1].cancelled():
            self.settle_next()
        self.running.clear()
        self.commit()

    def write(self, batch: str, row: PlannedView, view: View) -> Writing:
        """Begin writing the missing files of one view."""
        out = self.settings.out
        return self.drawing.manifest_row(batch, row, view), {
            checksum: (name, self.writers.submit(write_png, out, name, image))
            for name, checksum, image in self.drawing.pictures(row, view)
        }

    def commit(self) -> None:
        """Make the computed batch count."""
        pending, self.pending = self.pending, []
        if pending:
            self.ledger.commit(pending)
