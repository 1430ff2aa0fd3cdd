"""The folder job: list → decode ahead → batches → views on disk with their manifest. Rerun = resume.

Three kinds of work go on at once: inputs are decoded some way ahead, batches are prepared while another is on the
device (so many as the augmenter allows: `overlap`), and finished views are encoded and written. All queues are bounded
by the batch, so memory does not grow with the number of images; batches count strictly in their order.

For each batch the PNGs are written under temporary names, then all manifest rows in one write, then the files get
their names. So a row without its file is work to be redone, and a file without its row is somebody else's.
"""

from __future__ import annotations

import errno
import os
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onesdaug.common.files import locked, uninterrupted
from onesdaug.common.progress import Progress, log, progress
from onesdaug.errors import ImageError, OnesdaugError, WeightsMissing
from onesdaug.jobs.files import remove_leftovers, write_png
from onesdaug.jobs.manifest import Manifest
from onesdaug.jobs.plan import Item, Listing
from onesdaug.jobs.survey import JobSettings, PlannedView, Survey, ahead, batch_name, slots, to_compute

if TYPE_CHECKING:
    from onesdaug.augment.operator import Augmenter, View

# threads that decode, and as many that encode and wait for the disk; more would only queue up for the interpreter
WORKERS = max(2, min(8, os.cpu_count() or 2))
_NOTES_SHOWN = 3  # of each kind of remark about images; the rest is counted
_DISK_FULL = (errno.ENOSPC, errno.EDQUOT)
# something stands where one view should go: that costs its image, while any other failure to write stops the job
_OF_ONE_PLACE = (errno.EEXIST, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.ENAMETOOLONG)


@dataclass
class JobReport:
    """What a job did: views made and skipped, the inputs that failed and why, seconds."""

    made: int = 0
    skipped: int = 0
    seconds: float = 0.0
    interrupted: bool = False
    failures: dict[str, str] = field(default_factory=dict)

    @property
    def failed(self) -> int:
        return len(self.failures)


Writing = tuple[PlannedView, "View", dict[str, "Future[tuple[Path, str]]"]]  # temporary file and SHA-256 by kind


def run_job(augmenter: Augmenter, listing: Listing, settings: JobSettings) -> JobReport:
    """Make the views of all listed inputs under `settings.out`. Run again, it does only what is missing."""
    start = time.perf_counter()
    # pools of their own: with one, reading ahead would wait behind the slower writing and the device behind both
    with (
        locked(settings.out),
        ThreadPoolExecutor(WORKERS) as readers,
        ThreadPoolExecutor(WORKERS) as writers,
        ThreadPoolExecutor(augmenter.overlap) as runners,
        progress(len(listing.items) * settings.k, "views", parts=1) as bar,
    ):
        job = _Job(augmenter, settings, bar, (readers, writers, runners), listing)
        try:
            try:
                job.run()
            except KeyboardInterrupt:
                job.report.interrupted = True
                job.stop()
        except OSError as error:
            for threads in (readers, writers, runners):
                threads.shutdown(cancel_futures=True)
            remove_leftovers(job.folders)
            what = "the disk is full" if error.errno in _DISK_FULL else str(error)
            raise OnesdaugError(
                f"stopped, could not write to {settings.out}: {what}. "
                "All finished views are kept; put that right and run the same command again to go on"
            ) from error
    job.report.seconds = time.perf_counter() - start
    return job.report


