"""What a head is: support and query features in, logits out. Plus the two distances the heads share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from onesdaug.common.own import calling
from onesdaug.errors import ConfigError


class Head(nn.Module, ABC):
    """Classify the queries of E episodes from their support sets.

    `forward(support (E, N, S, d), query (E, Q, d)) -> logits (E, Q, N)`. Heads are inductive: row q of the logits is
    a function of the support set and query q alone. A new head is one subclass, named `package.module:Class` on the
    command line or registered (docs/extend.md).
    """

    @classmethod
    def build(cls, dim: int, **settings: Any) -> Self:
        """A head for features of `dim` numbers, with the user's settings; most do not need to know `dim`."""
        return cls(**settings)

    @abstractmethod
    def forward(self, support: Tensor, query: Tensor) -> Tensor:
        """The logits."""

    def predict(self, support: Tensor, query: Tensor) -> Tensor:
        """The class 0..N-1 of each query: (E, Q). A head may have a shorter way to it than its logits."""
        logits: Tensor = self(support, query)
        return logits.argmax(-1)

    def forward_train(self, support: Tensor, query: Tensor) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """Logits, and the logits and labels of an auxiliary training loss where the head has one.

        Queries are class-major here (row n·Q + q is of class n), as `Episodes.query.flatten(1)` gives them.
        """
        return self(support, query), None, None


class FunctionHead(Head):
    """A plain f(support, query) → logits; of an nn.Module the weights are the head's."""

    def __init__(self, function: Callable[[Tensor, Tensor], Any], name: str) -> None:
        super().__init__()
        self.function, self.name = function, name

    def forward(self, support: Tensor, query: Tensor) -> Tensor:
        wanted = (*query.shape[:2], support.shape[1])
        given = f"given support {tuple(support.shape)} and query {tuple(query.shape)}"
        with calling(f"head {self.name}, {given},", self.function):
            logits = torch.as_tensor(self.function(support, query))
        if tuple(logits.shape) != wanted:
            raise ConfigError(
                f"head {self.name}, {given}, must give logits (episodes, queries, classes), here {wanted}; it gave "
                f"{tuple(logits.shape)}"
            )
        return logits


def as_head(head: Any, name: str = "") -> Head:
    """A head, or a plain callable f(support, query) as one."""
    if isinstance(head, Head):
        return head
    name = name or str(getattr(head, "__name__", type(head).__name__))
    if not callable(head):
        raise ConfigError(
            f"head {name!r} gives {type(head).__name__}; want a subclass of onesdaug.fewshot.heads.Head, or a "
            "function of support (E, N, S, d) and query (E, Q, d) that gives logits (E, Q, N)"
        )
    return FunctionHead(head, name)


def prototypes(support: Tensor) -> Tensor:
    """Class means p_n = 1/S Σ_s f(x_ns): (E, N, S, d) -> (E, N, d)."""
    return support.squeeze(2) if support.shape[2] == 1 else support.mean(2)


def squared_euclidean(query: Tensor, centres: Tensor) -> Tensor:
    """||q - p||² = ||q||² - 2 q·p + ||p||²: (E, Q, d), (E, N, d) -> (E, Q, N).

    One batched product instead of an (E, Q, N, d) difference. In float32 even under autocast, because the three
    terms cancel and half precision would leave only rounding noise.
    """
    with torch.autocast(query.device.type, enabled=False):
        q, p = query.float(), centres.float()
        norms = _squared_norm(q).unsqueeze(2) + _squared_norm(p).unsqueeze(1)
        return torch.baddbmm(norms, q, p.transpose(1, 2), alpha=-2)


def nearest(query: Tensor, centres: Tensor) -> Tensor:
    """argmin_n ||q - p_n||² = argmin_n ||p_n||² - 2 q·p_n, a third less work without the ||q||² that all n share."""
    return torch.baddbmm(_squared_norm(centres).unsqueeze(1), query, centres.transpose(1, 2), alpha=-2).argmin(-1)


def cosine(query: Tensor, centres: Tensor) -> Tensor:
    """cos(q, p): (E, Q, d), (E, N, d) -> (E, Q, N)."""
    with torch.autocast(query.device.type, enabled=False):
        return F.normalize(query.float(), dim=-1) @ F.normalize(centres.float(), dim=-1).transpose(1, 2)


def _squared_norm(x: Tensor) -> Tensor:
    norm: Tensor = torch.linalg.vecdot(x, x)
    return norm
