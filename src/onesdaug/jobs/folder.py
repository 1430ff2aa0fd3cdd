"""Views that were made before: a folder written by `onesdaug augment`, looked up by what an image shows."""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onesdaug.augment.source import ViewSource
from onesdaug.common.files import sha256_of
from onesdaug.data.images import load_image
from onesdaug.errors import DataError
from onesdaug.jobs.manifest import NAME, Manifest, made_with
from onesdaug.jobs.plan import view_name

if TYPE_CHECKING:
    import torch
    from PIL import Image


class ViewFolder(ViewSource):
    """A view source like an Augmenter, but everything is on disk already.

    Images are found by the digest of their pixels, so the originals may have moved or been renamed since.
    """

    def __init__(self, path: str | PathLike[str]) -> None:
        self.path = Path(path)
        if not (self.path / NAME).is_file():
            raise DataError(f"{self.path} has no {NAME}; make views with `onesdaug augment IMAGES -o {self.path}`")
        self.manifest = Manifest(self.path)
        self._views: dict[str, dict[int, str]] = {}  # digest → k → file
        latest: dict[str, tuple[str, Any, str]] = {}  # digest → the settings its newest views were made with
        for row in sorted(self.manifest.views.values(), key=lambda row: str(row.get("time"))):
            if latest.get(row["digest"]) != made_with(row):
                latest[row["digest"]], self._views[row["digest"]] = made_with(row), {}
            self._views[row["digest"]][row["k"]] = row["view"]

    def __len__(self) -> int:
        """How many different images have views here."""
        return len(self._views)

    def __contains__(self, image: Any) -> bool:
        from onesdaug.augment.seeds import image_digest

        return image_digest(load_image(image)) in self._views

    @property
    def digests(self) -> list[str]:
        """The images that have views here, by the digest of their pixels."""
        return list(self._views)

    def views(self, image: Any, k: int | None = None) -> list[Image.Image]:
        """Views 1..k of an image (path, PIL image, array or tensor); all there are without k."""
        from onesdaug.augment.seeds import image_digest

        return self._load(image_digest(load_image(image)), k)

    def named(self, prefix: str, k: int) -> list[Image.Image]:
        """Views 1..k of the input whose files begin with `prefix`: class/stem for the image class/stem.jpg."""
        files = [self.path / view_name(prefix, number) for number in range(1, k + 1)]
        for number, file in enumerate(files, start=1):
            if not file.is_file():
                raise DataError(f"no view {number} of {prefix} in {self.path} (looked for {file})")
        return [load_image(file) for file in files]

    @property
    def checksum(self) -> str:
        """SHA-256 of the manifest, which names the pixels of every view."""
        return sha256_of(self.path / NAME) or ""

    def pictures(self, images: Sequence[Image.Image], k: int, seed: int | str = 0) -> list[list[Image.Image]]:
        return [self.views(image, k) for image in images]

    def tensors(self, batch: torch.Tensor, k: int, seeds: Sequence[int | str] | None = None) -> torch.Tensor:
        """(B, 3, H, W) in [0, 1] → (B, K, 3, H, W) on the batch's device.

        The rows must hold the originals' pixels. `seeds` is there for the common signature: stored views have
        the seed they were made with.
        """
        import torch
        from PIL import Image

        from onesdaug.augment.seeds import tensor_digests
        from onesdaug.data.pixels import to_tensor

        height, width = batch.shape[-2:]
        made = torch.empty((len(batch), k, 3, height, width), dtype=torch.float32)
        for row, digest in enumerate(tensor_digests(batch)):
            for place, view in enumerate(self._load(digest, k)):
                if view.size != (width, height):
                    view = view.resize((width, height), Image.Resampling.BICUBIC)
                made[row, place] = to_tensor(view)
        return made.to(batch.device)

    def _load(self, digest: str, k: int | None) -> list[Image.Image]:
        known = self._views.get(digest)
        if known is None:
            raise DataError(
                f"{self.path} has no views of this image (pixel digest {digest}). Views are found by the exact "
                "pixels of the original: give it as it was, not resized or compressed again, or augment it first"
            )
        wanted = range(1, (max(known) if k is None else k) + 1)
        absent = next((n for n in wanted if n not in known), None)
        if absent is not None:
            raise DataError(
                f"{self.path} has {len(known)} views of this image, but view {absent} was asked for; "
                f"run the same `onesdaug augment` again with --k {wanted[-1]}"
            )
        files = [self.path / known[n] for n in wanted]
        if gone := [file for file in files if not file.is_file()]:
            raise DataError(f"{gone[0]} is in the manifest but not on disk; run `onesdaug augment` again")
        return [load_image(file) for file in files]
