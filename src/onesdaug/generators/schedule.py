"""The variance schedule a generator was trained with, and where a noise level enters it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np
import torch
from pydantic import BaseModel, Field

from onesdaug.errors import ConfigError

NoiseMap = Literal["strength", "cumulative"]
Beta = Annotated[float, Field(gt=0, lt=1, allow_inf_nan=False)]


class SchedulerConfig(BaseModel):
    """What is relied on of the `scheduler_config.json` of a diffusers model."""

    num_train_timesteps: int = Field(1000, ge=1, le=100_000)
    beta_schedule: str = "linear"
    beta_start: Beta = 1e-4
    beta_end: Beta = 0.02
    trained_betas: Annotated[list[Beta], Field(min_length=1, max_length=100_000)] | None = None
    set_alpha_to_one: bool = True
    steps_offset: int = Field(0, ge=0, le=100_000)
    timestep_spacing: Literal["leading", "linspace", "trailing"] | None = None
    prediction_type: str = "epsilon"
    rescale_betas_zero_snr: bool = False


@dataclass(frozen=True)
class Schedule:
    """Cumulative products abar_t of a variance-preserving schedule, in float64, t = 0 … T−1 (0-based).

    The rest are the conventions a diffusers scheduler adds: the step offset of its spaced timesteps, the abar that
    DDIM takes to lie beyond the last step (SD 1.5: abar_0, not 1), and the spacing, None for each solver's usual one.
    """

    abar: np.ndarray
    offset: int = 0
    final_abar: float = 1.0
    spacing: Literal["leading", "linspace", "trailing"] | None = None

    def __post_init__(self) -> None:
        abar = np.asarray(self.abar, dtype=np.float64)
        if abar.ndim != 1 or abar.size == 0 or not np.all((abar > 0) & (abar <= 1)) or np.any(np.diff(abar) > 0):
            raise ConfigError("a schedule's cumulative alphas must be a falling sequence in (0, 1]")
        if self.spacing not in (None, "leading", "linspace", "trailing"):
            raise ConfigError(f"timestep spacing {self.spacing!r} is not known; use leading, linspace or trailing")
        object.__setattr__(self, "abar", abar)

    @classmethod
    def from_betas(cls, betas: Sequence[float] | np.ndarray | torch.Tensor, **conventions: Any) -> Schedule:
        """From any beta sequence: abar_t = prod over tau ≤ t of (1 − beta_tau)."""
        beta = np.asarray(betas, dtype=np.float64)
        if beta.ndim != 1 or beta.size == 0 or not np.all((beta > 0) & (beta < 1)):
            raise ConfigError("betas must be a non-empty sequence with every value strictly between 0 and 1")
        return cls(np.cumprod(1.0 - beta), **conventions)

    @classmethod
    def scaled_linear(
        cls, start: float = 0.00085, end: float = 0.012, steps: int = 1000, **conventions: Any
    ) -> Schedule:
        """Latent diffusion's schedule, linear in sqrt(beta); the defaults are Stable Diffusion's."""
        return cls.from_betas(np.linspace(start**0.5, end**0.5, steps) ** 2, **conventions)

    @classmethod
    def from_scheduler_config(cls, config: Mapping[str, Any]) -> Schedule:
        """From the `scheduler_config.json` of a diffusers model."""
        steps = int(config.get("num_train_timesteps", 1000))
        kind = config.get("beta_schedule", "linear")
        start, end = float(config.get("beta_start", 1e-4)), float(config.get("beta_end", 0.02))
        if config.get("trained_betas") is not None:
            betas = np.asarray(config["trained_betas"], dtype=np.float64)
        elif kind == "linear":
            betas = np.linspace(start, end, steps)
        elif kind == "scaled_linear":
            betas = np.linspace(start**0.5, end**0.5, steps) ** 2
        elif kind == "squaredcos_cap_v2":
            bar = np.cos((np.arange(steps + 1) / steps + 0.008) / 1.008 * math.pi / 2) ** 2
            betas = np.minimum(1 - bar[1:] / bar[:-1], 0.999)
        else:
            raise ConfigError(
                f"beta schedule {kind!r} is not known; use linear, scaled_linear, squaredcos_cap_v2 or trained_betas"
            )
        abar = np.cumprod(1.0 - betas)
        final = 1.0 if config.get("set_alpha_to_one", True) else float(abar[0])
        offset, spacing = int(config.get("steps_offset", 0)), config.get("timestep_spacing")
        return cls(abar, offset=offset, final_abar=final, spacing=spacing)

    def __len__(self) -> int:
        return int(self.abar.size)

    def entry(self, noise_level: float, noise_map: NoiseMap = "strength") -> int:
        """t0 = t(eta), 0-based.

        `cumulative` is the paper's equation, argmin over t of |(1 − abar_t) − eta²|; `strength` is eta·T, as
        img2img counts it and as the paper's timings grow.
        """
        if not 0.0 <= noise_level <= 1.0:
            raise ConfigError(f"noise_level must lie in [0, 1], got {noise_level}")
        if noise_map == "cumulative":
            return int(np.argmin(np.abs((1.0 - self.abar) - noise_level**2)))
        return min(len(self) - 1, round(noise_level * len(self)))

    def steps_run(self, steps: int, noise_level: float, noise_map: NoiseMap = "strength") -> int:
        """How many of `steps` really run from t0: max(1, round(steps · t0 / T)), never 0."""
        if steps < 1:
            raise ConfigError(f"steps must be at least 1, got {steps}")
        share = noise_level if noise_map == "strength" else self.entry(noise_level, noise_map) / len(self)
        return min(steps, max(1, round(steps * share)))

    def noise_std(self, t: int) -> float:
        """sqrt(1 − abar_t): how much of the entry state is noise."""
        return math.sqrt(1.0 - float(self.abar[t]))

    def add_noise(self, x: torch.Tensor, noise: torch.Tensor, t: int) -> torch.Tensor:
        """q(x_t | x): sqrt(abar_t)·x + sqrt(1 − abar_t)·noise."""
        return math.sqrt(float(self.abar[t])) * x + self.noise_std(t) * noise
