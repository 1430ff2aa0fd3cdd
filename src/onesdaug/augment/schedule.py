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

    Under `strength` they are the last ones of the full run's, as img2img takes them. Under `cumulative` they start at
    t0 itself and fall evenly.
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
    run = _full_run(schedule, steps, solver)[steps - count :]
    if solver == "ddim":  # by diffusers' convention it steps by the stride, whatever the spacing
        return run, np.maximum(run - total // steps, -1)
    return run, np.append(run[1:], -1)


def _full_run(schedule: Schedule, steps: int, solver: Solver) -> np.ndarray:
    """All `steps` timesteps from the noisiest down, in the model's spacing or, if it has none, the solver's usual one:
    `leading` for DDPM and DDIM, `linspace` for DPM-Solver++.
    """
    total = len(schedule)
    points = steps + 1 if solver == "dpm++" else steps  # DPM-Solver++ spaces its end point too, and leaves it out
    spacing = schedule.spacing or ("linspace" if solver == "dpm++" else "leading")
    if spacing == "trailing":
        full = np.arange(total, 0, -total / steps) - 1
    elif spacing == "linspace":
        full = np.linspace(0, total - 1, points)[::-1]
    else:
        full = np.arange(points)[::-1] * (total // points) + schedule.offset
    return np.clip(np.round(full[:steps]), 0, total - 1).astype(np.int64)
