"""How an image of any size meets a square generator, and how the view gets back to the image's size and aspect.

squash  resized to the square; the view is resized back
pad     resized to fit inside, mirrored out to the square; the view's margin is cut off again
crop    the central square is redrawn, the rest stays as the shape tweak left it
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from PIL import Image
from torch.nn.functional import interpolate

from onesdaug.augment.config import Fit
from onesdaug.augment.seeds import upload
from onesdaug.data.pixels import image_bytes, to_floats
from onesdaug.errors import ImageError

_LONGEST_CROP = 16  # times the short side; beyond it the canvas of `crop` would cost more than the generator


@dataclass(frozen=True)
class Geometry:
    """The numbers behind one image: `canvas` is what the shape tweak sees, `window` is a box (top, left, h, w).

    The window is the image's place inside the canvas (pad), or the square's place inside it (crop).
    """

    fit: Fit
    image: tuple[int, int]  # height, width
    side: int
    inner: tuple[int, int]  # height, width after the resize
    window: tuple[int, int, int, int]
    aspect: float  # true width / height of the canvas, which `squash` does not keep


def geometry(height: int, width: int, side: int | None, fit: Fit) -> Geometry:
    """Work out how a height × width image meets a square of `side`; None: it meets none and stays as it is."""
    if side is None:
        return Geometry("squash", (height, width), 0, (height, width), (0, 0, height, width), width / height)
    if fit == "squash":
        return Geometry(fit, (height, width), side, (side, side), (0, 0, side, side), width / height)
    scale = side / (max if fit == "pad" else min)(height, width)
    inner = max(1, round(height * scale)), max(1, round(width * scale))
    if fit == "pad":
        top, left = (side - inner[0]) // 2, (side - inner[1]) // 2
        return Geometry(fit, (height, width), side, inner, (top, left, *inner), 1.0)
    if max(inner) > _LONGEST_CROP * side:
        raise ImageError(f"{width}×{height} pixels is too long and thin for fit='crop'; use 'squash' or 'pad'")
    top, left = (inner[0] - side) // 2, (inner[1] - side) // 2
    return Geometry(fit, (height, width), side, inner, (top, left, side, side), inner[1] / inner[0])


@dataclass(frozen=True)
class Pictures:
    """Rows of pictures, held as one tensor per size: work is one call per size, never one per picture."""

    parts: list[torch.Tensor]  # (n, 3, h, w)
    rows: list[np.ndarray]  # rows[p][i], rising in i: which row parts[p][i] is

    @classmethod
    def of(cls, pictures: torch.Tensor | Sequence[torch.Tensor]) -> Pictures:
        """From a batch of one size, or (3, h, w) pictures of any sizes."""
        if isinstance(pictures, torch.Tensor):
            return cls([pictures], [np.arange(len(pictures))])
        groups: dict[torch.Size, list[int]] = {}
        for i, picture in enumerate(pictures):
            groups.setdefault(picture.shape, []).append(i)
        rows = [np.array(members) for members in groups.values()]
        return cls([torch.stack([pictures[i] for i in part]) for part in rows], rows)

    def each(self, change: Callable[[torch.Tensor, np.ndarray], torch.Tensor]) -> Pictures:
        """`change(part, its rows)` of every part."""
        return Pictures([change(part, rows) for part, rows in zip(self.parts, self.rows, strict=True)], self.rows)

    def to(self, device: str | torch.device) -> Pictures:
        """As float32 in [0, 1] on a device; bytes travel as bytes."""
        at = torch.device(device)
        # `upload`, because a plain copy to CUDA would wait for the batch that is being computed
        return self.each(lambda part, _: to_floats(part if part.is_cuda else upload(part, at)))

    def take(self, wanted: np.ndarray) -> Pictures:
        """Row j of the result is row wanted[j]; no copy where that changes nothing."""
        if np.array_equal(wanted, np.arange(sum(map(len, self.rows)))):
            return self
        parts, places = [], []
        for part, rows in zip(self.parts, self.rows, strict=True):
            here = np.flatnonzero(np.isin(wanted, rows))
            if here.size:
                parts.append(part.index_select(0, upload(np.searchsorted(rows, wanted[here]), part.device)))
                places.append(here)
        return Pictures(parts, places)

    def dense(self) -> torch.Tensor:
        """All rows in order, as one batch; their sizes must be equal by now."""
        if len(self.parts) == 1:
            return self.parts[0]
        order = np.argsort(np.concatenate(self.rows))
        return torch.cat(self.parts).index_select(0, upload(order, self.parts[0].device))

    def split(self) -> list[torch.Tensor]:
        """The single pictures in order: views of the parts, not copies."""
        single: dict[int, torch.Tensor] = {}
        for part, rows in zip(self.parts, self.rows, strict=True):
            single.update(zip(rows.tolist(), part, strict=True))
        return [single[row] for row in range(len(single))]


def to_canvas(image: Image.Image | torch.Tensor, geo: Geometry) -> torch.Tensor:
    """The canvas (3, h, w), a square one for squash and pad: of an image in bytes, of tensors in their own type."""
    inner = resize(image, *geo.inner)
    x = image_bytes(inner) if isinstance(inner, Image.Image) else inner
    if geo.fit != "pad":
        return x
    top, left, height, width = geo.window
    rows = np.pad(np.arange(height), (top, geo.side - top - height), mode="symmetric")
    columns = np.pad(np.arange(width), (left, geo.side - left - width), mode="symmetric")
    return x[..., upload(rows, x.device)[:, None], upload(columns, x.device)]


def to_square(canvas: torch.Tensor, geo: Geometry) -> torch.Tensor:
    """The square the generator works on."""
    return _cut(canvas, geo.window) if geo.fit == "crop" else canvas


def from_square(square: torch.Tensor, canvas: torch.Tensor, geo: Geometry) -> torch.Tensor:
    """The view with the image's aspect again (its size comes with `resize`); `canvas` is the tweaked one."""
    if geo.fit == "squash":
        return square
    if geo.fit == "pad":
        return _cut(square, geo.window)
    top, left, height, width = geo.window
    out = canvas.to(square.device, square.dtype, copy=True)
    out[..., top : top + height, left : left + width] = square
    return out


def resize(image: Image.Image | torch.Tensor, height: int, width: int) -> Image.Image | torch.Tensor:
    """Bicubic with antialiasing, by whichever library the image came in."""
    if isinstance(image, Image.Image):
        return image if image.size == (width, height) else image.resize((width, height), Image.Resampling.BICUBIC)
    if image.shape[-2:] == (height, width):
        return image
    batch = image if image.ndim == 4 else image[None]
    out = interpolate(batch, size=(height, width), mode="bicubic", antialias=True, align_corners=False).clamp(0, 1)
    return out if image.ndim == 4 else out[0]


def _cut(x: torch.Tensor, window: tuple[int, int, int, int]) -> torch.Tensor:
    top, left, height, width = window
    return x[..., top : top + height, left : left + width]
