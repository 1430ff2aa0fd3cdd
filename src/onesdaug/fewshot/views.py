"""Where the views of a bank come from, by name: an Augmenter, traditional edits, or a folder of `onesdaug augment`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

if TYPE_CHECKING:
    from onesdaug.augment.operator import Augmenter

TRADITIONAL = ("crop-flip", "traditional")  # view sources that need no generator and no files


class Views(Protocol):
    """Makes K views of a chunk of images, and can say what they depend on."""

    @property
    def side(self) -> int:
        """Of the square the maker draws on; 0 where it works at any size."""

    def describe(self) -> dict[str, Any]:
        """Everything but k and the seed that decides the views' pixels; JSON."""

    def make(self, images: NDArray[np.uint8], ids: Sequence[str], k: int, seed: int) -> Tensor:
        """(B, H, W, 3) uint8 and the images' ids -> (B, K, 3, H, W) in [0, 1]."""

    def whole(self, images: list[Image.Image], ids: Sequence[str], k: int, seed: int) -> list[list[Image.Image]]:
        """The same for images of any sizes: K views of each, at its size."""


class MadeViews:
    """Views drawn on the spot by anything with `.tensors` (an Augmenter, CropFlip)."""

    def __init__(self, maker: Any, about: dict[str, Any], device: torch.device | None = None, side: int = 0) -> None:
        from onesdaug.ensemble.sources import as_source

        self.source = as_source(maker)
        self.about, self.device, self.side = about, device, side

    def describe(self) -> dict[str, Any]:
        return self.about

    def make(self, images: NDArray[np.uint8], ids: Sequence[str], k: int, seed: int) -> Tensor:
        return self.source.tensors(as_batch(images).to(self.device or "cpu"), k, seed)

    def whole(self, images: list[Image.Image], ids: Sequence[str], k: int, seed: int) -> list[list[Image.Image]]:
        return self.source.images(images, k, seed)


class FolderViews:
    """Views that `onesdaug augment DATA --recursive -o FOLDER` left at FOLDER/class/stem_view1.png and so on."""

    def __init__(self, folder: Path) -> None:
        from onesdaug.jobs.folder import ViewFolder

        self.folder, self.side = ViewFolder(folder), 0

    def describe(self) -> dict[str, Any]:
        return {"source": str(self.folder.path), "manifest": self.folder.checksum}

    def make(self, images: NDArray[np.uint8], ids: Sequence[str], k: int, seed: int) -> Tensor:
        from onesdaug.data.decode import square

        views = [square(view, images.shape[1]) for name in ids for view in self.folder.named(name, k)]
        batch = as_batch(np.stack(views))
        return batch.view(len(ids), k, *batch.shape[1:])

    def whole(self, images: list[Image.Image], ids: Sequence[str], k: int, seed: int) -> list[list[Image.Image]]:
        return [self.folder.named(name, k) for name in ids]


def as_batch(images: NDArray[np.uint8]) -> Tensor:
    """(B, H, W, 3) uint8 -> (B, 3, H, W) float32 in [0, 1]; a copy, because cached images are mapped read-only."""
    return torch.from_numpy(np.array(images)).permute(0, 3, 1, 2).float() / 255


def resolve_views(source: str, preset: str | None = None, device: str = "auto") -> Views:
    """`crop-flip`, `traditional`, a folder written by `onesdaug augment`, or the name of an Augmenter's model."""
    from onesdaug.jobs.manifest import NAME

    if source in TRADITIONAL:
        from dataclasses import asdict

        from onesdaug.common.devices import pick_device
        from onesdaug.ensemble import traditional

        edits = traditional.CropFlip() if source == "crop-flip" else traditional.Traditional()
        return MadeViews(edits, {"source": source, **asdict(edits)}, pick_device(device))
    if (Path(source) / NAME).is_file():
        return FolderViews(Path(source))
    from onesdaug.augment.operator import Augmenter

    return augmenter_views(Augmenter.from_pretrained(source, preset=preset, device=device), source)


def round_trip_views(augmenter: Augmenter, name: str) -> MadeViews:
    """What the generator's autoencoder alone makes of each image; all "views" of an image are the same."""

    def tensors(batch: Tensor, k: int, seeds: Sequence[int | str]) -> Tensor:
        return augmenter.round_trip(batch)[:, None].expand(-1, k, -1, -1, -1)

    about = {"source": f"{name} round trip", "fit": augmenter.config.fit, "generator": augmenter.fingerprint}
    return MadeViews(tensors, about, augmenter.device, augmenter.side or 0)


def augmenter_views(augmenter: Augmenter, name: str) -> MadeViews:
    """The views of an Augmenter that is there already, under a name for people."""
    config = augmenter.config.model_dump(mode="json")
    about = {"source": name, "config": config, "generator": augmenter.fingerprint}
    return MadeViews(augmenter, about, augmenter.device, augmenter.side or 0)
