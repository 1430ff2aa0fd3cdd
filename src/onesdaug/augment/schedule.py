"""Stage 2, controlled noising: the timesteps that are run for a noise level."""

from __future__ import annotations

from typing import Literal

import numpy as np

from onesdaug.errors import ConfigError
from onesdaug.generators.schedule import NoiseMap, Schedule

__all__ = ["NoiseMap", "Schedule", "Solver", "timesteps"]

Solver = Literal["ddpm", "ddpm-ancestral", "ddim", "dpm++"]


def timesteps(
    schedule: Schedule, steps: int, noise_level: float, noise_map: NoiseMap, solver: Solver
) -> tuple[np.ndarray, np.ndarray]:
    """The timesteps run and the one each leads to (−1: clean).

    Under `strength` they are the last ones of the solver's usual spacing, exactly as img2img takes them: `leading`
    for DDPM and DDIM, `linspace` for DPM-Solver++. Under `cumulative` they start at t0 itself and fall evenly.
    """
    count, total = schedule.steps_run(steps, noise_level, noise_map), len(schedule)
    if steps > total:
        raise ConfigError(f"steps must be at most {total}, the length of the schedule, got {steps}")
    if noise_map == "cumulative":
        t0 = schedule.entry(noise_level, noise_map)
        count = min(count, t0 + 1)  # no timestep twice
        run = np.round(t0 * (count - np.arange(count)) / count).astype(np.int64)
        return run, np.append(run[1:], -1)
    if round(steps * noise_level) < 1:  # below the finest spacing: the one step that cannot be spared starts at eta·T
        return np.array([schedule.entry(noise_level, noise_map)]), np.array([-1])
    if solver == "dpm++":
        full = np.round(np.linspace(0, total - 1, steps + 1))[::-1][:-1].astype(np.int64)
        run = full[steps - count :]
        return run, np.append(run[1:], -1)
    stride = total // steps
    run = np.minimum(np.arange(count)[::-1] * stride + schedule.offset, total - 1)
    return run, np.maximum(run - stride, -1)
