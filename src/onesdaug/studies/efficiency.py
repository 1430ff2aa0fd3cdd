"""Seconds per image over noise level and solver, one at a time as the paper has it and many at once."""

from __future__ import annotations

import time
from pathlib import Path
from statistics import median

import torch

from onesdaug.augment.config import preset
from onesdaug.augment.engine import Engine
from onesdaug.augment.operator import Augmenter, default_preset
from onesdaug.common.devices import peak_memory_mb, reset_peak_memory
from onesdaug.common.progress import log
from onesdaug.studies.accuracy import generators_here
from onesdaug.studies.result import Spread, Timing
from onesdaug.studies.spec import Speed, Study
from onesdaug.studies.workshop import Workshop

WARM_UP = 3


def timings(study: Study, shop: Workshop) -> tuple[tuple[Timing, ...], list[str]]:
    """Every generator that is there, and one line for each that is not."""
    assert study.speed is not None  # the grammar of this kind of study
    found: list[Timing] = []
    generators, problems = generators_here(study, shop)
    for generator in generators:
        for solver, steps in study.speed.solvers:
            for level in study.speed.noise_levels:
                config = preset(
                    default_preset(generator), solver=solver, steps=steps, noise_level=level, noise_map="strength"
                )
                with shop.timed("timing"):
                    timing = measure(shop.augmenter(generator, config), Path(generator).name, study.speed)
                log.info(f"{generator}, {solver}, noise {level:g}: {timing.seconds:.4f} s")
                found.append(timing)
    return tuple(found), problems


def measure(augmenter: Augmenter, generator: str, speed: Speed) -> Timing:
    """Images lie on the device already, as those of a running service do; views stay there.

    One at a time a GPU waits for launches, so the time says more about the host than about the work; replayed from
    CUDA graphs it does not.
    """
    config, table, side = augmenter.config, augmenter.table, int(augmenter.side or 0)
    assert table is not None and side  # there is a generator
    shape = (augmenter.batch_size, 3, side, side)
    images = torch.rand(shape, generator=torch.Generator().manual_seed(0)).to(augmenter.device)
    reset_peak_memory(augmenter.device)
    eager = Spread.of(_seconds(augmenter, images[:1], speed.repeats))
    memory, graphs = peak_memory_mb(augmenter.device), None
    many = median(_seconds(augmenter, images, 3)) / len(images)
    if augmenter.device.type == "cuda":
        single = Augmenter(augmenter.generator, config, batch_size=1)
        single.stages.engine = Engine(device=augmenter.device, graphs=True)
        graphs = Spread.of(_seconds(single, images[:1], speed.repeats))
    return Timing(
        generator=generator,
        solver=config.solver,
        steps=config.steps,
        noise_level=config.noise_level,
        steps_run=len(table),
        eager=eager,
        graphs=graphs,
        batch=len(images),
        batch_seconds=many,
        peak_memory_mb=memory,
        paper=speed.paper.get(f"{config.solver} {config.noise_level:g}"),
    )


def _seconds(augmenter: Augmenter, images: torch.Tensor, repeats: int) -> list[float]:
    """After warming up: the first call chooses kernels, the second records a graph where there are any."""
    taken = []
    for _ in range(WARM_UP + repeats):
        began = time.perf_counter()
        augmenter.tensors(images, 1)
        if augmenter.device.type == "cuda":
            torch.cuda.synchronize(augmenter.device)
        taken.append(time.perf_counter() - began)
    return taken[WARM_UP:]
