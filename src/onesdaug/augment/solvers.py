"""Stage 3, the reverse process: a solver is a table, and one loop runs any of them.

Every solver here steps  z' = a·z + b·x0 + c·x0_prev + s·noise  where
x0 = (z − sqrt(1−abar_t)·eps) / sqrt(abar_t). The rows are worked out once, in float64, from the schedule.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from onesdaug.augment.schedule import NoiseMap, Schedule, Solver, find_solver, timesteps
from onesdaug.errors import ConfigError

Predict = Callable[[torch.Tensor, int], torch.Tensor]  # (z, index of the step) → eps
Noise = Callable[[int], torch.Tensor]  # index of the step → standard normal rows


@dataclass(frozen=True)
class Table:
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
) -> Table:
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
    return Table(run, np.sqrt(now), np.sqrt(1 - now), a, b, c, s)


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


def denoise(predict: Predict, z: torch.Tensor, rows: Table, noise: Noise | None = None) -> torch.Tensor:
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
