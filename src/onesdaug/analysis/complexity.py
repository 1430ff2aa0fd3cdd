"""Rademacher complexity of the linear class {Ω -> w·Ω, ||w|| <= B} and its generalisation gap (section 4.2, Prop. 3).

The supremum over w is reached in the direction of the sum, so there is nothing to optimise:

    R̂ = B/m · E_σ||Σ_i σ_i Ω_i||  <=  B/m · √(Σ_i||Ω_i||²)  <=  B·max_i||Ω_i|| / √m

The first step is Jensen's and costs at most a factor √2 (Khintchine's inequality in a Hilbert space, Latała &
Oleszkiewicz, 1994: E||Σσx|| >= √(Σ||x||²/2)); the second costs whatever the longest feature exceeds the others by.

The gap has a closed form too where the loss is linear, ℓ(f, y) = -y·f, which is 1-Lipschitz (`generalization_gap`):

    sup_f L(f) - L̂(f) = B·||mean_i y_i Ω_i - E[yΩ]||,   E_T sup_f (L - L̂)  <=  2·E_T R̂  <=  2B/√m · E_T max_i||Ω_i||

A lower complexity is no better accuracy by itself: features scaled by ½ have half of it and the same answers, because
B would double. It bounds how far training and test risk lie apart at a fixed B, not where either lies.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from onesdaug.errors import ConfigError, DataError

_STEP = 128  # sign vectors at a time


@dataclass(frozen=True)
class Complexity:
    """The Monte-Carlo value with its standard error, and the two upper bounds of the proof."""

    value: float
    standard_error: float
    rms_bound: float  # B/m·√(Σ||Ω_i||²)
    radius_bound: float  # the paper's: B·max||Ω_i||/√m
    m: int


def complexity(features: Tensor, norm_bound: float = 1.0, *, draws: int = 1000, seed: int = 0) -> Complexity:
    """Features (m, d), weights with ||w|| <= B = `norm_bound`, `draws` sign vectors.

    Signs depend on m and seed alone, so that features before and after averaging meet the same ones.
    """
    if features.ndim != 2 or not len(features):
        raise DataError(f"want features (m, d), got {tuple(features.shape)}")
    if draws < 2:
        raise ConfigError(f"a standard error needs at least two draws, not {draws}")
    if norm_bound <= 0:
        raise ConfigError(f"norm_bound must be positive, not {norm_bound}")
    rng, x, m = np.random.default_rng(seed), features.double(), len(features)
    parts = []
    for start in range(0, draws, _STEP):
        signs = rng.integers(0, 2, (min(_STEP, draws - start), m), dtype=np.int8) * 2 - 1
        parts.append(torch.linalg.vector_norm(torch.from_numpy(signs).double() @ x, dim=1))
    norms, lengths = torch.cat(parts), torch.linalg.vector_norm(x, dim=1)
    return Complexity(
        value=norm_bound / m * float(norms.mean()),
        standard_error=norm_bound / m * _standard_error(norms),
        rms_bound=norm_bound / m * float(lengths.square().sum().sqrt()),
        radius_bound=norm_bound * float(lengths.max()) / m**0.5,
        m=m,
    )


@dataclass(frozen=True)
class Gap:
    """E_T sup_f (L_D(f) - L̂_T(f)) over samples T of m images of two classes, and the proposition's two bounds."""

    value: float
    standard_error: float
    complexity_bound: float  # 2·E_T[R̂_T]
    radius_bound: float  # 2B/√m·E_T[max_i||Ω_i||]
    m: int


def generalization_gap(
    features: Tensor, labels: Tensor, norm_bound: float = 1.0, *, m: int = 50, draws: int = 1000, seed: int = 0
) -> Gap:
    """Features (N, d) with labels (N,): in each draw D is two classes, equally likely, and T m images of them.

    Classes, images and signs follow from labels, m and seed alone, so that features before and after averaging meet
    the same samples.
    """
    numbers, names = labels.cpu().numpy(), torch.unique(labels).cpu().numpy()
    if features.ndim != 2 or numbers.shape != features.shape[:1] or len(names) < 2:
        raise DataError(f"want features (N, d) with N labels of two classes or more, got {tuple(features.shape)}")
    if m < 1 or draws < 2:
        raise ConfigError(f"want m >= 1 images and two draws or more, not {m} and {draws}")
    rng, x = np.random.default_rng(seed), features.double()
    members = [np.flatnonzero(numbers == name) for name in names]
    means = torch.stack([x[torch.from_numpy(rows)].mean(0) for rows in members])
    gaps, sums, radii = (torch.empty(draws, dtype=torch.float64) for _ in range(3))
    for draw in range(draws):
        pair = rng.choice(len(names), 2, replace=False)
        sides = rng.integers(0, 2, m)  # the label of each image, as an index into the pair
        part = rng.random(m)
        rows = np.where(sides, *(of[(part * len(of)).astype(np.int64)] for of in (members[pair[1]], members[pair[0]])))
        sample, y = x[torch.from_numpy(rows)], torch.from_numpy(1.0 - 2.0 * sides)
        signs = torch.from_numpy(2.0 * rng.integers(0, 2, m) - 1.0)
        expected = (means[pair[0]] - means[pair[1]]) / 2
        gaps[draw] = torch.linalg.vector_norm(y @ sample / m - expected)
        sums[draw] = torch.linalg.vector_norm(signs @ sample) / m
        radii[draw] = torch.linalg.vector_norm(sample, dim=1).max()
    return Gap(
        value=norm_bound * float(gaps.mean()),
        standard_error=norm_bound * _standard_error(gaps),
        complexity_bound=2 * norm_bound * float(sums.mean()),
        radius_bound=2 * norm_bound * float(radii.mean()) / m**0.5,
        m=m,
    )


def _standard_error(values: Tensor) -> float:
    return float(values.std() / len(values) ** 0.5)
