"""Accuracy on validation classes while training: embed once, then episodes are tensor algebra."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from onesdaug.data.dataset import Dataset
from onesdaug.encoders.preprocess import Preprocess
from onesdaug.fewshot.episodes import sample_episodes
from onesdaug.fewshot.heads import Head
from onesdaug.fewshot.recipes import Optimisation
from onesdaug.training.stage import mixed_precision

TEMPERATURES = tuple(2.0**k for k in range(-6, 11))


class Validator:
    """The same episodes of the same images every time it is asked; networks are left in eval mode."""

    def __init__(
        self, data: Dataset, preprocess: Preprocess, device: torch.device, config: Optimisation, seed: int = 1
    ) -> None:
        self.images = torch.from_numpy(data.images).to(device)
        self.preprocess, self.device = preprocess, device
        c = config
        self.episodes = {
            shot: sample_episodes(data.labels, c.eval_way, shot, c.eval_query, c.num_eval_episodes, seed)
            for shot in c.eval_shots
        }

    @torch.inference_mode()
    def embed(self, encoder: nn.Module, batch: int = 512) -> Tensor:
        encoder.eval()
        features = []
        with mixed_precision(self.device):
            for images in torch.split(self.images, batch):
                seen = self.preprocess(images.permute(0, 3, 1, 2))
                features.append(encoder(seen.contiguous(memory_format=torch.channels_last)).float())
        return torch.cat(features)

    @torch.inference_mode()
    def logits(self, features: Tensor, head: Head, shot: int, chunk: int = 500) -> tuple[Tensor, Tensor]:
        """Logits (E,Q,N) and targets (Q,) of all episodes of one shot."""
        head.eval()
        episodes = self.episodes[shot]
        sides = episodes.support.to(self.device), episodes.query.flatten(1).to(self.device)
        chunks = zip(*(torch.split(rows, chunk) for rows in sides), strict=True)
        logits = [head(features[support], features[query]) for support, query in chunks]
        return torch.cat(logits), episodes.targets.to(self.device)

    def accuracy(self, features: Tensor, head: Head) -> dict[int, float]:
        """Percent, per shot."""
        found = {}
        for shot in self.episodes:
            logits, targets = self.logits(features, head, shot)
            found[shot] = 100 * float((logits.argmax(-1) == targets).float().mean())
        return found

    def best_temperature(self, features: Tensor, head: Head) -> float:
        """The power of two that calibrates the logits of temperature 1 best (lowest loss), first shot only."""
        logits, targets = self.logits(features, head, next(iter(self.episodes)))
        raw, repeated = logits.flatten(0, 1).float(), targets.repeat(len(logits))
        return min(TEMPERATURES, key=lambda t: float(F.cross_entropy(raw / t, repeated)))
