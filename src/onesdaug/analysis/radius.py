"""The feature radius before and after averaging (section 4.2), on features and in simulation.

The paper's radius is r = max_i ||Ω_i||, about the origin; its claim, for Ω̄_i = ½(Ω_i⁰ + Ω_i¹) and m > 1, is
P(max||Ω̄_i|| < max||Ω_i⁰||) > ½ when originals and views come "from the same continuous distribution". The proof
swaps the two sets, so what it needs is:

- independent and identical draws (m > 1): then it holds, though heavy tails bring it as close to ½ as one likes;
- only exchangeable sets (all that a view's dependence on its original can leave): >= ½ where the two largest norms
  never tie, and ½ is reached; they always tie for views that copy their original, and the probability is 0;
- views with norms of their own (no generator promises the originals' distribution): nothing follows.

The remark that more views make it likelier needs finite means: see `pareto` and `one-long` with K = 3.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from onesdaug.ensemble.combine import shares
from onesdaug.errors import ConfigError, DataError
from onesdaug.statistics import Summary, mean_ci

Floats = NDArray[np.float64]
Sampler = Callable[[np.random.Generator, tuple[int, int, int, int]], Floats]
Centre = Literal["origin", "set", "class"]
CENTRES: tuple[Centre, ...] = get_args(Centre)
EQUAL = 1e-12  # rounding alone is no reduction


@dataclass(frozen=True)
class Radius:
    """Radii of the originals and of the averages, each about its own centre; per class in the order of the labels."""

    centre: Centre
    before: float  # the paper's max_i ||Ω_i||
    after: float
    rms_before: float  # √mean||Ω_i||²: what the complexity bound really contains, and no single image decides it
    rms_after: float
    class_before: tuple[float, ...]  # max within each class
    class_after: tuple[float, ...]
    images_shrunk: Summary  # share of images whose own norm fell

    @property
    def classes_shrunk(self) -> float:
        pairs = zip(self.class_before, self.class_after, strict=True)
        return sum(b > a for b, a in pairs) / len(self.class_before)


def measure(originals: Tensor, averaged: Tensor, labels: Tensor, centre: Centre = "origin") -> Radius:
    """Features (N, d) of the originals and of their averages with views. `origin` is the paper's definition.

    A linear classifier with a bias, or a prototype, does not see where the origin lies: `set` and `class` measure
    about the mean of all features or of the class, before and after each about its own.
    """
    _check(originals, averaged, labels)
    if centre not in CENTRES:
        raise ConfigError(f"centre must be one of {', '.join(CENTRES)}, not {centre!r}")
    number: Tensor = torch.unique(labels, return_inverse=True)[1]
    before, after = (torch.linalg.vector_norm(_centred(x, number, centre), dim=1) for x in (originals, averaged))
    members = [number == c for c in range(int(number.max()) + 1)]
    return Radius(
        centre=centre,
        before=float(before.max()),
        after=float(after.max()),
        rms_before=float(before.square().mean().sqrt()),
        rms_after=float(after.square().mean().sqrt()),
        class_before=tuple(float(before[rows].max()) for rows in members),
        class_after=tuple(float(after[rows].max()) for rows in members),
        images_shrunk=mean_ci((after < before * (1 - EQUAL)).double().numpy()),
    )


def overlap(features: Tensor, labels: Tensor) -> float:
    """rms distance of features to their class mean / rms distance of class means to their mean.

    A radius can shrink because everything does, which changes no answer; this ratio only falls when classes part.
    """
    number: Tensor = torch.unique(labels, return_inverse=True)[1]
    means = _class_means(features.double(), number)
    within = (features.double() - means[number]).square().sum(1).mean()
    between = (means - means.mean(0)).square().sum(1).mean()
    return float((within / between).sqrt())


@dataclass(frozen=True)
class Distribution:
    """How originals and K views are drawn, and what the paper's assumption comes to there."""

    sample: Sampler
    assumption: Literal["independent", "exchangeable", "violated"]
    note: str


