"""Random streams: every view (image, k) owns its own, derived from (seed, image digest, k, stage).

The same view therefore comes out whatever the batch size, order, worker or machine. Each stage of the operator
has a stream of its own, so that switching the shape tweak off leaves the noise as it was (paired ablations).
NumPy's Philox is keyed with the whole 128-bit hash; torch's CPU generator would keep 32 bits of it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch

from onesdaug.data.pixels import to_uint8

if TYPE_CHECKING:
    from PIL import Image

STAGES = ("shape", "noise", "solver")
Seed = int | str


def image_digest(image: Image.Image) -> str:
    """128-bit name of an image's content: its size and RGB bytes, not the file they came from."""
    return pixel_digest(np.asarray(image.convert("RGB")))


def pixel_digest(pixels: np.ndarray) -> str:
    """`image_digest` of an (H, W, 3) uint8 array."""
    head = f"rgb8:{pixels.shape[1]}x{pixels.shape[0]}:".encode()
    digest = hashlib.blake2b(head, digest_size=16)
    digest.update(np.ascontiguousarray(pixels).data)
    return digest.hexdigest()


def tensor_digests(batch: torch.Tensor) -> list[str]:
    """The digest of each row of a (B, 3, H, W) batch in [0, 1], rounded to 8 bits as a saved image would be."""
    # colours last while still on the device: one copy brings all rows to the host in the order they are hashed in
    return [pixel_digest(row) for row in to_uint8(batch.contiguous(memory_format=torch.channels_last))]


def row_seeds(batch: torch.Tensor, seed: Seed = 0) -> list[str]:
    """One seed per row, from the user's seed and the image's content: its neighbours do not matter."""
    return [image_seed(seed, digest) for digest in tensor_digests(batch)]


def image_seed(seed: Seed, digest: str) -> str:
    """The seed of one image, from the user's seed and the image's digest: 128 bits as hex."""
    return hashlib.blake2b(f"{seed}:{digest}".encode(), digest_size=16).hexdigest()


def stream(seed: Seed, k: int, stage: str) -> np.random.Generator:
    """The random stream of one stage of view k of the image with this seed."""
    if stage not in STAGES:
        raise ValueError(f"unknown stage {stage!r}; the operator's stages are {', '.join(STAGES)}")
    key = hashlib.blake2b(f"onesdaug:{seed}:{k}:{stage}".encode(), digest_size=16).digest()
    return np.random.Generator(np.random.Philox(key=np.frombuffer(key, "<u8")))  # an int would take twice as long


def normal(streams: Sequence[np.random.Generator], shape: Sequence[int]) -> torch.Tensor:
    """Standard normal noise, one row per stream, drawn on the host so that every device sees the same."""
    out = np.empty((len(streams), *shape), dtype=np.float32)
    for row, rng in zip(out, streams, strict=True):
        rng.standard_normal(out=row, dtype=np.float32)
    return torch.from_numpy(out)


def upload(array: np.ndarray | torch.Tensor, device: torch.device) -> torch.Tensor:
    """A host array on the device; from pinned memory, because a plain copy waits for all that CUDA has still to do."""
    tensor = torch.as_tensor(array)
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor.to(device)
