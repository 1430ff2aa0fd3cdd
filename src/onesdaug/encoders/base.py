"""The one interface of everything that looks: images in, features out. And of what can be trained to look."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from onesdaug.encoders.preprocess import Preprocess


class Backbone(nn.Module):
    """A network that can be trained here: preprocessed images (B,3,crop,crop) → features (B,dim)."""

    dim: int
    default_preprocess: Preprocess

    def anneal(self, progress: float) -> None:
        """Told how far training is, from 0 to 1; for what is to come in slowly."""


class Encoder:
    """A frozen network with the preprocessing that belongs to it.

    `module` maps preprocessed images (B,3,size,size) to features (B,dim).
    """

    def __init__(self, module: nn.Module, preprocess: Preprocess, dim: int, name: str, fingerprint: str) -> None:
        self.module = module.eval().requires_grad_(False)
        self.preprocess = preprocess
        self.dim = dim
        self.name = name
        self.fingerprint = fingerprint  # of weights and preprocessing: what a feature bank is keyed by

    @property
    def size(self) -> int:
        """Side of the square the network sees."""
        return self.preprocess.crop

    @property
    def short_side(self) -> int:
        """What it resizes the short side of an image to: smaller images are enlarged, larger ones lose pixels."""
        return self.preprocess.resize

    @property
    def device(self) -> torch.device:
        tensor = next(self.module.parameters(), None)
        return torch.device("cpu") if tensor is None else tensor.device

    def to(self, device: torch.device | str) -> Encoder:
        self.module.to(device)
        return self

    @torch.inference_mode()
    def embed(self, images: Tensor | Sequence[Tensor], batch: int = 256) -> Tensor:
        """(B,3,H,W), uint8 or float in [0,1], any size → (B,dim) float32, where `images` lies.

        A list holds images (3,H,W) of sizes of their own: cut out one by one, looked at together.
        """
        rows = [self._look(images[i : i + batch]) for i in range(0, len(images), batch)]
        return torch.cat(rows) if rows else torch.empty(0, self.dim)

    def _look(self, images: Tensor | Sequence[Tensor]) -> Tensor:
        if isinstance(images, Tensor):
            frames = self.preprocess(images.to(self.device))
        else:
            frames = torch.cat([self.preprocess(image[None].to(self.device)) for image in images])
        found: Tensor = self.module(frames)
        return found.float().to(images[0].device)

    __call__ = embed

    def __repr__(self) -> str:
        return f"Encoder({self.name}, dim={self.dim}, size={self.size}, fingerprint={self.fingerprint})"
