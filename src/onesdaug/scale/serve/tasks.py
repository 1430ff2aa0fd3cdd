"""Few-shot tasks that clients registered: support features in memory, and how a query is answered from them."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from onesdaug.scale.serve.body import Refused

if TYPE_CHECKING:
    from torch import Tensor

    from onesdaug.fewshot.heads import Head


@dataclass(frozen=True)
class Task:
    """A support set: labels in their order, and the feature of each image with its views, (N, S, d)."""

    labels: tuple[str, ...]
    support: Tensor
    seed: int
    weight: float  # of the original beside its views


class Tasks:
    """All tasks of the service; ids are not to be guessed, for who knows one may use it."""

    def __init__(self, head: str, most: int) -> None:
        self.name, self.most = head, most
        self.head: Head | None = None
        self.known: dict[str, Task] = {}

    def check_room(self) -> None:
        if len(self.known) >= self.most:
            raise Refused(429, f"there are {self.most} tasks already; delete one first", retry=60)

    def add(self, labels: tuple[str, ...], features: list[np.ndarray], seed: int, weight: float) -> str:
        """Register the features (1+K, d) of all images, class after class."""
        import torch

        self.check_room()  # again: others may have come while the features were computed
        rows = torch.stack([combined(one, weight) for one in features])
        number = secrets.token_urlsafe(16)
        self.known[number] = Task(labels, rows.reshape(len(labels), -1, rows.shape[-1]), seed, weight)
        return number

    def get(self, number: str) -> Task:
        if number not in self.known:
            raise Refused(404, "there is no such task; tasks end with the service, and when they are deleted")
        return self.known[number]

    def remove(self, number: str) -> None:
        self.get(number)
        del self.known[number]

    def classify(self, task: Task, features: np.ndarray) -> dict[str, Any]:
        """The answer for the image with its views, and what each of them alone would have said."""
        import torch

        from onesdaug.ensemble.combine import shares
        from onesdaug.fewshot.heads import build_head

        if self.head is None:
            self.head = build_head(self.name, task.support.shape[-1]).eval()
        each = torch.from_numpy(np.array(features)).float()
        query = torch.cat([combined(features, task.weight)[None], each])
        with torch.inference_mode():
            found = self.head(task.support[None], query[None])[0].softmax(-1)
        told = [self._told(task, row) for row in found]
        weights = shares(len(each) - 1, task.weight)
        evidence = [{"view": n, "weight": w, **one} for n, (w, one) in enumerate(zip(weights, told[1:], strict=True))]
        return {**told[0], "evidence": evidence}

    @staticmethod
    def _told(task: Task, row: Tensor) -> dict[str, Any]:
        return {
            "label": task.labels[int(row.argmax())],
            "probabilities": {label: float(p) for label, p in zip(task.labels, row, strict=True)},
        }


def combined(features: np.ndarray, weight: float) -> Tensor:
    """½ of the original's feature and ½/K of each view's, or as it was weighed: (1+K, d) → (d)."""
    import torch

    from onesdaug.ensemble.combine import shares

    rows = torch.from_numpy(np.array(features)).float()
    return torch.tensor(shares(len(rows) - 1, weight)) @ rows
