"""Where the views of a bank come from, by name: an Augmenter, traditional edits, or a folder of `onesdaug augment`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from onesdaug.augment.source import ViewSource
from onesdaug.common.own import code_mark

if TYPE_CHECKING:
    from onesdaug.augment.operator import Augmenter


class Views:
    """Makes K views of a chunk of images, and can say what they depend on: here on the spot, by a `ViewSource`.

    `name` is for people. `side` is that of the square the maker draws on; 0 where it works at any size.
    """

    side: int

    def __init__(self, views: Any, name: str, device: torch.device) -> None:
        from onesdaug.ensemble.sources import as_source

        self.source, self.name, self.device = as_source(views), name, device
        self.side = self.source.views.side or 0

    def describe(self) -> dict[str, Any]:
        """Everything but k and the seed that decides the views' pixels; JSON."""
        views = self.source.views
        mark = code_mark(views.code)  # of someone's own: other code, other views
        return {"source": self.name, **views.describe(), **({"code": mark} if mark else {})}

    def make(self, images: NDArray[np.uint8], ids: Sequence[str], k: int, seed: int) -> Tensor:
        """(B, H, W, 3) uint8 and the images' ids -> (B, K, 3, H, W) in [0, 1]."""
        return self.source.tensors(as_batch(images).to(self.device), k, seed)

    def whole(self, images: list[Image.Image], ids: Sequence[str], k: int, seed: int) -> list[list[Image.Image]]:
        """The same for images of any sizes: K views of each, at its size."""
        return self.source.images(images, k, seed)


class FolderViews(Views):
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
    """By name: a registered view source, a folder written by `onesdaug augment`, a generator, or your own."""
    from onesdaug.common.devices import pick_device
    from onesdaug.ensemble.sources import find_views
    from onesdaug.jobs.manifest import NAME

    if (Path(source) / NAME).is_file():
        return FolderViews(Path(source))
    return Views(find_views(source, preset, device), source, pick_device(device))


class RoundTrip(ViewSource):
    """What a generator's autoencoder alone makes of each image; all "views" of an image are the same."""

    def __init__(self, augmenter: Augmenter) -> None:
        self.augmenter, self.side = augmenter, augmenter.side

    def tensors(self, batch: Tensor, k: int, seeds: Sequence[int | str] | None = None) -> Tensor:
        return self.augmenter.round_trip(batch)[:, None].expand(-1, k, -1, -1, -1)

    def describe(self) -> dict[str, Any]:
        return {"fit": self.augmenter.config.fit, "generator": self.augmenter.fingerprint}