class _Job:
    def __init__(
        self,
        augmenter: Augmenter,
        settings: JobSettings,
        bar: Progress,
        pools: tuple[ThreadPoolExecutor, ...],
        listing: Listing,
    ) -> None:
        self.augmenter, self.settings, self.bar, self.overlap = augmenter, settings, bar, augmenter.overlap
        self.readers, self.writers, self.runners = pools
        self.running: deque[tuple[Sequence[PlannedView], Future[list[View]]]] = deque()  # batches under way, in order
        self.manifest = Manifest(settings.out)
        self.listing = listing
        self.survey = Survey(augmenter, settings, self.manifest, listing.items)
        self.report = JobReport()
        self.folders: set[Path] = set()
        self.noted: Counter[str] = Counter()
        self.pending: tuple[str, list[Writing]] | None = None  # the batch that is computed but does not count yet

    def run(self) -> None:
        listing = self.listing
        if self.manifest.repair():
            log.info("the last line of the manifest was torn by a killed run and has been repaired")
        if self.manifest.unreadable:
            log.info(f"{self.manifest.unreadable} damaged lines of {self.manifest.path} are ignored")
        names = [*(item.prefix for item in listing.items), *self.manifest.views]
        self.folders = {(self.settings.out / name).parent for name in names}
        remove_leftovers(self.folders)
        for source, note in listing.notes:
            log.info(f"{source}: {note}")
            self.manifest.remark(source, "note", note)
        for source, reason in listing.problems:
            self.fail(source, reason, views=0)
        # with several batches under way one more must be at hand: its images are decoded meanwhile
        more = self.augmenter.batch_size // max(1, self.settings.k) if self.overlap > 1 else 0
        looked = ahead(self.survey.look, listing.items, self.readers, depth=WORKERS + more)
        for batch in slots((self.rows(*one) for one in looked), max(1, self.augmenter.batch_size)):
            done = sum(not row.missing for row in batch)
            self.report.skipped += done
            self.bar.advance(0, skipped=done)
            for todo in to_compute(batch):
                self.start(todo)
        while self.running:
            self.settle_next()
        self.commit()
        for note, count in self.noted.items():
            if count > _NOTES_SHOWN:
                log.info(f"{note}: {count - _NOTES_SHOWN} more images, see {self.manifest.path}")

    def rows(self, item: Item, found: list[PlannedView] | ImageError) -> list[PlannedView | None]:
        """The K rows of one input; those that cannot run are None, and the input is recorded as failed."""
        if isinstance(found, ImageError):
            self.fail(item.source, str(found), views=self.settings.k)
            return [None] * self.settings.k
        if blocked := [one for row in found for one in row.blocked]:
            (name, why), others = blocked[0], f" (and {len(blocked) - 1} more)" if len(blocked) > 1 else ""
            reason = f"{name} in {self.settings.out} was left as it is{others}: it {why}"
            self.fail(item.source, reason, views=sum(bool(row.blocked) for row in found))
        for note in found[0].loaded.notes if any(row.missing for row in found) else ():
            self.noted[note] += 1
            if self.noted[note] <= _NOTES_SHOWN:
                log.info(f"{item.source}: {note}")
        return [None if row.blocked else row for row in found]

    def fail(self, source: str, reason: str, views: int) -> None:
        self.report.failures.setdefault(source, reason)
        self.manifest.remark(source, "error", reason)
        self.bar.advance(0, skipped=views)

    def start(self, batch: Sequence[PlannedView]) -> None:
        """Have one batch computed, at once or, where several may be under way, beside those before."""
        if self.overlap == 1:
            self.settle(batch, partial(self.views_of, batch))
            return
        self.running.append((batch, self.runners.submit(self.views_of, batch)))
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

    def views_of(self, batch: Sequence[PlannedView]) -> list[View]:
        from onesdaug.augment.operator import Row

        rows = [Row(row.loaded.image, row.k, self.settings.seed, digest=row.digest) for row in batch]
        only_tweaks = not any("view" in row.missing for row in batch)
        return self.survey.geometry(rows) if only_tweaks else self.augmenter.run(rows, self.survey.tweaks)

    def settle(self, batch: Sequence[PlannedView], outcome: Callable[[], list[View]]) -> None:
        """Take one batch's views; if it fails, each of its images alone, so that one bad image costs only itself."""
        try:
            views = outcome()
        except WeightsMissing:
            raise
        except Exception as error:
            if isinstance(error, OSError) and error.errno in _DISK_FULL:
                raise
            items = dict.fromkeys(row.item for row in batch)
            if len(items) > 1:
                for item in items:
                    one = [row for row in batch if row.item == item]
                    self.settle(one, partial(self.views_of, one))
                return
            reason = str(error) if isinstance(error, OnesdaugError) else f"{type(error).__name__}: {error}"
            self.fail(batch[0].item.source, reason, views=sum(bool(row.missing) for row in batch))
            return
        writing = [(row, view, self.write(row, view)) for row, view in zip(batch, views, strict=True) if row.missing]
        self.commit()  # of the batch before: its files were written while this one was computed
        self.pending = (batch_name(batch), writing)

    def stop(self) -> None:
        """After Ctrl-C: batches that are computed still count, up to the first that is not."""
        for _, future in self.running:
            future.cancel()
        while self.running and self.running[0][1].done() and not self.running[0][1].cancelled():
            self.settle_next()
        self.running.clear()
        self.commit()

    def write(self, row: PlannedView, view: View) -> dict[str, Future[tuple[Path, str]]]:
        """Begin writing the missing files of one view."""
        pictures = {"view": view.image, "tweak": view.tweaked}
        return {
            kind: self.writers.submit(write_png, self.settings.out, name, image)
            for kind, name, _ in self.survey.files(row.item, row.k)
            if kind in row.missing and (image := pictures[kind]) is not None
        }

    def commit(self) -> None:
        """Make the computed batch count: its manifest rows, then its files. Ctrl-C waits until this is done."""
        pending, self.pending = self.pending, None
        if pending is None:
            return
        batch, writing = pending
        with uninterrupted():
            rows, moves = [], []
            for row, view, jobs in writing:
                try:
                    written = {kind: job.result() for kind, job in jobs.items()}
                except OSError as error:
                    if error.errno not in _OF_ONE_PLACE:
                        raise
                    self.fail(row.item.source, f"its views cannot be written: {error}", views=1)
                    continue
                sums = {}
                for kind, name, checksum in self.survey.files(row.item, row.k):
                    if kind in written:
                        temporary, sums[checksum] = written[kind]
                        moves.append((temporary, self.settings.out / name))
                rows.append(self.manifest_row(batch, row, view, sums))
            self.manifest.append(rows)
            for temporary, final in moves:
                temporary.replace(final)
            self.report.made += len(rows)
        self.bar.advance(len(rows))
        self.bar.note = f"{self.bar.rate / self.settings.k:.2f} images/s"

    def manifest_row(self, batch: str, row: PlannedView, view: View, sums: dict[str, str]) -> dict[str, Any]:
        config, name = self.augmenter.config, row.item.view(row.k)
        before = self.manifest.views[name] if row.recorded else {}  # for files that were there already
        made_before = before if "sha256" not in sums else {}  # only its tweak is new: its cost stays what it was
        sums = {key: value for key in ("sha256", "tweak_sha256") if (value := before.get(key))} | sums
        return {
            "key": row.key,
            "status": "ok",
            "source": row.item.source,
            "digest": row.digest,
            "size": list(row.loaded.image.size),
            "notes": list(row.loaded.notes),
            "view": name,
            "sha256": sums["sha256"],
            "tweak": row.item.tweak(row.k) if "tweak_sha256" in sums else None,
            "tweak_sha256": sums.get("tweak_sha256"),
            "k": row.k,
            "seed": self.settings.seed,
            "psi": None if view.psi is None else view.psi.model_dump(mode="json"),
            "t0": view.t0,
            "steps_run": view.steps_run,
            "noise_level": config.noise_level,
            "solver": config.solver,
            "seconds": made_before.get("seconds", round(view.seconds, 4)),
            "peak_memory_mb": made_before.get("peak_memory_mb", round(view.peak_memory_mb, 1)),
            "generator": self.augmenter.fingerprint,
            "config": config.digest(),
            "settings": config.model_dump(mode="json"),
            "batch": batch,
        }
