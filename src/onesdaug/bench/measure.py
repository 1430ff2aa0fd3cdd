"""The measurements: the limit, the paper's table, rates over the batch size, time per stage, growth with K and images.

Pictures lie on the device already and views stay there, as in a running service; `folder` goes from files to files.
Where networks are compiled every batch size is a compilation of its own: its seconds are given apart (`first`).
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from onesdaug.augment.operator import Augmenter
from onesdaug.bench.subject import Subject
from onesdaug.common.clock import Timed, repeat
from onesdaug.common.devices import reset_peak_memory
from onesdaug.data.pixels import to_pil
from onesdaug.errors import OnesdaugError
from onesdaug.generators.speed import switches
from onesdaug.jobs.job import run_job
from onesdaug.jobs.plan import list_inputs
from onesdaug.jobs.survey import JobSettings
from onesdaug.report.records import Timing
from onesdaug.studies.kinds.efficiency import Speed, time_views, to_timing

Record = dict[str, Any]
_BATCHES = 4  # in one call, where rates are measured on a GPU
_FEW = 8  # up to this batch size the time of a single batch is what people ask for


def efficiency(subject: Subject, grid: Speed, batch: int, seconds: float) -> Iterator[Timing]:
    """The paper's efficiency table: every solver at every noise level, one image at a time and `batch` at once.

    `seconds` are for the whole table; each of its numbers gets its share.
    """
    images = subject.images(batch)
    share = seconds / (2 * len(grid.solvers) * len(grid.noise_levels))
    for solver, steps in grid.solvers:
        for level in grid.noise_levels:
            settings = {"solver": solver, "steps": steps, "noise_level": level, "noise_map": "strength"}
            single, many = subject.augmenter(1, **settings), subject.augmenter(batch, **settings)
            reset_peak_memory(subject.device)
            one = views(single, images[:1], share)
            memory = single.peak_memory_mb()
            yield to_timing(single, subject.name, grid, one, batch, views(many, images, share).sustained, memory)


def views(augmenter: Augmenter, images: torch.Tensor, seconds: float, k: int = 1) -> Timed:
    """Shapes are recorded when they are met a second time: in the first call already, if it has several batches."""
    again = augmenter.stages.engine.records and len(images) * k <= augmenter.batch_size
    return time_views(augmenter, images, seconds, k, warm_ups=2 if again else 1)


def rate(subject: Subject, batch: int, seconds: float, **settings: Any) -> Record:
    """Sustained views per second, each with its own reference, at one batch size.

    On a GPU a call has several batches, unless they are small: the host prepares one while another is computed.
    """
    reset_peak_memory(subject.device, free=True)
    augmenter = subject.augmenter(batch, **settings)
    batches = _BATCHES if subject.device.type != "cpu" and batch > _FEW else 1
    taken = views(augmenter, subject.images(batches * batch), seconds)
    return {
        "batch": batch,
        "batches_per_call": batches,
        "views_per_second": batches * batch / taken.sustained,
        "latency_seconds": taken.median / batches,
        "first_seconds": taken.first,
        "calls": len(taken.each),
        "peak_memory_mb": augmenter.peak_memory_mb(),
        "cuda_graphs": augmenter.stages.engine.records,
        "batch_kept": augmenter.batch_size == batch,  # false: memory ran out and it was halved
        "switches": switches(),
    }


def matmul_limit(device: torch.device, dtype: torch.dtype, seconds: float) -> tuple[float, float]:
    """Operations per second of one large matrix product in this precision: the best of what was seen, and sustained.

    A chip at its power limit slows down after a moment: what lasts for seconds is the sustained one.
    """
    side = 8192 if device.type == "cuda" else 1024
    a, b = (torch.randn(side, side, device=device, dtype=dtype) for _ in range(2))
    taken = repeat(lambda: a @ b, device, seconds, most=10**6)
    return 2 * side**3 / min(taken.each), 2 * side**3 / taken.sustained


def stage_work(augmenter: Augmenter, x: torch.Tensor) -> dict[str, Callable[[], object]]:
    """The stages of one view of each picture; `denoise` decodes as well: they run as one."""
    generator, made = augmenter.generator, augmenter.stages
    assert generator is not None and made.table is not None
    z, tokens = generator.encode(x), generator.image_tokens(x)
    condition = [tokens, torch.ones(len(x), device=augmenter.device)]
    condition += [generator.null_tokens(len(x))] if any(made.guided) else []
    step_noise = [torch.zeros_like(z)] * int((made.table.s > 0).sum())
    return {
        "encode": lambda: generator.encode(x),
        "tokens": lambda: generator.image_tokens(x),
        "denoise": lambda: made._denoised(z, *condition, *step_noise),
        "decode": lambda: generator.decode(z),
    }


@torch.no_grad()
def flops(augmenter: Augmenter) -> dict[str, float]:
    """Operations of one view by stage, counted on one row of networks that are not compiled yet."""
    side, counted = int(augmenter.side or 0), {}
    for name, work in stage_work(augmenter, torch.rand(1, 3, side, side, device=augmenter.device)).items():
        # plain attention: the counter knows matrix products everywhere, fused kernels only on some devices
        with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
            work()
        counted[name] = float(counter.get_total_flops())
    return {**counted, "denoise": counted["denoise"] - counted["decode"]}


@torch.no_grad()
def stages(subject: Subject, batch: int, seconds: float) -> Record:
    """Seconds of each part of one batch, the least seen: parts are compared, and others use the machine too.

    `host` is what the whole takes beyond its parts.
    """
    augmenter = subject.augmenter(batch)
    x = subject.images(batch)
    work = stage_work(augmenter, x)
    taken = {name: min(repeat(part, subject.device, seconds / 5).each) for name, part in work.items()}
    taken["denoise"] = max(0.0, taken["denoise"] - taken["decode"])
    whole = min(views(augmenter, x, seconds / 5).each)
    taken["host"] = max(0.0, whole - sum(taken.values()))
    return {"batch": batch, "whole": whole, **taken}


def growth(subject: Subject, batch: int, seconds: float, most: int = 16) -> Record:
    """Seconds and peak memory over K and over the number of images, each from one batch up to `most` of them.

    Doubled as long as the time lasts, twice at least: the first points tell what the next will take.
    """
    augmenter = subject.augmenter(batch)
    lines: dict[str, list[Record]] = {"over_k": [], "over_images": []}
    views(augmenter, subject.images(batch), 0.0)  # warms up

    def point(count: int, k: int) -> Record:
        # pictures and views lie on the host: what is on the device is the operator's own
        images = subject.images(count).cpu()
        reset_peak_memory(subject.device, free=True)
        taken = views(augmenter, images, 0.0, k).median
        return {"images": count, "k": k, "seconds": taken, "peak_memory_mb": augmenter.peak_memory_mb()}

    spent, factor = 0.0, 1
    while factor <= most and (factor <= 4 or 4 * spent < seconds):
        lines["over_k"].append(point(batch, factor))
        lines["over_images"].append(point(batch * factor, 1))
        spent = 2 * sum(line[-1]["seconds"] for line in lines.values())
        factor *= 2
    return {"batch": batch, **lines}


def linearity(points: Sequence[Record], along: str) -> float:
    """Seconds of the last point over what the first would give if cost were proportional; 1 is linear."""
    first, last = points[0], points[-1]
    return float(last["seconds"] / (first["seconds"] * last[along] / first[along]))


def folder(
    subject: Subject, images: int, batch: int, seconds: float = 0.0, k: int = 1, in_memory: float | None = None
) -> Record:
    """What of the rate in memory is left from files to files: a folder job over `images` JPEGs.

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
