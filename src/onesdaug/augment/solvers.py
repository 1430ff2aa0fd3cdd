"""Stage 3, the reverse process: a solver is a table, and one loop runs any of them.

Every solver here steps  z' = a·z + b·x0 + c·x0_prev + s·noise  where
x0 = (z − sqrt(1−abar_t)·eps) / sqrt(abar_t). The rows are worked out once, in float64, from the schedule.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch

from onesdaug.common.registry import SOLVERS
from onesdaug.errors import ConfigError
from onesdaug.generators.schedule import NoiseMap, Schedule

Predict = Callable[[torch.Tensor, int], torch.Tensor]  # (z, index of the step) → eps
Noise = Callable[[int], torch.Tensor]  # index of the step → standard normal rows


@dataclass(frozen=True)
class Solver:
    """A function from abar now and abar next (arrays, one entry per step) to the rows a, b, c, s of `StepTable`,
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


@dataclass(frozen=True)
class StepTable:
    """Timesteps (0-based) and the coefficients of each step; all arrays have one entry per step run."""

    t: np.ndarray
    alpha: np.ndarray  # sqrt(abar_t)
    sigma: np.ndarray  # sqrt(1 − abar_t)
    a: np.ndarray
    b: np.ndarray
    c: np.ndarray
    s: np.ndarray

    def __len__(self) -> int:
        return int(self.t.size)

    @property
    def t0(self) -> int:
        """Where the noise goes in: the first timestep that is run."""
        return int(self.t[0])


def table(
    schedule: Schedule, solver: str, steps: int, noise_level: float = 1.0, noise_map: NoiseMap = "strength"
) -> StepTable:
    """The coefficient rows of `solver` from the entry time of `noise_level` down to a clean image."""
    kind = find_solver(solver)
    run, then = timesteps(schedule, steps, noise_level, noise_map, solver)
    now = schedule.abar[run]
    clean = schedule.final_abar if kind.strides else 1.0
    nxt = np.where(then < 0, clean, schedule.abar[np.maximum(then, 0)])
    try:
        a, b, c, s = (np.broadcast_to(np.asarray(row, np.float64), now.shape) for row in kind.rows(now, nxt))
    except (TypeError, ValueError) as error:
        raise ConfigError(f"solver {solver!r} must give a, b, c, s, each a number or one per step: {error}") from error
    if not np.isfinite([a, b, c, s]).all():
        raise ConfigError(f"solver {solver!r} gives coefficients that are not finite; abar next is 1 at the last step")
    return StepTable(run, np.sqrt(now), np.sqrt(1 - now), a, b, c, s)


Row = np.ndarray | float
Rows = tuple[Row, Row, Row, Row]


def _ddpm(now: np.ndarray, nxt: np.ndarray) -> Rows:
    """DDPM's posterior mean (Ho et al., eq. 7) with sigma 0: the paper's mu_phi."""
    alpha = now / nxt
    return np.sqrt(alpha) * (1 - nxt) / (1 - now), np.sqrt(nxt) * (1 - alpha) / (1 - now), 0.0, 0.0


def _ancestral(now: np.ndarray, nxt: np.ndarray) -> Rows:
    """The same mean plus the posterior's noise, sigma² = (1−abar')/(1−abar)·(1−alpha)."""
    a, b, c, _ = _ddpm(now, nxt)
    return a, b, c, np.sqrt((1 - nxt) / (1 - now) * (1 - now / nxt))


def _ddim(now: np.ndarray, nxt: np.ndarray) -> Rows:
    """DDIM (Song et al., eq. 12) with eta 0."""
    a = np.sqrt((1 - nxt) / (1 - now))
    return a, np.sqrt(nxt) - a * np.sqrt(now), 0.0, 0.0


def _dpmpp(now: np.ndarray, nxt: np.ndarray) -> Rows:
    """DPM-Solver++(2M) (Lu et al., algorithm 2), midpoint; the first and the last step are first order."""
    with np.errstate(divide="ignore"):  # the clean end lies at lambda = +infinity
        lam, lam_next = (0.5 * (np.log(x) - np.log1p(-x)) for x in (now, nxt))
    h = lam_next - lam
    gain = -np.sqrt(nxt) * np.expm1(-h)  # alpha' · (1 − e^−h)
    second = np.zeros_like(now)
    if now.size > 2:
        second[1:-1] = 0.5 * h[1:-1] / h[:-2]  # 1 / (2 r), r = h_prev / h
    return np.sqrt((1 - nxt) / (1 - now)), gain * (1 + second), -gain * second, 0.0


DDPM, ANCESTRAL = Solver(_ddpm), Solver(_ancestral)
DDIM = Solver(_ddim, strides=True)
DPMPP = Solver(_dpmpp, spacing="linspace", spaces_end=True)


def denoise(predict: Predict, z: torch.Tensor, rows: StepTable, noise: Noise | None = None) -> torch.Tensor:
    """Run z from t0 to a clean latent. No host sync and fixed shapes, whatever the solver."""
    previous = torch.zeros_like(z)
    for i in range(len(rows)):
        eps = predict(z, i).to(z.dtype)
        x0 = (z - float(rows.sigma[i]) * eps) / float(rows.alpha[i])
        z = float(rows.a[i]) * z + float(rows.b[i]) * x0 + float(rows.c[i]) * previous
        if noise is not None and rows.s[i] > 0:
            z = z + float(rows.s[i]) * noise(i)
        previous = x0
    return z
