"""Stage 2, controlled noising: the timesteps that are run for a noise level."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from onesdaug.common.registry import SOLVERS
from onesdaug.errors import ConfigError
from onesdaug.generators.schedule import NoiseMap, Schedule

__all__ = ["NoiseMap", "Schedule", "Solver", "find_solver", "timesteps"]


@dataclass(frozen=True)
class Solver:
    """A function from abar now and abar next (arrays, one entry per step) to the rows a, b, c, s of `solvers.Table`,
    and which timesteps it is usually run at; a plain function is a solver with the usual conventions.
    """

    rows: Callable[[np.ndarray, np.ndarray], Any]
    spacing: Literal["leading", "linspace"] = "leading"  # where the model's schedule names none
    spaces_end: bool = False  # its end point is spaced like the others, and left out
    strides: bool = False  # diffusers' DDIM: steps by the stride whatever the spacing, to the schedule's final abar


def find_solver(spec: str) -> Solver:
    """The solver of that name, or a user's own function."""
    found = SOLVERS.get(spec)
    if not isinstance(found, Solver) and not callable(found):
        raise ConfigError(
            f"solver {spec!r} is {type(found).__name__}; want a function (now, next) → rows, or a Solver"
        )
    return found if isinstance(found, Solver) else Solver(found)


def timesteps(
    schedule: Schedule, steps: int, noise_level: float, noise_map: NoiseMap, solver: str
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
    kind = find_solver(solver)
    run = _full_run(schedule, steps, kind)[steps - count :]
    if kind.strides:
        return run, np.maximum(run - total // steps, -1)
    return run, np.append(run[1:], -1)


def _full_run(schedule: Schedule, steps: int, solver: Solver) -> np.ndarray:
    """All `steps` timesteps from the noisiest down, in the model's spacing or, if it has none, the solver's usual."""
    total = len(schedule)
    points = steps + 1 if solver.spaces_end else steps
    spacing = schedule.spacing or solver.spacing
    if spacing == "trailing":
        full = np.arange(total, 0, -total / steps) - 1
    elif spacing == "linspace":
        full = np.linspace(0, total - 1, points)[::-1]
    else:
        full = np.arange(points)[::-1] * (total // points) + schedule.offset
    return np.clip(np.round(full[:steps]), 0, total - 1).astype(np.int64)
