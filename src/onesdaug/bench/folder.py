"""From files to files: what of the rate in memory is left when pictures are decoded and views written."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from PIL import Image

from onesdaug.bench.measure import rate
from onesdaug.bench.subject import Subject
from onesdaug.data.pixels import to_pil
from onesdaug.errors import OnesdaugError
from onesdaug.jobs.job import run_job
from onesdaug.jobs.plan import list_inputs
from onesdaug.jobs.survey import JobSettings


def folder(
    subject: Subject, images: int, batch: int, seconds: float = 0.0, k: int = 1, in_memory: float | None = None
) -> dict[str, Any]:
    """A folder job over `images` JPEGs a little larger than the generator's square, beside the rate in memory.

    That rate is measured for so many seconds, unless it is known (`in_memory`, in views per second).
    """
    memory = in_memory or float(rate(subject, batch, seconds)["views_per_second"])
    with tempfile.TemporaryDirectory() as place:
        inputs, out = Path(place) / "in", Path(place) / "out"
        write_photos(subject, inputs, images)
        augmenter = subject.augmenter(batch)
        # to warm up, which is not part of the rate: one batch compiles, the second is recorded
        first = [inputs / f"p{number}.jpg" for number in range(min(images, 2 * batch))]
        run_job(augmenter, list_inputs(first, out), JobSettings(out / "warm", k))
        summary = run_job(augmenter, list_inputs([inputs], out), JobSettings(out / "all", k))
    if summary.failures:
        raise OnesdaugError(f"{summary.failed} of {images} pictures failed: {next(iter(summary.failures.values()))}")
    per_second = summary.made / summary.seconds
    return {
        "images": images, "k": k, "batch": batch, "seconds": summary.seconds, "views_per_second": per_second,
        "in_memory_views_per_second": memory, "share_of_in_memory": per_second / memory,
    }  # fmt: skip


def write_photos(subject: Subject, folder: Path, count: int) -> None:
    """Pictures of the size photographs come in: a quarter wider than high, a quarter larger than the square."""
    folder.mkdir(parents=True)
    size = (int(subject.side * 1.56), int(subject.side * 1.25))
    few = [picture.resize(size, Image.Resampling.BICUBIC) for picture in to_pil(subject.images(16).cpu())]
    for number in range(count):
        picture = few[number % len(few)].copy()
        picture.putpixel((number % size[0], number // size[0]), (255, 0, 0))  # no two are the same
        picture.save(folder / f"p{number}.jpg", quality=92)
