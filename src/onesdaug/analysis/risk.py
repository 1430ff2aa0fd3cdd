"""The paper's risk decomposition (section 4.1), exact for any number of views, weights, classes and real predictions.

With R(g) = ¼·E[(g(x) - y)²], y and f, f_A in {-1, 1}, and f̃ = ½(f + f_A), the paper's proposition is

    R(f̃) - R(f) = ¼(E[f·y] - E[f_A·y]) + ⅛(E[f·f_A] - 1)        accuracy gap + diversity term (never positive)

It is right, and a case of the ambiguity decomposition (Krogh & Vedelsby, 1995): for weights w_0 = w, w_k = (1 - w)/K
and f̃ = Σ w_k f_k,

    R(f̃) - R(f_0) = Σ_k w_k (R(f_k) - R(f_0)) - c·Σ_k w_k E||f_k - f̃||²        R(g) = c·E||g(x) - y||²

where nothing needs to be ±1: c = ¼ for scores against y in {-1, 1}, c = ½ for class vectors (then one-hot votes have
their misclassification as risk, and two classes give the paper's numbers).

What it does not say: R(f̃) is a squared loss, in which an undecided f̃ = 0 costs ¼, not the ½ of a coin. With a coin
on ties, two sign votes err exactly R(f) + accuracy gap: the diversity term buys no accuracy there (`coin_error`).
And it averages predictions; averaging embeddings, as the operator does, is another ensemble.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from onesdaug.ensemble.combine import shares
from onesdaug.errors import ConfigError, DataError
from onesdaug.statistics import Summary, mean_ci

TIE = 1e-9  # weights such as three times 1/6 do not sum to 1/2 exactly


@dataclass(frozen=True)
class Terms:
    """One value per sample, float64. The two risks are measured; nothing is inferred from the other fields."""

    original: Tensor  # c·||f_0 - y||²
    averaged: Tensor  # c·||f̃ - y||²
    accuracy_gap: Tensor  # Σ_k w_k (c·||f_k - y||² - c·||f_0 - y||²)
    diversity: Tensor  # -c·Σ_k w_k ||f_k - f̃||²

    @property
    def difference(self) -> Tensor:
        return self.averaged - self.original

    @property
    def residual(self) -> float:
        """By how much the identity is missed, at worst: rounding."""
        return float((self.difference - self.accuracy_gap - self.diversity).abs().max())

    def by_unit(self) -> Terms:
        """(U, …) -> (U,), the mean within each unit (episode): samples that share one are not independent."""
        return Terms(*(_by_unit(value) for value in vars(self).values()))


@dataclass(frozen=True)
class Risk:
    """Means over units with 95 % intervals; a negative difference means that averaging lowers the risk."""

    original: Summary
    averaged: Summary
    difference: Summary
    accuracy_gap: Summary
    diversity: Summary
    residual: float


@dataclass(frozen=True)
class Votes:
    """Original and views of each sample as voters: the risk of the vote, and what accuracy sees of it."""

    risk: Risk
    original: Summary  # accuracy of the original alone
    view: Summary  # accuracy of one view alone
    disagreement: Summary  # share of views that answer otherwise than their original
    error_change: Summary  # misclassification of the vote (a coin on ties) minus the original's


def view_weights(views: int, original_weight: float = 0.5) -> Tensor:
    """w on the original, (1 - w)/K on each view: (1+K,) float64."""
    if views < 1:
        raise ConfigError("a decomposition needs at least one view")
    return torch.tensor(shares(views, original_weight), dtype=torch.float64)


def score_terms(scores: Tensor, y: Tensor, original_weight: float = 0.5) -> Terms:
    """The paper's binary setting: scores (U, …, 1+K), column 0 the original's, and y (U, …) in {-1, 1}."""
    if scores.ndim < 2 or scores.shape[:-1] != y.shape:
        raise DataError(f"want scores (N, 1+K) and N labels, got {tuple(scores.shape)} and {tuple(y.shape)}")
    if not bool((y.abs() == 1).all()):
        raise DataError("labels must be -1 or 1")
    return _terms(scores.unsqueeze(-1), y.unsqueeze(-1), original_weight, 0.25)


def class_terms(probabilities: Tensor, targets: Tensor, original_weight: float = 0.5) -> Terms:
    """C classes: probabilities, or any class vectors, (U, …, 1+K, C) and the class numbers (U, …)."""
    if probabilities.ndim < 3 or probabilities.shape[:-2] != targets.shape:
        raise DataError(
            f"want probabilities (N, 1+K, C) and N targets, got {tuple(probabilities.shape)} and "
            f"{tuple(targets.shape)}"
        )
    wanted = F.one_hot(targets.long(), probabilities.shape[-1])
    return _terms(probabilities, wanted, original_weight, 0.5)


def votes(answers: Tensor, targets: Tensor, classes: int, original_weight: float = 0.5) -> Votes:
    """Hard answers (U, …, 1+K) as one-hot votes: the paper's sign predictors for more than two classes."""
    parts, errors = [], []
    for start in range(0, len(answers), 256):  # one-hot in float64: not all at once
        wanted = targets[start : start + 256]
        one_hot = F.one_hot(answers[start : start + 256].long(), classes)
        parts.append(class_terms(one_hot, wanted, original_weight).by_unit())
        errors.append(_by_unit(coin_error(one_hot, wanted, original_weight)))
    terms = Terms(*(torch.cat([vars(part)[name] for part in parts]) for name in vars(parts[0])))
    right = (answers == targets.unsqueeze(-1)).double()
    other = (answers[..., 1:] != answers[..., :1]).double()
    return Votes(
        risk=summarise(terms),
        original=mean_ci(_by_unit(right[..., 0]).numpy()),
        view=mean_ci(_by_unit(right[..., 1:]).numpy()),
        disagreement=mean_ci(_by_unit(other).numpy()),
        error_change=mean_ci((torch.cat(errors) - terms.original).numpy()),
    )


