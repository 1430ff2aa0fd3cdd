"""Stage 1, the shape tweak x_geom = T_psi(x): one random homography, applied with one interpolation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from onesdaug.common.options import Checked

if TYPE_CHECKING:  # the settings are read to show help: what computes is imported where it computes
    import numpy as np
    import torch

Border = Literal["reflect", "edge", "zeros"]
_PADDING = {"reflect": "reflection", "edge": "border", "zeros": "zeros"}

_STRIP = 1 << 22  # places worked out at once
# Corners of the image in its own coordinates: x to the right, y down, both from -1 to 1.
_CORNERS = ((-1.0, -1.0), (1.0, -1.0), (1.0, 1.0), (-1.0, 1.0))


class Psi(Checked):
    """One drawn shape tweak. JSON round trips are exact, so a recorded psi replays to the same pixels."""

    angle: float = 0.0  # degrees, anticlockwise
    scale: tuple[float, float] = (1.0, 1.0)  # s_x, s_y
    shift: tuple[float, float] = (0.0, 0.0)  # fraction of width, of height
    corners: tuple[float, ...] = Field((0.0,) * 8, min_length=8, max_length=8)  # jitter x, y, fraction of the side
    flip: bool = False

    @classmethod
    def from_row(cls, row: np.ndarray) -> Psi:
        """From the fourteen numbers of `ShapeTweak.draw`."""
        angle, sx, sy, tx, ty, *corners, flip = row.tolist()
        return cls(angle=angle, scale=(sx, sy), shift=(tx, ty), corners=tuple(corners), flip=bool(flip))

    def row(self) -> list[float]:
        """The fourteen numbers again: angle, s_x, s_y, shift x, y, the eight of the corners, flip."""
        return [self.angle, *self.scale, *self.shift, *self.corners, float(self.flip)]

    def homography(self, aspect: float = 1.0) -> np.ndarray:
        """The 3×3 map of image coordinates (corners at ±1) from input to output; `aspect` = width / height."""
        import numpy as np

        matrix: np.ndarray = homographies(np.array([self.row()]), [aspect])[0]
        return matrix


class ShapeTweak(Checked):
    """The family psi is drawn from; the defaults are the paper's."""

    rotate: float = Field(20.0, ge=0, le=180, description="Degrees, ±")
    stretch: float = Field(0.20, ge=0, le=0.9, description="Scales of width and height in 1 ± this")
    translate: float = Field(0.025, ge=0, le=1, description="Shift, ± this part of the side")
    # Up to (not at) a quarter of the side the jittered corners stay a convex quadrangle, so the warp is invertible.
    perspective: float = Field(0.12, ge=0, lt=0.25, description="Corner jitter, ± this part of the side")
    flip: bool = Field(True, description="Mirror half of the views")
    border: Border = Field("reflect", description="What is seen beyond the edge: reflect, edge or zeros")

    def sample(self, rng: np.random.Generator) -> Psi:
        """Draw one psi."""
        return Psi.from_row(self.draw([rng])[0])

    def draw(self, streams: Sequence[np.random.Generator]) -> np.ndarray:
        """Draw a psi from each stream, as rows of fourteen numbers (`Psi.row`): a batch needs no object per view.

        Always the same fourteen draws, so that one setting never moves another's draw.
        """
        import numpy as np

        rows = np.empty((len(streams), 14))
        for row, rng in zip(rows, streams, strict=True):
            rng.random(out=row)
        heads = rows[:, 13] < 0.5
        spans = [self.rotate, self.stretch, self.stretch, self.translate, self.translate, *[self.perspective] * 8]
        rows[:, :13] = (2.0 * rows[:, :13] - 1.0) * spans
        rows[:, 1:3] += 1.0
        rows[:, 13] = heads & self.flip
        return rows

    def apply(
        self, images: torch.Tensor, psis: Sequence[Psi] | np.ndarray, aspects: Sequence[float] | None = None
    ) -> torch.Tensor:
        """T_psi of each row of (B, 3, H, W); `aspects` gives the true width / height of rows that were squashed."""
        return warp(images, psis, self.border, aspects)


