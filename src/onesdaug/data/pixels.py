"""Between pictures and tensors: uint8 (H, W, 3) on the host, float (B, 3, H, W) in [0, 1] on the device."""

from __future__ import annotations

import numpy as np
import torch
from PIL import Image


def to_uint8(batch: torch.Tensor) -> np.ndarray:
    """(B, 3, H, W) in [0, 1] → (B, H, W, 3) uint8, rounded as a saved image is."""
    scaled = (batch.detach().float().clamp(0, 1) * 255).round().to(torch.uint8)
    return scaled.permute(0, 2, 3, 1).cpu().numpy()


def to_pil(batch: torch.Tensor) -> list[Image.Image]:
    """Each row of (B, 3, H, W) in [0, 1] as a PIL image."""
    return [Image.fromarray(row) for row in to_uint8(batch)]


def to_tensor(image: Image.Image) -> torch.Tensor:
    """A PIL image as (3, H, W) float in [0, 1]."""
    return torch.from_numpy(np.array(image.convert("RGB"))).permute(2, 0, 1).float() / 255
