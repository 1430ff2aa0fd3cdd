"""Stage 1, the shape tweak x_geom = T_psi(x): one random homography, applied with one interpolation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict, Field

Border = Literal["reflect", "edge", "zeros"]
_PADDING = {"reflect": "reflection", "edge": "border", "zeros": "zeros"}

# Corners of the image in its own coordinates: x to the right, y down, both from -1 to 1.
_CORNERS = np.array([[-1.0, -1.0], [1.0, -1.0], [1.0, 1.0], [-1.0, 1.0]])


class Psi(BaseModel):
    """One drawn shape tweak. JSON round trips are exact, so a recorded psi replays to the same pixels."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    angle: float = 0.0  # degrees, anticlockwise
    scale: tuple[float, float] = (1.0, 1.0)  # s_x, s_y
    shift: tuple[float, float] = (0.0, 0.0)  # fraction of width, of height
    corners: tuple[float, ...] = Field((0.0,) * 8, min_length=8, max_length=8)  # jitter x, y, fraction of the side
    flip: bool = False

    def homography(self, aspect: float = 1.0) -> np.ndarray:
        """The 3×3 map of image coordinates (corners at ±1) from input to output; `aspect` = width / height.

        Order: flip, stretch, rotate, corner jitter, shift. Rotation happens where pixels are square.
        """
        square = np.diag([aspect, 1.0, 1.0])
        stretch = np.diag([self.scale[0] * (-1.0 if self.flip else 1.0), self.scale[1], 1.0])
        cos, sin = math.cos(math.radians(self.angle)), math.sin(math.radians(self.angle))
        rotate = np.array([[cos, sin, 0.0], [-sin, cos, 0.0], [0.0, 0.0, 1.0]])
        affine = np.linalg.inv(square) @ rotate @ square @ stretch
        jitter = _through(_CORNERS, _CORNERS + 2.0 * np.reshape(self.corners, (4, 2)))
        shift = np.array([[1.0, 0.0, 2.0 * self.shift[0]], [0.0, 1.0, 2.0 * self.shift[1]], [0.0, 0.0, 1.0]])
        matrix: np.ndarray = shift @ jitter @ affine
        matrix /= matrix[2, 2]
        return matrix


class ShapeTweak(BaseModel):
    """The family psi is drawn from; the defaults are the paper's."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    rotate: float = Field(20.0, ge=0, le=180, description="degrees; angle uniform in ±rotate")
    stretch: float = Field(0.20, ge=0, le=0.9, description="s_x, s_y uniform in 1 ± stretch")
    translate: float = Field(0.025, ge=0, le=1, description="shift uniform in ±translate of width and height")
    # Up to (not at) a quarter of the side the jittered corners stay a convex quadrangle, so the warp is invertible.
    perspective: float = Field(0.12, ge=0, lt=0.25, description="corner jitter uniform in ±perspective of the side")
    flip: bool = Field(True, description="mirror left to right in half of the views")
    border: Border = Field("reflect", description="what is seen beyond the edge: reflect, edge or zeros")

    def sample(self, rng: np.random.Generator) -> Psi:
        """Draw psi. Always the same fourteen draws, so that one setting never moves another's draw."""
        angle, sx, sy, tx, ty, *corners = rng.uniform(-1.0, 1.0, size=13).tolist()
        heads = rng.uniform() < 0.5
        return Psi(
            angle=angle * self.rotate,
            scale=(1.0 + sx * self.stretch, 1.0 + sy * self.stretch),
            shift=(tx * self.translate, ty * self.translate),
            corners=tuple(c * self.perspective for c in corners),
            flip=self.flip and heads,
        )

    def apply(self, images: torch.Tensor, psis: Sequence[Psi], aspects: Sequence[float] | None = None) -> torch.Tensor:
        """T_psi of each row of (B, 3, H, W); `aspects` gives the true width / height of rows that were squashed."""
        return warp(images, psis, self.border, aspects)


def warp(
    images: torch.Tensor,
    psis: Sequence[Psi],
    border: Border = "reflect",
    aspects: Sequence[float] | None = None,
) -> torch.Tensor:
    """Warp each row by its psi: one homography and one bilinear interpolation per row."""
    from kornia.geometry.transform import homography_warp

    if len(psis) != images.shape[0]:
        raise ValueError(f"{images.shape[0]} images need as many psi, got {len(psis)}")
    height, width = images.shape[-2:]
    aspects = [width / height] * len(psis) if aspects is None else aspects
    # grid_sample reads, for each output place, the input place: the inverse map.
    inverse = np.stack([np.linalg.inv(p.homography(a)) for p, a in zip(psis, aspects, strict=True)])
    matrices = torch.from_numpy(inverse).to(images.device, torch.float32)
    warped: torch.Tensor = homography_warp(
        images.float(), matrices, (height, width), padding_mode=_PADDING[border], align_corners=False
    )
    return warped.to(images.dtype)


def _through(source: np.ndarray, target: np.ndarray) -> np.ndarray:
    """The homography that takes four points to four points (eight linear equations)."""
    rows, right = [], []
    for (x, y), (u, v) in zip(source, target, strict=True):
        rows += [[x, y, 1, 0, 0, 0, -u * x, -u * y], [0, 0, 0, x, y, 1, -v * x, -v * y]]
        right += [u, v]
    return np.append(np.linalg.solve(np.array(rows), np.array(right)), 1.0).reshape(3, 3)
