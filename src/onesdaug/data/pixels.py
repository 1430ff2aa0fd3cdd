"""Between pictures and tensors: uint8 (H, W, 3) on the host, float (B, 3, H, W) in [0, 1] on the device."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence

import numpy as np
import torch
from PIL import Image

from onesdaug.errors import ConfigError

TOGETHER = 1 << 22  # pixels of images that are worked on at once, unless one alone has more


def check_batch(batch: torch.Tensor) -> None:
    """Refuse what is not a (B, 3, H, W) batch of pictures in [0, 1], before it becomes a wrong result."""
    if batch.ndim != 4 or batch.shape[1] != 3:
        raise ConfigError(f"images must be a (B, 3, H, W) tensor, got shape {tuple(batch.shape)}")
    if not batch.is_floating_point():
        raise ConfigError(f"images are {batch.dtype}; bring them to floats in [0, 1] first: images.float() / 255")
    if batch.numel() == 0:
        return
    low, high = batch.min().item(), batch.max().item()
    if not (low >= -1e-3 and high <= 1 + 1e-3):  # written so that nan fails too
        raise ConfigError(
            f"images must lie in [0, 1], but go from {low:.3g} to {high:.3g}; if they are already "
            "normalised, feed them as they were before and give the normalisation as preprocess="
        )


def on_device(images: np.ndarray, device: torch.device) -> torch.Tensor:
    """Stored pictures as they are. Those mapped from a cache are read only, which torch warns of: nobody writes."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        return torch.from_numpy(images).to(device)


def to_bytes(batch: torch.Tensor) -> torch.Tensor:
    """[0, 1] → uint8, rounded as a saved image is; bytes stay as they are."""
    if batch.dtype == torch.uint8:
        return batch
    return batch.detach().float().clamp(0, 1).mul_(255).round_().to(torch.uint8)  # one copy: it may be a large one


def to_uint8(batch: torch.Tensor) -> np.ndarray:
    """(B, 3, H, W) in [0, 1] → (B, H, W, 3) uint8."""
    return to_bytes(batch).permute(0, 2, 3, 1).cpu().numpy()


def to_pil(batch: torch.Tensor) -> list[Image.Image]:
    """Each row of (B, 3, H, W), in [0, 1] or bytes, as a PIL image."""
    return [Image.fromarray(row) for row in to_uint8(batch)]


def image_bytes(image: Image.Image) -> torch.Tensor:
    """A PIL image as (3, H, W) bytes."""
    return torch.from_numpy(np.array(image.convert("RGB"))).permute(2, 0, 1)


def to_floats(pixels: torch.Tensor) -> torch.Tensor:
    """As float32; bytes become numbers in [0, 1], the same ones on every device."""
    return pixels.float().div_(255) if pixels.dtype == torch.uint8 else pixels.float()


def to_tensor(image: Image.Image) -> torch.Tensor:
    """A PIL image as (3, H, W) float in [0, 1]."""
    return to_floats(image_bytes(image))


def same_size(images: Sequence[torch.Tensor]) -> Iterator[tuple[list[int], torch.Tensor]]:
    """Images (3, H, W) of any sizes as batches of one size and type, each with the places it came from."""
    groups: dict[tuple[torch.Size, torch.dtype], list[int]] = {}
    for place, image in enumerate(images):
        groups.setdefault((image.shape, image.dtype), []).append(place)
    for (shape, _), places in groups.items():
        most = max(1, TOGETHER // max(1, shape[-1] * shape[-2]))
        for start in range(0, len(places), most):
            some = places[start : start + most]
            yield some, torch.stack([images[place] for place in some])
