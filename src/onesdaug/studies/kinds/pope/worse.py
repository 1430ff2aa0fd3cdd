"""Photographs made worse, each in the same way whenever it is asked for: blurred, noisy, dark, or JPEG."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable

import numpy as np
from PIL import Image, ImageFilter

from onesdaug.data.images import decode_image

Way = Callable[[Image.Image, float], Image.Image]


def blur(image: Image.Image, radius: float) -> Image.Image:
    """By a Gaussian of this deviation in pixels."""
    return image.filter(ImageFilter.GaussianBlur(radius))


def noise(image: Image.Image, deviation: float) -> Image.Image:
    """Gaussian noise on every value, of this part of the range; drawn from the picture's own content."""
    pixels = np.asarray(image)
    key = hashlib.blake2b(pixels.tobytes(), digest_size=16).digest()
    rng = np.random.Generator(np.random.Philox(key=np.frombuffer(key, "<u8")))
    return _image(pixels + 255 * deviation * rng.standard_normal(pixels.shape))


def dark(image: Image.Image, light: float) -> Image.Image:
    """This part of the light: what becomes the same of 256 values cannot be told apart again."""
    return _image(np.asarray(image) * light)


def jpeg(image: Image.Image, quality: float) -> Image.Image:
    """Written as JPEG of this quality, and read again."""
    file = io.BytesIO()
    image.save(file, "JPEG", quality=round(quality))
    return decode_image(file.getvalue(), "a photograph as JPEG")


WORSE: dict[str, Way] = {"blur": blur, "noise": noise, "dark": dark, "jpeg": jpeg}
TOLD = {
    "blur": "blur of {:g} pixels",
    "noise": "noise of {:g} of the range",
    "dark": "{:g} of the light",
    "jpeg": "JPEG quality {:g}",
}


def _image(values: np.ndarray) -> Image.Image:
    return Image.fromarray(np.clip(np.rint(values), 0, 255).astype(np.uint8))