def summarise(terms: Terms) -> Risk:
    """Means and intervals over the first axis."""
    units = terms.by_unit()
    return Risk(
        original=mean_ci(units.original.numpy()),
        averaged=mean_ci(units.averaged.numpy()),
        difference=mean_ci(units.difference.numpy()),
        accuracy_gap=mean_ci(units.accuracy_gap.numpy()),
        diversity=mean_ci(units.diversity.numpy()),
        residual=terms.residual,
    )


def coin_error(probabilities: Tensor, targets: Tensor, original_weight: float = 0.5) -> Tensor:
    """Misclassification of the average, a fair coin on ties: (…, 1+K, C), (…) -> (…). What accuracy sees of it."""
    average = _average(probabilities.double(), view_weights(probabilities.shape[-2] - 1, original_weight))
    best = average >= average.amax(-1, keepdim=True) - TIE
    right = best.gather(-1, targets.long().unsqueeze(-1)).squeeze(-1)
    return 1 - right.double() / best.sum(-1)


def _terms(predictions: Tensor, targets: Tensor, original_weight: float, scale: float) -> Terms:
    f, y = predictions.double(), targets.double()
    weights = view_weights(f.shape[-2] - 1, original_weight)
    average = _average(f, weights)
    risks = scale * (f - y.unsqueeze(-2)).square().sum(-1)  # (…, 1+K)
    ambiguity = scale * (f - average.unsqueeze(-2)).square().sum(-1)
    return Terms(
        original=risks[..., 0],
        averaged=scale * (average - y).square().sum(-1),
        accuracy_gap=(risks - risks[..., :1]) @ weights,
        diversity=-(ambiguity @ weights),
    )


def _average(predictions: Tensor, weights: Tensor) -> Tensor:
    return (predictions * weights.unsqueeze(-1)).sum(-2)


def _by_unit(values: Tensor) -> Tensor:
    return values.flatten(1).mean(1) if values.ndim > 1 else values
