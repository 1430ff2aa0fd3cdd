"""The operator's settings: validated, frozen, with the paper's defaults."""

from __future__ import annotations

import hashlib
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from onesdaug.augment.presets import PRESETS
from onesdaug.augment.shape import ShapeTweak
from onesdaug.common.options import IP_REPO, Checked, CompileMode, Decoder, Device, Dtype, ModelName, Side
from onesdaug.common.registry import SOLVERS
from onesdaug.errors import ConfigError

Fit = Literal["squash", "pad", "crop"]


class AugmentConfig(Checked):
    """upsilon = (psi, eta, lambda_img) of the paper's operator, the solver, and how images meet the generator."""

    noise_level: float = Field(
        0.7, ge=0, le=1, description="Eta: at 0 the tweaked image stays, at 1 only noise is left of it"
    )
    noise_map: Literal["strength", "cumulative"] = Field(
        "strength", description="Eta → t0: strength is eta·T (img2img), cumulative the paper's equation 1−abar = eta²"
    )
    noise_space: Literal["latent", "pixel"] = Field("latent", description="Where noise is added: latent or pixel")
    steps: int = Field(20, ge=1, le=1000, description="Denoising steps of a full run; eta decides how many are run")
    solver: str = Field(
        "ddpm-ancestral",
        description=f"{SOLVERS.choices()}; ddpm-ancestral is DDPM as usually run, ddpm the paper's equation read "
        "literally (sigma 0)",
    )
    guidance: float = Field(9.0, ge=1, description="Classifier-free guidance scale; 1 is off")
    guidance_interval: tuple[float, float] = Field(
        (0.0, 1.0), description="Guidance only where t/T lies between these two: cheaper elsewhere"
    )
    image_scale: float = Field(0.8, ge=0, description="Weight of the image tokens, lambda_img; 0 is off")
    attention: Literal["decoupled", "concat"] = Field(
        "decoupled",
        description="Image tokens: decoupled (a softmax of their own, IP-Adapter) or concat (joined to the text's)",
    )
    condition: bool = Field(True, description="Condition on the original image")
    mode: Literal["self", "class"] | None = Field(
        None,
        description="pocket: the condition stands for this very image (self) or any image of its class (class)",
    )
    prompt: str = Field("", description="Optional text prompt pi")
    fit: Fit = Field("squash", description="Non-square images: squash, pad or crop")
    shape: ShapeTweak | None = Field(default_factory=ShapeTweak, description="The shape tweak, or None for none")
    _tuned_for: str = ""  # fingerprint of the one generator these were tuned with; empty: any

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

    def check_generator(self, fingerprint: str) -> None:
        """Tuned settings hold for one set of weights; with others nothing that was measured does."""
        if self._tuned_for not in ("", fingerprint):
            raise ConfigError(
                f"these settings were tuned with generator {self._tuned_for}, not {fingerprint}: tune again"
            )

    def digest(self) -> str:
        """Name of these settings, for cache keys."""
        return hashlib.blake2b(self.model_dump_json().encode(), digest_size=8).hexdigest()


class GeneratorOptions(BaseModel):
    """Which generator draws, and how it is loaded: the arguments of `Augmenter.from_pretrained`."""

    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=())

    name: ModelName = "pocket"
    ip_repo: str = Field(IP_REPO, description="Where the IP-Adapter weights are")
    ip_weights: str | None = Field(None, description="Which file of --ip-repo")
    device: Device = "auto"
    dtype: Dtype = "auto"
    batch_size: int | None = Field(None, ge=1, description="Views computed at once; else chosen")
    vae_tiling: bool = Field(False, description="Less memory for large pictures")
    vae_slicing: bool = Field(False, description="Less memory for large batches")
    compile: CompileMode = "off"
    side: Side = None
    decoder: Decoder = None


def preset(name: str, **overrides: Any) -> AugmentConfig:
    """The settings called `name`, or those that `onesdaug tune` left in a file, with any of them replaced."""
    if name.endswith(".json"):
        from onesdaug.augment.tuned import Tuned

        return Tuned.read(name).settings(**overrides)
    return AugmentConfig(**{**PRESETS.get(name), **overrides})
