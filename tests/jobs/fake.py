"""An augmenter whose views depend on everyone in the batch, as rounding on a device does, only more so."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

from PIL import Image

from onesdaug.augment.config import AugmentConfig
from onesdaug.augment.operator import Row, View
from onesdaug.augment.seeds import image_digest
from onesdaug.jobs.job import JobReport, run_job
from onesdaug.jobs.plan import list_inputs
from onesdaug.jobs.survey import JobSettings


class Fake:
    """Stands in for an Augmenter; `bad` images raise, `calls` keeps the size of every batch."""

    fingerprint, overlap, generator = "fake", 1, "drawn"

    def __init__(self, batch_size: int = 4, bad: Sequence[Image.Image] = ()) -> None:
        self.config = AugmentConfig()
        self.batch_size = batch_size
        self.bad = {image_digest(image) for image in bad}
        self.calls: list[int] = []

    def run(self, rows: Sequence[Row], tweaked: bool = False) -> list[View]:
        digests = [image_digest(row.image) for row in rows]
        if self.bad & set(digests):
            raise RuntimeError("this image breaks the network")
        self.calls.append(len(rows))
        together = "".join(f"{d}:{row.k}:{row.seed}," for d, row in zip(digests, rows, strict=True))
        views = []
        for digest, row in zip(digests, rows, strict=True):
            colour = hashlib.blake2b(f"{together}{digest}{row.k}".encode(), digest_size=3).digest()
            picture = Image.new("RGB", row.image.size, tuple(colour))
            views.append(View(picture, row.image if tweaked else None, row.k, row.seed, None, 651, 14, 0.1, 1.0))
        return views


def make(inputs: Path, out: Path, fake: Fake | None = None, **task: object) -> JobReport:
    """Run a job over a folder."""
    listing = list_inputs([inputs], out, recursive=True)
    return run_job(fake or Fake(), listing, JobSettings(out, **task))  # type: ignore[arg-type]


def contents(out: Path) -> dict[str, bytes]:
    """All result files by name."""
    return {str(f.relative_to(out)): f.read_bytes() for f in sorted(out.rglob("*.png"))}
