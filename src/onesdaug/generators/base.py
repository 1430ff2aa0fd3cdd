"""The Generator protocol: what a network must offer to draw views. One row per sample, always."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import torch

from onesdaug.generators.schedule import Schedule


class Predictor(Protocol):
    """The noise predictor eps_phi(z, t, tokens)."""

    def __call__(
        self, z: torch.Tensor, t: torch.Tensor, tokens: torch.Tensor, image_scale: torch.Tensor
    ) -> torch.Tensor: ...


@runtime_checkable
class Generator(Protocol):
    """An image-conditioned latent diffusion model. Images are (B, 3, size, size) in [0, 1].

    Optional, used only when asked for: `image_tokens(x, prompt)` and `null_tokens(n, prompt)` for text prompts,
    `image_tokens(x, mode=…)` for a generator with several kinds of condition, `predict(..., attention=…)` for
    concatenated image tokens, `accelerate(mode)` with the attribute `compiled` for compiled networks, `shares_rows`
    and `prepared(tokens)` for work that guidance's two sides or all steps have in common, and the attributes
    `device`, `dtype`, `fingerprint`.
    """

    size: int  # side of the square images it works on
    schedule: Schedule  # the schedule it was trained with

    def encode(self, x: torch.Tensor) -> torch.Tensor:
        """Enc: images → latents (deterministic: the posterior's mean)."""

    def decode(self, z: torch.Tensor) -> torch.Tensor:
        """Dec: latents → images in [0, 1]."""

    def image_tokens(self, x: torch.Tensor) -> torch.Tensor:
        """Condition tokens (B, L, d), row i from image i."""

    def null_tokens(self, n: int) -> torch.Tensor:
        """n rows of the tokens that stand for "no image": the negative side of guidance."""

    def predict(
        self, z: torch.Tensor, t: torch.Tensor, tokens: torch.Tensor, image_scale: torch.Tensor
    ) -> torch.Tensor:
        """eps_phi(z_t, t, c): t and image_scale are (B,) tensors; image_scale 0 switches the image off."""
