"""The measurements: the paper's table, rates over the batch size, time per stage, growth with K and with images.

Pictures lie on the device already and views stay there, as in a running service; `folder` goes from files to files.
Where networks are compiled every batch size is a compilation of its own: its seconds are given apart (`first`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from onesdaug.augment.operator import Augmenter
from onesdaug.bench.subject import Subject
from onesdaug.common.clock import Timed, repeat
from onesdaug.common.devices import reset_peak_memory
from onesdaug.generators.speed import switches
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


@torch.no_grad()
def stages(subject: Subject, batch: int, seconds: float) -> Record:
    """Seconds of each part of one batch, the least seen: parts are compared, and others use the machine too.

    `host` is what the whole takes beyond its parts.
    """
    augmenter = subject.augmenter(batch)
    generator, made = subject.generator, augmenter.stages
    assert made.table is not None
    x, device = subject.images(batch), subject.device
    z, tokens = generator.encode(x), generator.image_tokens(x)
    condition = [tokens, torch.ones(batch, device=device)]
    condition += [generator.null_tokens(batch)] if any(made.guided) else []
    step_noise = [torch.zeros_like(z)] * int((made.table.s > 0).sum())
    parts: dict[str, Callable[[], object]] = {
        "encode": lambda: generator.encode(x),
        "tokens": lambda: generator.image_tokens(x),
        "denoise": lambda: made._denoised(z, *condition, *step_noise),
        "decode": lambda: generator.decode(z),
    }
    taken = {name: min(repeat(work, device, seconds / 5).each) for name, work in parts.items()}
    taken["denoise"] = max(0.0, taken["denoise"] - taken["decode"])  # timed as one, as it runs
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
