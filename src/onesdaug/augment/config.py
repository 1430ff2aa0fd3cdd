"""The operator's settings: validated, frozen, with the paper's defaults."""

from __future__ import annotations

import hashlib
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from onesdaug.augment.presets import PRESETS
from onesdaug.augment.shape import ShapeTweak
from onesdaug.common.registry import SOLVERS
from onesdaug.errors import ConfigError

Fit = Literal["squash", "pad", "crop"]


class AugmentConfig(BaseModel):
    """upsilon = (psi, eta, lambda_img) of the paper's operator, the solver, and how images meet the generator."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    noise_level: float = Field(
        0.7, ge=0, le=1, description="eta: near 0 the tweaked image stays, at 1 only noise is left of it"
    )
    noise_map: Literal["strength", "cumulative"] = Field(
        "strength", description="how eta becomes t0: eta·T (img2img), or the paper's equation 1−abar = eta²"
    )
    noise_space: Literal["latent", "pixel"] = Field("latent", description="add the noise after or before encoding")
    steps: int = Field(20, ge=1, le=1000, description="denoising steps of a full run; eta decides how many are run")
    solver: str = Field(
        "ddpm-ancestral",
        description="ddpm-ancestral is DDPM as usually run; ddpm is the paper's equation read literally (sigma 0)",
    )
    guidance: float = Field(9.0, ge=1, description="classifier-free guidance scale; 1 is off")
    guidance_interval: tuple[float, float] = Field(
        (0.0, 1.0), description="share of the schedule, t/T from and to, in which guidance is on"
    )
    image_scale: float = Field(0.8, ge=0, description="lambda_img, weight of the image tokens; 0 is off")
    attention: Literal["decoupled", "concat"] = Field(
        "decoupled",
        description="image tokens in a softmax of their own (IP-Adapter), or joined to the text's",
    )
    condition: bool = Field(True, description="condition on the original image at all")
    mode: Literal["self", "class"] | None = Field(
        None,
        description="what the condition stands for, where the generator knows both (pocket): this very image, or any "
        "image of its class; None is the generator's own choice",
    )
    prompt: str = Field("", description="optional text prompt pi")
    fit: Fit = Field("squash", description="how a non-square image meets a square generator")
    shape: ShapeTweak | None = Field(default_factory=ShapeTweak, description="the shape tweak, or None for none")

    @field_validator("solver")
    @classmethod
    def _known(cls, value: str) -> str:
        SOLVERS.check(value)  # its error is a ValueError, which pydantic reports with the field's name
        return value

    @field_validator("guidance_interval")
    @classmethod
    def _ordered(cls, value: tuple[float, float]) -> tuple[float, float]:
        if not 0.0 <= value[0] <= value[1] <= 1.0:
            raise ValueError("must be two rising numbers in [0, 1]")
        return value

    @property
    def conditioned(self) -> bool:
        """Whether the image branch takes part: image_scale 0 means the same as condition=False."""
        return self.condition and self.image_scale > 0

    @property
    def from_condition_alone(self) -> bool:
        """Whether nothing of the image enters but through the condition: tweak and noising have no effect then."""
        return self.noise_level == 1.0

    def digest(self) -> str:
        """Name of these settings, for cache keys."""
        return hashlib.blake2b(self.model_dump_json().encode(), digest_size=8).hexdigest()


def preset(name: str, **overrides: Any) -> AugmentConfig:
    """The settings called `name`, with any of them replaced."""
    settings = PRESETS.get(name)
    try:
        return AugmentConfig(**{**settings, **overrides})
    except ValidationError as error:
        raise ConfigError(explain(error)) from error


def explain(error: ValidationError) -> str:
    """A validation error as one readable line per field."""
    return "\n".join(
        f"{'.'.join(str(part) for part in item['loc'])}: {item['msg']}, got {item['input']!r}"
        for item in error.errors(include_url=False)
    )
