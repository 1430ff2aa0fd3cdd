"""Do views still show their class, and do they differ? Measured by an encoder that was NOT the condition's.

The condition's own encoder would flatter: the generator was trained to please it.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from onesdaug.errors import ConfigError, DataError
from onesdaug.statistics import Summary, mean_ci


@dataclass(frozen=True)
class Faithfulness:
    """Means over images with 95 % intervals; the views of one image are averaged first, they are not independent."""

    cosine: Summary  # of a view to its original
    agreement: Summary  # share of views whose nearest class centroid is the image's class
    original_agreement: Summary  # the same of the originals: what agreement can at best be expected to reach
    diversity: Summary | None  # mean of 1 - cosine over the pairs of views of an image; None for a single view


def cosines(originals: Tensor, views: Tensor) -> Tensor:
    """cos(f(x), f(view)): (N, d), (N, K, d) -> (N, K)."""
    return F.cosine_similarity(originals.unsqueeze(1).double(), views.double(), dim=-1)


def diversities(views: Tensor) -> Tensor:
    """Mean of 1 - cos over the K(K-1)/2 pairs of views: (N, K, d) -> (N,)."""
    return view_diversities(views).mean(1)


def view_diversities(views: Tensor) -> Tensor:
    """Mean of 1 - cos of each view to the others of its image: (N, K, d) -> (N, K).

    For unit vectors v·Σ = 1 + Σ cos over the others, so that no pair has to be looked at.
    """
    k = views.shape[1]
    if k < 2:
        raise ConfigError("diversity needs at least two views of each image")
    unit = F.normalize(views.double(), dim=-1)
    return 1 - ((unit * unit.sum(1, keepdim=True)).sum(-1) - 1) / (k - 1)


def agreements(originals: Tensor, rows: Tensor, labels: Tensor) -> Tensor:
    """Whether the nearest class centroid is the image's class: originals (N, d), rows (N, K, d) -> (N, K) of 0 and 1.

    Centroids are means of the unit features of the originals, nearest is by cosine. The centroid of an image's own
    class leaves the image itself out: otherwise a view that copies its original would count as faithful for that.
    """
    x = F.normalize(originals.double(), dim=-1)
    number: Tensor = torch.unique(labels, return_inverse=True)[1]
    counts = number.bincount()
    if len(counts) < 2 or counts.min() < 2:
        raise DataError("agreement needs two classes or more, and two images or more in each")
    sums = x.new_zeros(len(counts), x.shape[1]).index_add_(0, number, x)
    others = F.normalize(sums[number] - x, dim=-1)  # the direction is all that counts, sum or mean
    rows = rows.double()  # not of unit length: a positive factor moves no argmax
    similarity = rows @ F.normalize(sums, dim=-1).T  # (N, K, C)
    own = number.view(-1, 1, 1).expand(-1, rows.shape[1], 1)
    similarity.scatter_(2, own, rows @ others.unsqueeze(2))
    return (similarity.argmax(-1) == number.unsqueeze(1)).double()


def measure(originals: Tensor, views: Tensor, labels: Tensor) -> Faithfulness:
    """Features of originals (N, d) and of their views (N, K, d), with labels (N,)."""
    if (
        originals.ndim != 2
        or views.ndim != 3
        or views.shape[::2] != originals.shape
        or labels.shape != views.shape[:1]
    ):
        raise DataError(
            f"want originals (N, d), views (N, K, d) and N labels, got {tuple(originals.shape)}, "
            f"{tuple(views.shape)} and {tuple(labels.shape)}"
        )
    return Faithfulness(
        cosine=_over_images(cosines(originals, views)),
        agreement=_over_images(agreements(originals, views, labels)),
        original_agreement=_over_images(agreements(originals, originals.unsqueeze(1), labels)),
        diversity=mean_ci(diversities(views).numpy()) if views.shape[1] > 1 else None,
    )


def _over_images(values: Tensor) -> Summary:
    """(N, K) -> the mean over images of each image's mean over its views."""
    return mean_ci(values.mean(1).numpy())