def reduction(
    sample: Sampler,
    rng: np.random.Generator,
    *,
    m: int = 5,
    d: int = 8,
    views: int = 1,
    trials: int = 4000,
    original_weight: float = 0.5,
) -> Summary:
    """P(r̂ < r_orig), simulated: m images of d-dimensional features with `views` views each, `trials` times."""
    if min(m, d, views, trials) < 1:
        raise ConfigError("m, d, views and trials must be at least 1")
    x = sample(rng, (trials, 1 + views, m, d))
    averaged = np.average(x, axis=1, weights=shares(views, original_weight))
    before, after = (np.linalg.norm(v, axis=-1).max(-1) for v in (x[:, 0], averaged))
    return mean_ci((after < before * (1 - EQUAL)).astype(np.float64))


def _gaussian(rng: np.random.Generator, shape: tuple[int, int, int, int]) -> Floats:
    return rng.standard_normal(shape)


def _sphere(rng: np.random.Generator, shape: tuple[int, int, int, int]) -> Floats:
    x = rng.standard_normal(shape)
    unit: Floats = x / np.linalg.norm(x, axis=-1, keepdims=True)
    return unit


def _pareto(rng: np.random.Generator, shape: tuple[int, int, int, int]) -> Floats:
    """Norms U^(-10): the tail index 0.1 is about the heaviest whose squares float64 holds."""
    length: Floats = (1 - rng.random((*shape[:-1], 1))) ** -10
    return _sphere(rng, shape) * length


def _correlated(rng: np.random.Generator, shape: tuple[int, int, int, int], rho: float = 0.99) -> Floats:
    shared = rng.standard_normal((shape[0], 1, *shape[2:]))
    mixed: Floats = np.sqrt(rho) * shared + np.sqrt(1 - rho) * rng.standard_normal(shape)
    return mixed


def _one_long(rng: np.random.Generator, shape: tuple[int, int, int, int]) -> Floats:
    """All columns show the same features; in one of them, drawn per trial, they are twice as long."""
    x = np.broadcast_to(rng.standard_normal((shape[0], 1, *shape[2:])), shape).copy()
    x[np.arange(shape[0]), rng.integers(shape[1], size=shape[0])] *= 2
    return x


def _copies(rng: np.random.Generator, shape: tuple[int, int, int, int], factor: float = 1.0) -> Floats:
    x = np.repeat(rng.standard_normal((shape[0], 1, *shape[2:])), shape[1], axis=1)
    x[:, 1:] *= factor
    return x


DISTRIBUTIONS: dict[str, Distribution] = {
    "gaussian": Distribution(_gaussian, "independent", "near certain"),
    "anisotropic": Distribution(
        lambda rng, shape: _gaussian(rng, shape) * np.logspace(0, -2, shape[-1]), "independent", "in effect d = 1"
    ),
    "far": Distribution(
        lambda rng, shape: _gaussian(rng, shape) + 20 * np.eye(1, shape[-1])[0], "independent", "mean far from origin"
    ),
    "sphere": Distribution(_sphere, "independent", "all norms tied: the proof's ½ is 0, the claim holds all the same"),
    "cauchy": Distribution(lambda rng, shape: rng.standard_cauchy(shape), "independent", "no mean"),
    "pareto": Distribution(_pareto, "independent", "tail index 0.1: close to ½; false for three views"),
    "correlated": Distribution(_correlated, "exchangeable", "views like their originals: close to ½"),
    "one-long": Distribution(_one_long, "exchangeable", "exactly 1/(1+K): ½ is reached, more views lower it"),
    "copies": Distribution(_copies, "exchangeable", "0: nothing shrinks"),
    "longer": Distribution(lambda rng, shape: _copies(rng, shape, 1.1), "violated", "0: every radius grows"),
}


def _centred(features: Tensor, number: Tensor, centre: Centre) -> Tensor:
    x = features.double()
    if centre == "origin":
        return x
    return x - (x.mean(0) if centre == "set" else _class_means(x, number)[number])


def _class_means(x: Tensor, number: Tensor) -> Tensor:
    counts = number.bincount()
    return x.new_zeros(len(counts), x.shape[1]).index_add_(0, number, x) / counts.unsqueeze(1)


def _check(originals: Tensor, averaged: Tensor, labels: Tensor) -> None:
    if originals.ndim != 2 or averaged.shape != originals.shape or labels.shape != originals.shape[:1]:
        raise DataError(
            f"want two sets of features (N, d) and N labels, got {tuple(originals.shape)}, "
            f"{tuple(averaged.shape)} and {tuple(labels.shape)}"
        )
