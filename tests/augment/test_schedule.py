"""Stage 2: where a noise level enters the schedule, and what is really run."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from onesdaug import Schedule
from onesdaug.augment.solvers import timesteps
from onesdaug.errors import ConfigError

SD = Schedule.scaled_linear(offset=1)
betas = st.lists(st.floats(1e-5, 0.5), min_size=1, max_size=60)
solvers = st.sampled_from(["ddpm", "ddpm-ancestral", "ddim", "dpm++"])


@pytest.mark.parametrize(
    ("eta", "t0"), [(0.1, 10), (0.2, 42), (0.25, 63), (0.5, 202), (0.7, 348), (0.75, 392), (1.0, 999)]
)
def test_cumulative_entry_of_sd15(eta: float, t0: int) -> None:
    """The table of the design: 0-based index into SD 1.5's abar."""
    assert SD.entry(eta, "cumulative") == t0


@pytest.mark.parametrize(("eta", "t0"), [(0.0, 0), (0.02, 20), (0.1, 100)])
@pytest.mark.parametrize("solver", ["ddim", "dpm++"])
def test_less_noise_than_one_step_enters_at_its_own_time(eta: float, t0: int, solver) -> None:
    """With 4 steps the spacing is 250: rounding up would add far more noise than was asked for."""
    run, then = timesteps(SD, 4, eta, "strength", solver)
    assert (run.tolist(), then.tolist()) == ([t0], [-1])


@pytest.mark.parametrize(("eta", "t0", "steps"), [(0.25, 201, 5), (0.5, 451, 10), (0.7, 651, 14), (1.0, 951, 20)])
def test_strength_enters_where_img2img_does(eta: float, t0: int, steps: int) -> None:
    run, then = timesteps(SD, 20, eta, "strength", "ddim")
    assert (run[0], len(run), then[-1]) == (t0, steps, -1)


@given(betas, st.floats(0, 1), st.floats(0, 1))
def test_more_noise_never_enters_earlier(values: list[float], one: float, other: float) -> None:
    schedule = Schedule.from_betas(values)
    low, high = sorted((one, other))
    for kind in ("strength", "cumulative"):
        assert 0 <= schedule.entry(low, kind) <= schedule.entry(high, kind) < len(schedule)


@given(betas, st.floats(0, 1))
def test_cumulative_is_the_argmin_of_the_equation(values: list[float], eta: float) -> None:
    schedule = Schedule.from_betas(values)
    miss = np.abs((1 - schedule.abar) - eta**2)
    assert miss[schedule.entry(eta, "cumulative")] == miss.min()


@given(st.integers(1, 200), st.floats(0, 1), st.sampled_from(["strength", "cumulative"]), solvers)
def test_steps_run_are_at_least_one_and_fall_to_clean(steps: int, eta: float, kind, solver) -> None:
    run, then = timesteps(SD, steps, eta, kind, solver)
    assert 1 <= len(run) <= steps
    assert np.all(np.diff(run) < 0) and run[-1] >= 0 and run[0] < len(SD)
    assert then[-1] == -1 or (solver != "dpm++" and steps > 500)  # a stride of 1 ends at t = 0 itself
    if kind == "strength":
        assert len(run) == max(1, round(steps * eta))


@given(betas)
def test_betas_become_cumulative_products(values: list[float]) -> None:
    schedule = Schedule.from_betas(values)
    assert np.allclose(schedule.abar, np.cumprod(1 - np.array(values)))
    assert len(schedule) == len(values)


def test_noise_is_variance_preserving() -> None:
    x, noise = torch.randn(64, 64), torch.randn(64, 64)
    noisy = SD.add_noise(x, noise, 300)
    assert torch.allclose(noisy, SD.abar[300] ** 0.5 * x + (1 - SD.abar[300]) ** 0.5 * noise, atol=1e-6)
    assert abs(noisy.var().item() - 1) < 0.1


def test_scheduler_configs_equal_diffusers() -> None:
    from diffusers import DDPMScheduler

    for kind in ("linear", "scaled_linear", "squaredcos_cap_v2"):
        peer = DDPMScheduler(beta_schedule=kind, beta_start=0.00085, beta_end=0.012)
        ours = Schedule.from_scheduler_config(peer.config)
        assert np.abs(ours.abar - peer.alphas_cumprod.numpy()).max() < 2e-6


@pytest.mark.parametrize(
    ("call", "word"),
    [
        (lambda: Schedule.from_betas([]), "non-empty"),
        (lambda: Schedule.from_betas([0.1, 1.0]), "between 0 and 1"),
        (lambda: Schedule(np.array([0.5, 0.6])), "falling"),
        (lambda: SD.entry(1.2), r"\[0, 1\]"),
        (lambda: SD.steps_run(0, 0.5), "at least 1"),
        (lambda: timesteps(SD, 1001, 1.0, "strength", "ddim"), "at most 1000"),
        (lambda: Schedule.from_scheduler_config({"beta_schedule": "odd"}), "odd"),
    ],
)
def test_impossible_schedules_are_refused(call, word: str) -> None:
    with pytest.raises(ConfigError, match=word):
        call()
