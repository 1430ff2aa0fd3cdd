"""Solver tables against diffusers' own schedulers, step by step."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import pytest
import torch

from onesdaug.augment.solvers import denoise, table
from onesdaug.generators.schedule import Schedule

SD = {
    "beta_start": 0.00085,
    "beta_end": 0.012,
    "beta_schedule": "scaled_linear",
    "num_train_timesteps": 1000,
    "steps_offset": 1,
}


def peer(solver: str, schedule: Schedule, spacing: dict[str, str]) -> Any:
    """The diffusers scheduler that `solver` stands for, with SD 1.5's settings and its tables in float64.

    diffusers keeps them in float32, whose rounding (up to 7e-6 in a step) would hide the algebra under test.
    """
    from diffusers import DDIMScheduler, DDPMScheduler, DPMSolverMultistepScheduler

    abar = torch.from_numpy(schedule.abar)
    if solver == "dpm++":
        scheduler: Any = DPMSolverMultistepScheduler(**SD, **spacing)
        scheduler.alpha_t, scheduler.sigma_t = abar.sqrt(), (1 - abar).sqrt()
        scheduler.lambda_t = scheduler.alpha_t.log() - scheduler.sigma_t.log()
    elif solver == "ddim":
        scheduler = DDIMScheduler(**SD, **spacing, clip_sample=False, set_alpha_to_one=False)
        scheduler.final_alpha_cumprod = abar[0]
    else:
        scheduler = DDPMScheduler(**SD, **spacing, clip_sample=False)
    assert (scheduler.alphas_cumprod - abar).abs().max() < 1e-6
    scheduler.alphas_cumprod = abar
    return scheduler


def start_peer(scheduler: Any, steps: int, strength: float) -> torch.Tensor:
    """The timesteps that img2img would run at this strength."""
    scheduler.set_timesteps(steps)
    start = steps - min(int(steps * strength), steps)
    if hasattr(scheduler, "set_begin_index"):
        scheduler.set_begin_index(start)
    if hasattr(scheduler, "sigmas"):
        abar = scheduler.alphas_cumprod[scheduler.timesteps]
        scheduler.sigmas = torch.cat([((1 - abar) / abar).sqrt(), torch.zeros(1, dtype=torch.float64)])
    timesteps: torch.Tensor = scheduler.timesteps[start:]
    return timesteps


def eps_of(z: torch.Tensor, t: int) -> torch.Tensor:
    """A nonlinear noise predictor, different at every t; mild, as DPM-Solver++ rounds its state to float32."""
    return 0.5 * torch.sin(z + t / 100) + 0.3 * z


def peer_step(scheduler: Any, eps: torch.Tensor, t: int, z: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
    """One step of diffusers, with the noise that its DDPM draws for itself replaced by ours."""
    with patch("diffusers.schedulers.scheduling_ddpm.randn_tensor", lambda *_, **__: noise):
        out: torch.Tensor = scheduler.step(eps, t, z).prev_sample
    return out


@pytest.mark.parametrize("strength", [0.3, 0.7, 1.0])
@pytest.mark.parametrize("steps", [10, 20, 50])
@pytest.mark.parametrize("spacing", [None, "leading", "linspace", "trailing"])
@pytest.mark.parametrize("solver", ["ddpm", "ddpm-ancestral", "ddim", "dpm++"])
def test_tables_equal_diffusers(solver: str, spacing: str | None, steps: int, strength: float) -> None:
    """The same timesteps, the same result of every single step, and the same end of the whole run."""
    asked = {} if spacing is None else {"timestep_spacing": spacing}  # none: as in SD 1.5's own file
    schedule = Schedule.from_scheduler_config({**SD, **asked, "set_alpha_to_one": False})
    rows = table(schedule, solver, steps, strength)
    scheduler = peer(solver, schedule, asked)
    timesteps = start_peer(scheduler, steps, strength)
    assert rows.t.tolist() == timesteps.tolist()

    random = torch.Generator().manual_seed(0)
    start, *noise = torch.randn(1 + len(rows), 2, 4, 8, 8, generator=random, dtype=torch.float64)
    if solver == "ddpm":  # sigma 0, the paper's choice: diffusers has no such setting, its noise is set to zero here
        noise = [torch.zeros_like(start)] * len(rows)

    theirs, previous = start, torch.zeros_like(start)
    for i, t in enumerate(timesteps):
        eps = eps_of(theirs, int(t))
        x0 = (theirs - rows.sigma[i] * eps) / rows.alpha[i]
        ours = rows.a[i] * theirs + rows.b[i] * x0 + rows.c[i] * previous + rows.s[i] * noise[i]
        theirs, previous = peer_step(scheduler, eps, t, theirs, noise[i]), x0
        assert (ours - theirs).abs().max().item() < 1e-6 * theirs.abs().max().item(), f"step {i}"

    whole = denoise(lambda z, i: eps_of(z, int(rows.t[i])), start, rows, lambda i: noise[i])
    assert (whole - theirs).abs().max().item() < 1e-6 * theirs.abs().max().item()
