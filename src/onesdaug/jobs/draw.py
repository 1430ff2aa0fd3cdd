"""Drawing planned batches: their views, what is recorded of each, and what becomes of a batch that fails.

A job on this machine and workers on others draw with the same code, so their views have the same bytes.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from onesdaug.errors import OnesdaugError, WeightsMissing
from onesdaug.jobs.survey import JobSettings, PlannedView, files_of

if TYPE_CHECKING:
    from PIL import Image

    from onesdaug.augment.operator import Augmenter, Row, View

DISK_FULL = (errno.ENOSPC, errno.EDQUOT)


class Drawing:
    """One augmenter at work on the batches of one job."""

    def __init__(self, augmenter: Augmenter, settings: JobSettings) -> None:
        self.augmenter, self.settings = augmenter, settings
        self.tweaks = settings.save_aug and augmenter.config.shape is not None

    def views_of(self, batch: Sequence[PlannedView]) -> list[View]:
        """One view per row."""
        from onesdaug.augment.operator import Row

        rows = [Row(row.loaded.image, row.k, self.settings.seed, digest=row.digest) for row in batch]
        only_tweaks = not any("view" in row.missing for row in batch)
        return self._geometry(rows) if only_tweaks else self.augmenter.run(rows, self.tweaks)

    def _geometry(self, rows: list[Row]) -> list[View]:
        """The tweaks behind views that are there already: stage 1 alone draws the same psi from the same stream."""
        from onesdaug.augment.operator import Augmenter

        whole = self.augmenter
        stage = Augmenter(None, whole.config, batch_size=whole.batch_size, device=whole.device, side=whole.side)
        table = whole.table
        t0, steps = (table.t0, len(table)) if table is not None else (0, 0)
        return [replace(view, t0=t0, steps_run=steps) for view in stage.run(rows, tweaked=True)]

    def settled(
        self, batch: Sequence[PlannedView], outcome: Callable[[], list[View]] | None = None
    ) -> Iterator[tuple[Sequence[PlannedView], list[View] | str]]:
        """A batch's views; if it fails, each of its images alone, so that one bad image costs only itself.

        In place of the views of an image that fails alone stands the reason.
        """
        try:
            views = self.views_of(batch) if outcome is None else outcome()
        except WeightsMissing:
            raise
        except Exception as error:
            if isinstance(error, OSError) and error.errno in DISK_FULL:
                raise
            items = dict.fromkeys(row.item for row in batch)
            if len(items) > 1:
                for item in items:
                    one = [row for row in batch if row.item == item]
                    yield from self.settled(one, partial(self.views_of, one))
                return
            yield batch, str(error) if isinstance(error, OnesdaugError) else f"{type(error).__name__}: {error}"
            return
        yield batch, views

    def pictures(self, row: PlannedView, view: View) -> list[tuple[str, str, Image.Image]]:
        """Path, manifest field of the checksum, and picture of each file of a view that is missing."""
        pictures = {"view": view.image, "tweak": view.tweaked}
        return [
            (name, checksum, image)
            for kind, name, checksum in files_of(row.item, row.k, self.tweaks)
            if kind in row.missing and (image := pictures[kind]) is not None
        ]

    def manifest_row(self, batch: str, row: PlannedView, view: View) -> dict[str, Any]:
        """What is recorded of a view, but for the checksums of its files."""
        config = self.augmenter.config
        return {
            "key": row.key,
            "status": "ok",
            "source": row.item.source,
            "digest": row.digest,
            "size": list(row.loaded.image.size),
            "notes": list(row.loaded.notes),
            "view": row.item.view(row.k),
            "sha256": None,
            "tweak": row.item.tweak(row.k),
            "tweak_sha256": None,
            "k": row.k,
            "seed": self.settings.seed,
            "psi": None if view.psi is None else view.psi.model_dump(mode="json"),
            "t0": view.t0,
            "steps_run": view.steps_run,
            "noise_level": config.noise_level,
            "solver": config.solver,
            "seconds": round(view.seconds, 4),
            "peak_memory_mb": round(view.peak_memory_mb, 1),
            "generator": self.augmenter.fingerprint,
            "config": config.digest(),
            "settings": config.model_dump(mode="json"),
            "batch": batch,
        }


def completed(row: dict[str, Any], sums: dict[str, str], before: dict[str, Any]) -> dict[str, Any]:
    """A view's row with the checksums of its files, of those too that were there `before` with the same key."""
    made_before = before if "sha256" not in sums else {}  # only its tweak is new: its cost stays what it was
    cost: dict[str, Any] = {key: made_before[key] for key in ("seconds", "peak_memory_mb") if key in made_before}
    sums = {key: value for key in ("sha256", "tweak_sha256") if (value := before.get(key))} | sums
    tweak = row["tweak"] if "tweak_sha256" in sums else None
    return {**row, **cost, "sha256": sums["sha256"], "tweak": tweak, "tweak_sha256": sums.get("tweak_sha256")}
