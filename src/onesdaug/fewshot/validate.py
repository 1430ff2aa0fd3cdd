"""Accuracy on validation classes while training: embed once, then episodes are tensor algebra."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from onesdaug.data.dataset import Dataset
from onesdaug.encoders.preprocess import Preprocess
from onesdaug.fewshot.episodes import Episodes, sample_episodes
from onesdaug.fewshot.heads import Head
from onesdaug.fewshot.recipes import Optimisation
from onesdaug.training.loop import mixed_precision

TEMPERATURES = tuple(2.0**k for k in range(-6, 11))


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """eval mode inside; afterwards every part is as it was (training keeps some parts frozen)."""
    modes = [(m, m.training) for m in module.modules()]
    module.eval()
    try:
        yield
    finally:
        for m, mode in modes:
            m.training = mode


class Validator:
    """The same episodes of the same images every time it is asked."""

    def __init__(
        self,
        data: Dataset,
        preprocess: Preprocess,
        device: torch.device,
        config: Optimisation,
        seed: int = 1,
    ) -> None:
        self.images = torch.from_numpy(data.images).to(device)
        self.preprocess, self.device = preprocess, device
        c = config
        self.episodes: dict[int, Episodes] = {
            shot: sample_episodes(data.labels, c.eval_way, shot, c.eval_query, c.num_eval_episodes, seed)
            for shot in c.eval_shots
        }

    @torch.inference_mode()
    def embed(self, encoder: nn.Module, batch: int = 512) -> Tensor:
        with evaluating(encoder), mixed_precision(self.device):
            rows = [
                encoder(
                    self.preprocess(self.images[i : i + batch].permute(0, 3, 1, 2)).contiguous(
                        memory_format=torch.channels_last
                    )
                ).float()
                for i in range(0, len(self.images), batch)
            ]
        return torch.cat(rows)

    @torch.inference_mode()
    def logits(self, features: Tensor, head: Head, shot: int, chunk: int = 500) -> tuple[Tensor, Tensor]:
        """Logits (E,Q,N) and targets (Q,) of all episodes of one shot."""
        episodes = self.episodes[shot]
        with evaluating(head):
            parts = [
                head(
                    features[episodes.support[i : i + chunk].to(self.device)],
                    features[episodes.query[i : i + chunk].flatten(1).to(self.device)],
                )
                for i in range(0, len(episodes), chunk)
            ]
        return torch.cat(parts), episodes.targets.to(self.device)

    def accuracy(self, features: Tensor, head: Head) -> dict[int, float]:
        """Percent, per shot."""
        found = {}
        for shot in self.episodes:
            logits, targets = self.logits(features, head, shot)
            found[shot] = 100 * float((logits.argmax(-1) == targets).float().mean())
        return found

    def best_temperature(self, features: Tensor, head: Head, current: float) -> float:
        """The power of two that makes the head's logits best calibrated (lowest cross-entropy), first shot only."""
        logits, targets = self.logits(features, head, next(iter(self.episodes)))
        raw = logits.flatten(0, 1).float() * current
        repeated = targets.repeat(len(logits))
        return min(TEMPERATURES, key=lambda t: float(F.cross_entropy(raw / t, repeated)))