def warp(
    images: torch.Tensor,
    psis: Sequence[Psi] | np.ndarray,
    border: Border = "reflect",
    aspects: Sequence[float] | None = None,
) -> torch.Tensor:
    """Warp each row by its psi (objects, or rows of numbers): one homography, one bilinear interpolation per row."""
    import numpy as np
    import torch
    from kornia.geometry.grid import create_meshgrid
    from kornia.geometry.transform import warp_grid
    from torch.nn.functional import grid_sample

    from onesdaug.augment.seeds import upload

    if len(psis) != images.shape[0]:
        raise ValueError(f"{images.shape[0]} images need as many psi, got {len(psis)}")
    height, width = images.shape[-2:]
    aspects = [width / height] * len(psis) if aspects is None else aspects
    rows = psis if isinstance(psis, np.ndarray) else np.array([psi.row() for psi in psis])
    # grid_sample reads, for each output place, the input place: the inverse map.
    matrices = upload(np.linalg.inv(homographies(rows, aspects)).astype(np.float32), images.device)
    pixels, warped = images.float(), torch.empty_like(images)
    as_sampled: dict[str, Any] = {"device": images.device, "dtype": pixels.dtype, "align_corners": False}
    x = create_meshgrid(1, width, **as_sampled)[0, 0, :, 0]
    y = create_meshgrid(height, 1, **as_sampled)[0, :, 0, 1]
    # in strips, because the places take more memory than the pixels
    step = max(1, _STRIP // (len(images) * width))
    for top in range(0, height, step):
        strip = slice(top, top + step)
        places = torch.stack(torch.meshgrid(x, y[strip], indexing="xy"), dim=-1)
        places = warp_grid(places[None], matrices)
        warped[:, :, strip] = grid_sample(pixels, places, padding_mode=_PADDING[border], align_corners=False)
    return warped


def homographies(rows: np.ndarray, aspects: Sequence[float]) -> np.ndarray:
    """The (N, 3, 3) maps of N rows of psi, all at once; see `Psi.homography`.

    Order: flip, stretch, rotate, corner jitter, shift. Rotation happens where pixels are square.
    """
    import numpy as np

    corners = np.array(_CORNERS)
    square, stretch, rotate, shift = (np.tile(np.eye(3), (len(rows), 1, 1)) for _ in range(4))
    square[:, 0, 0] = aspects
    stretch[:, 0, 0], stretch[:, 1, 1] = np.where(rows[:, 13] > 0, -rows[:, 1], rows[:, 1]), rows[:, 2]
    # math's, not numpy's: those differ in the last bit from one processor to the next, and psi replays exactly
    angles = [math.radians(angle) for angle in rows[:, 0].tolist()]
    rotate[:, 0, 0] = rotate[:, 1, 1] = [math.cos(angle) for angle in angles]
    rotate[:, 0, 1] = [math.sin(angle) for angle in angles]
    rotate[:, 1, 0] = -rotate[:, 0, 1]
    shift[:, :2, 2] = 2.0 * rows[:, 3:5]
    affine = np.linalg.inv(square) @ rotate @ square @ stretch
    jitter = _through(corners, corners + 2.0 * rows[:, 5:13].reshape(-1, 4, 2))
    matrices: np.ndarray = shift @ jitter @ affine
    matrices /= matrices[:, 2:, 2:].copy()  # not a view of what is being divided
    return matrices


def _through(source: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """The homographies (N, 3, 3) that take four points to N times four points (eight linear equations each)."""
    import numpy as np

    x, y = source.T
    left, right = np.zeros((len(targets), 8, 8)), targets.reshape(-1, 8)
    for axis in (0, 1):  # the equations of u, then those of v
        goal = targets[:, :, axis]
        left[:, axis::2, 3 * axis], left[:, axis::2, 3 * axis + 1], left[:, axis::2, 3 * axis + 2] = x, y, 1.0
        left[:, axis::2, 6], left[:, axis::2, 7] = -goal * x, -goal * y
    solved = np.linalg.solve(left, right[..., None])[..., 0]
    return np.append(solved, np.ones((len(targets), 1)), axis=1).reshape(-1, 3, 3)
