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
    return hashlib.blake2b(head + np.ascontiguousarray(pixels).tobytes(), digest_size=16).hexdigest()


def tensor_digests(batch: torch.Tensor) -> list[str]:
    """The digest of each row of a (B, 3, H, W) batch in [0, 1], rounded to 8 bits as a saved image would be."""
    return [pixel_digest(row) for row in to_uint8(batch)]


def image_seed(seed: Seed, digest: str) -> str:
    """The seed of one image, from the user's seed and the image's digest: 128 bits as hex."""
    return hashlib.blake2b(f"{seed}:{digest}".encode(), digest_size=16).hexdigest()


def stream(seed: Seed, k: int, stage: str) -> np.random.Generator:
    """The random stream of one stage of view k of the image with this seed."""
    if stage not in STAGES:
        raise ValueError(f"unknown stage {stage!r}; the operator's stages are {', '.join(STAGES)}")
    key = hashlib.blake2b(f"onesdaug:{seed}:{k}:{stage}".encode(), digest_size=16).digest()
    return np.random.Generator(np.random.Philox(key=int.from_bytes(key, "little")))


def normal(streams: Sequence[np.random.Generator], shape: Sequence[int]) -> torch.Tensor:
    """Standard normal noise, one row per stream, drawn on the host so that every device sees the same."""
    return torch.from_numpy(np.stack([s.standard_normal(tuple(shape), dtype=np.float32) for s in streams]))
