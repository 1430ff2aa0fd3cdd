"""The books of a job that writes a folder: views on disk with their manifest rows, failures, counts.

For each batch the PNGs are written under temporary names, then all manifest rows in one write, then the files get
their names. So a row without its file is work to be redone, and a file without its row is somebody else's.
"""

from __future__ import annotations

import errno
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from onesdaug.common.files import uninterrupted
from onesdaug.common.progress import Progress, log
from onesdaug.jobs.draw import completed
from onesdaug.jobs.files import remove_leftovers
from onesdaug.jobs.manifest import Manifest
from onesdaug.jobs.plan import Listing
from onesdaug.jobs.survey import JobSettings

_NOTES_SHOWN = 3  # of each kind of remark about images; the rest is counted
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


# a view's row, and for each of its files being written: the field of its checksum → where it goes, and the writing
Writing = tuple[dict[str, Any], dict[str, tuple[str, "Future[tuple[Path, str]]"]]]


class Ledger:
    """One output folder while a job writes to it."""

    def __init__(self, settings: JobSettings, bar: Progress, listing: Listing) -> None:
        self.settings, self.bar, self.listing = settings, bar, listing
        self.manifest = Manifest(settings.out)
        self.report = JobReport()
        self.noted: Counter[str] = Counter()
        names = [*(item.prefix for item in listing.items), *self.manifest.views]
        self.folders = {(settings.out / name).parent for name in names}

    def open(self) -> None:
        """Put right what a killed run left, and record what is known of the inputs before any is read."""
        if self.manifest.repair():
            log.info("the last line of the manifest was torn by a killed run and has been repaired")
        if self.manifest.unreadable:
            log.info(f"{self.manifest.unreadable} damaged lines of {self.manifest.path} are ignored")
        remove_leftovers(self.folders)
        for source, note in self.listing.notes:
            log.info(f"{source}: {note}")
            self.manifest.remark(source, "note", note)
        for source, reason in self.listing.problems:
            self.fail(source, reason, views=0)

    def close(self) -> None:
        """Say how many remarks were not shown."""
        for note, count in self.noted.items():
            if count > _NOTES_SHOWN:
                log.info(f"{note}: {count - _NOTES_SHOWN} more images, see {self.manifest.path}")

    def skip(self, views: int) -> None:
        """So many views were there already."""
        self.report.skipped += views
        self.bar.advance(0, skipped=views)

    def note(self, source: str, notes: Iterable[str]) -> None:
        """Remarks about an input that is used."""
        for note in notes:
            self.noted[note] += 1
            if self.noted[note] <= _NOTES_SHOWN:
                log.info(f"{source}: {note}")

    def fail(self, source: str, reason: str, views: int) -> None:
        """An input, or so many views of it, cannot be made."""
        self.report.failures.setdefault(source, reason)
        self.manifest.remark(source, "error", reason)
        self.bar.advance(0, skipped=views)

    def commit(self, writing: Sequence[Writing]) -> None:
        """Make views count: their manifest rows, then their files. Ctrl-C waits until this is done."""
        with uninterrupted():
            rows, moves = [], []
            for row, jobs in writing:
                try:
                    written = {checksum: job.result() for checksum, (_, job) in jobs.items()}
                except OSError as error:
                    if error.errno not in _OF_ONE_PLACE:
                        raise
                    self.fail(row["source"], f"its views cannot be written: {error}", views=1)
                    continue
                moves += [(written[field][0], self.settings.out / name) for field, (name, _) in jobs.items()]
                known = self.manifest.views.get(row["view"], {})
                before = known if known.get("key") == row["key"] else {}  # for files that were there already
                rows.append(completed(row, {field: sum_ for field, (_, sum_) in written.items()}, before))
            self.manifest.append(rows)
            for temporary, final in moves:
                temporary.replace(final)
            self.report.made += len(rows)
        self.bar.advance(len(rows))
        self.bar.note = f"{self.bar.rate / self.settings.k:.2f} images/s"
