"""The base class of everything that makes views: an Augmenter, stored views, traditional edits, your own."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from PIL import Image
    from torch import Tensor


class ViewSource(ABC):
    """K views of images. A view is (image, k): it must not depend on the other images of a batch."""

    side: int | None = None  # of the square it draws on; None: it works at any size

    @abstractmethod
    def tensors(self, batch: Tensor, k: int, seeds: Sequence[int | str] | None = None) -> Tensor:
        """(B, 3, H, W) in [0, 1] → (B, K, 3, H, W), with one seed per row."""

    def pictures(self, images: Sequence[Image.Image], k: int, seed: int | str = 0) -> list[list[Image.Image]]:
        """K views of each of these images, at its size; one by one, because sizes may differ."""
        from onesdaug.augment.seeds import row_seeds
        from onesdaug.data.pixels import to_pil, to_tensor

        batches = [to_tensor(image)[None] for image in images]
        return [to_pil(self.tensors(batch, k, row_seeds(batch, seed))[0]) for batch in batches]

    def describe(self) -> dict[str, Any]:
        """Everything but name, k and seed that decides the views' pixels, as JSON: stored features are keyed by it."""
        return {}
