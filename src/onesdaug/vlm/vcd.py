"""Visual contrastive decoding (Leng et al., 2023): l = (1+alpha)·l(v) − alpha·l(v'), with v' the noised image.

Plain functions of tensors, and logits processors that fit `generate(logits_processor=[...])`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache

import numpy as np
import torch
from torch import Tensor

Inputs = dict[str, Tensor]
_STEPS, _LOW, _HIGH = 1000, 1e-5, 5e-3
_BELOW_ONE = 1 - 1e-12  # a draw that rounding cannot push past the last token


@cache
def abar() -> np.ndarray:
    """The cumulative signal of VCD's schedule: betas run along a sigmoid from 1e-5 to 5e-3 over 1000 steps."""
    betas = (_HIGH - _LOW) / (1 + np.exp(-np.linspace(-6, 6, _STEPS))) + _LOW
    return np.asarray(np.cumprod(1 - betas))


def noise_image(pixels: Tensor, noise: Tensor, step: int) -> Tensor:
    """v' = √abar_t·v + √(1−abar_t)·noise, on the tensor the vision tower sees (normalised, not in [0, 1])."""
    signal = float(abar()[step])
    return math.sqrt(signal) * pixels + math.sqrt(1 - signal) * noise


def contrastive_logits(clean: Tensor, noised: Tensor, alpha: float, beta: float = 0.0) -> Tensor:
    """(1+alpha)·clean − alpha·noised; tokens with clean < log(beta) + max clean are masked (beta 0: none are)."""
    contrast = (1 + alpha) * clean - alpha * noised
    if beta <= 0:
        return contrast
    cutoff = math.log(beta) + clean.amax(-1, keepdim=True)
    return contrast.masked_fill(clean < cutoff, -math.inf)


class VCDLogitsProcessor:
    """Contrasts each step's scores with those that follow the same tokens when the image is noised.

    `noised(input_ids)` gives them. The signature is that of transformers' LogitsProcessor.
    """

    def __init__(self, noised: Callable[[Tensor], Tensor], alpha: float, beta: float) -> None:
        self.noised, self.alpha, self.beta = noised, alpha, beta

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        other = self.noised(input_ids).to(scores)
        return contrastive_logits(scores, other, self.alpha, self.beta)


class NoisedLogits:
    """The logits that follow some tokens when the model sees the noised images; the first ones are computed once.

    Later ones are computed anew from the whole text: slower than a cache of keys and values, but right for any model.
    """

    def __init__(self, logits: Callable[[Inputs], Tensor], inputs: Inputs) -> None:
        self._logits, self._inputs = logits, inputs
        self._first = logits(inputs)

    def __call__(self, input_ids: Tensor) -> Tensor:
        start = self._inputs["input_ids"]
        new = input_ids[:, start.shape[1] :]
        if new.shape[1] == 0:
            return self._first
        longer = dict(self._inputs)
        for name, value in self._inputs.items():
            if value.ndim == 2 and value.shape == start.shape:  # masks and token types grow along with the text
                tail = new if name == "input_ids" else torch.full_like(new, name == "attention_mask")
                longer[name] = torch.cat([value, tail.to(value)], dim=1)
        return self._logits(longer)


class SampleLogitsProcessor:
    """Sampling as a logits processor: one token per row by the row's own random stream, all others masked.

    `generate` would draw from the global generator, and a row's answer would hang on who shares its batch.
    """

    def __init__(self, streams: list[np.random.Generator], temperature: float = 1.0) -> None:
        self.streams, self.temperature = streams, temperature

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        # on the host, because not every device has float64, in which 32,000 small masses still add up
        mass = torch.softmax(scores.cpu().double() / self.temperature, -1).cumsum(-1)
        uniform = torch.tensor([min(rng.random(), _BELOW_ONE) for rng in self.streams], dtype=torch.float64)
        # the first token whose cumulative mass exceeds u: a masked one adds none and is never hit
        chosen = torch.searchsorted(mass, (uniform * mass[:, -1])[:, None], right=True)
        return torch.full_like(scores, -math.inf).scatter(-1, chosen.to(scores.device), 0.0)
