"""The host's part of a batch: pictures become canvases before the device works, and its squares views afterwards.

On a GPU both are spread over a few threads (Pillow and torch let go of the interpreter while they work), so that one
batch is prepared and another finished while a third is on the device. On a CPU the cores belong to the networks.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from typing import TypeVar

import torch
from PIL import Image

from onesdaug.augment.config import AugmentConfig
from onesdaug.augment.fit import Geometry, Pictures, from_square, geometry, resize, to_canvas, to_square
from onesdaug.augment.seeds import Seed, image_digest, image_seed
from onesdaug.augment.shape import Psi
from onesdaug.augment.solvers import StepTable
from onesdaug.augment.stages import Drawn, RowTask, check_finite
from onesdaug.data.pixels import to_bytes, to_pil

THREADS = max(2, min(8, os.cpu_count() or 2))
In = TypeVar("In")
Out = TypeVar("Out")


@dataclass(frozen=True)
class Row:
    """One view to be made: the k-th (from 1) of an RGB image, with the user's seed and, if wished, its own scale."""

    image: Image.Image
    k: int
    seed: Seed = 0
    image_scale: float | None = None
    digest: str | None = None  # of the image, where it is known already


@dataclass(frozen=True)
class View:
    """One view made, with everything needed to make it again and what it cost."""

    image: Image.Image
    tweaked: Image.Image | None
    k: int
    seed: Seed
    psi: Psi | None
    t0: int
    steps_run: int
    seconds: float
    peak_memory_mb: float
    noised: Image.Image | None = None


@dataclass(frozen=True)
class Batch:
    """Rows made ready for the device: a canvas and a geometry per image, a task per row."""

    rows: Sequence[Row]
    tasks: list[RowTask]
    geos: list[Geometry]
    canvases: Pictures
    names: list[int]  # of the images: the same object, the same name


def prepare(rows: Sequence[Row], side: int | None, config: AugmentConfig, threads: bool = False) -> Batch:
    """Everything about these rows that needs no device."""
    images: dict[int, int] = {}  # id of an image object → its place in this batch
    for row in rows:
        images.setdefault(id(row.image), len(images))
    unique = {images[id(row.image)]: row.image for row in rows}
    known = {images[id(row.image)]: row.digest for row in rows}
    geos = [geometry(im.height, im.width, side, config.fit) for im in unique.values()]
    canvases = Pictures.of(_each(lambda place: to_canvas(unique[place], geos[place]), unique, threads))
    digests = _each(lambda place: known[place] or image_digest(unique[place]), unique, threads)
    tasks = [
        RowTask(
            place,
            image_seed(row.seed, digests[place]),
            row.k,
            config.image_scale if row.image_scale is None else row.image_scale,
        )
        for row in rows
        for place in [images[id(row.image)]]
    ]
    return Batch(rows, tasks, geos, canvases, list(images))


class PendingBatch:
    """A batch's outcome on its way to the host.

    The copies are put into the device's queue at once: asked for later they would stand behind the next batch.
    """

    def __init__(self, drawn: Drawn, canvases: bool) -> None:
        self.psis = drawn.psis
        self._event: torch.cuda.Event | None = None
        parts = [*drawn.squares.parts, *(drawn.canvases.parts if canvases else ())]
        parts += drawn.noised.parts if drawn.noised else []
        flag = [] if drawn.finite is None else [drawn.finite]
        home = {id(part): _home(part) for part in (*parts, *flag)}
        if parts[0].is_cuda:
            self._event = torch.cuda.Event()  # type: ignore[no-untyped-call]
            # of the device that copies, which need not be the current one
            self._event.record(torch.cuda.current_stream(parts[0].device))
        self._finite = home[id(drawn.finite)] if flag else None
        self.squares = drawn.squares.each(lambda part, _: home[id(part)])
        # the tweaked canvases are large; they come only where something of them is shown
        self.canvases = drawn.canvases.each(lambda part, _: home[id(part)]) if canvases else drawn.canvases
        self.noised = drawn.noised and drawn.noised.each(lambda part, _: home[id(part)])

    def wait(self) -> None:
        """Until everything is there; a result that is not finite is an error."""
        if self._event is not None:
            self._event.synchronize()
        check_finite([self._finite])


def _home(part: torch.Tensor) -> torch.Tensor:
    """A copy on the host, pictures as bytes; from CUDA into pinned memory, without waiting for it."""
    part = to_bytes(part) if part.is_floating_point() else part
    if not part.is_cuda:
        return part.cpu()
    return torch.empty(part.shape, dtype=part.dtype, pin_memory=True).copy_(part, non_blocking=True)


def finish(
    batch: Batch, made: PendingBatch, cost: tuple[float, float], table: StepTable | None, tweaked: bool, threads: bool
) -> list[View]:
    """The views as pictures of their images' sizes; `cost` is one view's seconds and the peak memory."""
    squares, tweaks, psis = made.squares.split(), made.canvases.split(), made.psis
    noised = made.noised.split() if made.noised else None

    def view(i: int) -> View:
        row, geo = batch.rows[i], batch.geos[batch.tasks[i].image]
        return View(
            image=_picture(from_square(squares[i], tweaks[i], geo), geo),
            tweaked=_picture(from_square(to_square(tweaks[i], geo), tweaks[i], geo), geo) if tweaked else None,
            k=row.k,
            seed=row.seed,
            psi=Psi.from_row(psis[i]) if psis is not None else None,
            t0=table.t0 if table is not None else 0,
            steps_run=len(table) if table is not None else 0,
            seconds=cost[0],
            peak_memory_mb=cost[1],
            noised=_picture(from_square(noised[i], tweaks[i], geo), geo) if noised else None,
        )

    return _each(view, range(len(batch.rows)), threads)


def _picture(view: torch.Tensor, geo: Geometry) -> Image.Image:
    return resize(to_pil(view[None])[0], *geo.image)  # type: ignore[return-value]


def _each(work: Callable[[In], Out], items: Iterable[In], threads: bool) -> list[Out]:
    return list(_pool().map(work, items)) if threads else [work(item) for item in items]


@cache
def _pool() -> ThreadPoolExecutor:
    """Shared by all augmenters of the process; its threads start with the first work and end with the process."""
    return ThreadPoolExecutor(THREADS, thread_name_prefix="onesdaug-host")


@cache
def launcher(device: torch.device) -> ThreadPoolExecutor:
    """The one thread that launches overlapped batches on a device, for all augmenters of the process.

    Only one batch at a time may fill the device's queue; and it must not be a new thread each time, because cuDNN
    finds out about its convolutions for each thread anew, which takes seconds.
    """
    return ThreadPoolExecutor(1, thread_name_prefix=f"onesdaug-{device}")
