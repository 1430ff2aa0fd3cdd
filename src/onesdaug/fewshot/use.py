"""How views enter: their number, what the original still weighs, and which of them count. Loads no network."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

if TYPE_CHECKING:
    from torch import Tensor

    from onesdaug.fewshot.bank import FeatureBank


@dataclass(frozen=True)
class ViewUse:
    """How many views stand behind each support and each query image, and what the original still weighs."""

    support: Annotated[int, "Views per support image (else all)", Field(ge=0)] = 0
    query: Annotated[int, "Views per query image (else all)", Field(ge=0)] = 0
    original_weight: Annotated[float, "Weight of the original image", Field(ge=0, le=1)] = 0.5
    normalise: Annotated[bool, "Bring features to length 1 before they are averaged"] = False
    select: Annotated[Literal["all", "similarity"], "All views, or those most like their original"] = "all"
    keep: Annotated[float, "The fraction of views that --select similarity keeps", Field(gt=0, le=1)] = 0.5
    threshold: Annotated[
        float | None, "Views only for queries that the original decides by at most this margin (0 to 1)"
    ] = None
    auto: bool = False  # queries get views one at a time until their answer is settled (`ensemble.select`)

    @property
    def looks(self) -> tuple[int, ...]:
        """With how many views a query is looked at, one after the other."""
        if self.auto:
            return tuple(range(self.query + 1))
        return (self.query,) if self.threshold is None or not self.query else (0, self.query)

    def table(self, bank: FeatureBank, views: int) -> Tensor:
        """The feature that stands for each image with so many of its views: (N, d)."""
        weight = self.original_weight
        return bank.combined(views, weight, normalise=self.normalise, select=self.select, keep=self.keep)
