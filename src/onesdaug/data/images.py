"""Any image in, 8-bit RGB out: what was converted is noted, what cannot be read is an error that names it.

Photographs, stored views and the members of data sets all come through here.
"""

from __future__ import annotations

import io
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import IO, Any

import numpy as np
from PIL import ExifTags, Image, ImageFile, UnidentifiedImageError

from onesdaug.errors import ImageError

# Pillow's own error limit (it warns at half of it). Checked from the header, before anything is decoded.
MAX_PIXELS = 178_956_970

# What turns a stored picture upright, for each value of the EXIF orientation tag.
_UPRIGHT = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
_SLACK = 1e-3  # rounding of half precision around [0, 1]
_PLAIN_NAMES = {"1": "1-bit", "L": "greyscale", "P": "palette"}


@dataclass(frozen=True)
class LoadedImage:
    """An RGB image and what had to be done to get it, in words."""

    image: Image.Image
    notes: tuple[str, ...] = ()


def load_image(source: Any) -> Image.Image:
    """RGB image from a path, PIL image, NumPy array (HW, HWC) or torch tensor (CHW); see `read_image`."""
    return read_image(source).image


def read_image(source: Any) -> LoadedImage:
    """`load_image` with notes about what was converted on the way."""
    if isinstance(source, (str, Path)):
        return _from_file(Path(source))
    if isinstance(source, Image.Image):
        return _guarded(source, "the given image")
    array, notes = _from_array(source)
    return LoadedImage(Image.fromarray(array), notes)


def decode_image(data: bytes, label: str) -> Image.Image:
    """RGB image from a file's bytes; `label` names it in errors."""
    return _decoded(io.BytesIO(data), label).image


def image_size(data: bytes, label: str) -> tuple[int, int]:
    """Width and height as the header of a file's bytes has them."""
    with _opened(io.BytesIO(data), label) as image:
        return image.size


def _from_file(path: Path) -> LoadedImage:
    try:
        info = path.stat()
        if stat.S_ISDIR(info.st_mode):
            raise ImageError(f"{path} is a folder, not an image")
        if not stat.S_ISREG(info.st_mode):  # opening a pipe would wait for ever
            raise ImageError(f"{path} is not a regular file")
        if info.st_size == 0:
            raise ImageError(f"{path} is empty (0 bytes)")
        with path.open("rb") as file:
            return _decoded(file, str(path))
    except FileNotFoundError:
        gone = "is a link to a file that does not exist" if path.is_symlink() else "does not exist"
        raise ImageError(f"{path} {gone}") from None
    except OSError as error:
        raise ImageError(f"{path} cannot be read: {error.strerror or error}") from error


def _decoded(file: IO[bytes], label: str) -> LoadedImage:
    with _strict_decoding(), _opened(file, label) as image:
        return _guarded(image, label)


@contextmanager
def _opened(file: IO[bytes], label: str) -> Iterator[Image.Image]:
    """Pillow's image of a file, of which only the header is read yet."""
    try:
        with Image.open(file) as image:
            yield image
    except UnidentifiedImageError:
        file.seek(0)
        raise ImageError(f"{label} {_what_else(file.read(512))}") from None
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        raise ImageError(_too_large(label)) from None
    except OSError as error:
        raise ImageError(f"{label} cannot be read: {error.strerror or error}") from error


def _guarded(image: Image.Image, label: str) -> LoadedImage:
    """Check the size, then decode and convert; whatever a decoder throws becomes an ImageError."""
    if image.width * image.height > MAX_PIXELS:
        raise ImageError(_too_large(label, image.size))
    if not image.width or not image.height:
        raise ImageError(f"{label} has no pixels ({image.width}×{image.height})")
    try:
        return _to_rgb(image)
    except ImageError as error:
        raise ImageError(f"{label} {error}") from None
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        raise ImageError(_too_large(label)) from None
    except Exception as error:  # decoders raise anything from SyntaxError to struct.error on broken data
        damaged = "is cut off" if "truncated" in str(error) else "is damaged"
        raise ImageError(f"{label} {damaged} and was not used: {error}") from error


def _to_rgb(image: Image.Image) -> LoadedImage:
    notes = []
    if (frames := getattr(image, "n_frames", 1)) > 1:
        notes.append(f"frame {image.tell() + 1} of {frames} used")
    if image.mode in ("RGB", "RGBA", "LA") and any(";16" in str(tile) for tile in getattr(image, "tile", ())):
        notes.append("16 bits per channel reduced to 8")
    orientation = _orientation(image)  # before load(): Pillow turns TIFFs itself and forgets the tag
    image.load()
    if orientation in _UPRIGHT:
        notes.append("EXIF rotation applied")
        if _orientation(image) in _UPRIGHT:
            image = image.transpose(_UPRIGHT[orientation])
    if image.mode.startswith("I") or image.mode == "F":
        grey, note = _squeeze(np.asarray(image), sixteen=";16" in image.mode or image.format == "PNG")
        return LoadedImage(Image.fromarray(grey).convert("RGB"), (*notes, note))
    if image.has_transparency_data:
        kind = _PLAIN_NAMES.get(image.mode, image.mode)
        layer = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", layer.size, "white"), layer).convert("RGB")
        notes.append(f"{kind} with transparency laid on white")
    elif image.mode != "RGB":
        notes.append(f"{_PLAIN_NAMES.get(image.mode, image.mode)} converted to RGB")
        image = image.convert("RGB")
    # A plain image of its own: the file can be closed, and no colour profile or comment travels into outputs.
    return LoadedImage(Image.frombytes("RGB", image.size, image.tobytes()), tuple(notes))


def _orientation(image: Image.Image) -> int:
    with suppress(Exception):  # a broken EXIF block does not make the pixels unusable
        return int(image.getexif().get(ExifTags.Base.Orientation, 1))
    return 1


def _what_else(head: bytes) -> str:
    """What a file that is no image looks like, for the message."""
    if head.startswith(b"version https://git-lfs"):
        return "is a Git LFS pointer, not the image itself; run `git lfs pull`"
    if head.lstrip().lower().startswith((b"<!doctype", b"<html")):
        return "is an HTML page, not an image (a failed download?)"
    if b"\0" not in head and all(byte >= 32 or byte in b"\t\r\n\f\b\x1b" for byte in head):
        return "is a text file, not an image"
    return "is not an image in any format Pillow can read"


def _too_large(label: str, size: tuple[int, int] | None = None) -> str:
    claim = f"claims {size[0]}×{size[1]} pixels" if size else "claims too many pixels"
    return f"{label} {claim}, more than the limit of {MAX_PIXELS:,}: a decompression bomb, or resize it first"


def _from_array(source: Any) -> tuple[np.ndarray, tuple[str, ...]]:
    """(H, W, 3) uint8 pixels of a NumPy array (HW, HWC) or a torch tensor (HW, CHW), and notes."""
    if isinstance(source, np.ndarray):
        array, layout = source, "(H, W) or (H, W, C) array"
    elif type(source).__module__.split(".")[0] == "torch":  # told without importing torch
        layout, tensor = "(H, W) or (C, H, W) tensor", source.detach().cpu()
        tensor = tensor.permute(1, 2, 0) if tensor.ndim == 3 else tensor
        array = (tensor.float() if tensor.is_floating_point() else tensor).numpy()
    else:
        kind = type(source).__name__
        raise ImageError(f"an image is a path, a PIL image, a NumPy array or a torch tensor, not {kind}")
    channels = array.shape[2] if array.ndim == 3 else 1
    if array.ndim not in (2, 3) or channels not in (1, 3, 4) or 0 in array.shape:
        raise ImageError(f"expected one image as {layout} with 1, 3 or 4 channels, got shape {tuple(source.shape)}")
    pixels, notes = _eight_bit(array)
    if channels == 1:
        pixels = np.repeat(pixels.reshape(*pixels.shape[:2], 1), 3, axis=2)
    elif channels == 4:
        alpha = pixels[..., 3:].astype(np.float32) / 255
        pixels = np.rint(pixels[..., :3] * alpha + 255 * (1 - alpha)).astype(np.uint8)
        notes = (*notes, "transparency laid on white")
    return np.ascontiguousarray(pixels), notes


def _eight_bit(array: np.ndarray) -> tuple[np.ndarray, tuple[str, ...]]:
    if array.dtype == np.uint8:
        return array, ()
    if array.dtype == bool:
        return array.astype(np.uint8) * 255, ("1-bit scaled to 8 bits",)
    if array.dtype == np.uint16:
        return np.rint(array / 257).astype(np.uint8), ("16 bits per channel reduced to 8",)
    if array.dtype.kind != "f":
        raise ImageError(f"an image array is uint8, uint16, bool or float in [0, 1], not {array.dtype}")
    if not np.isfinite(array).all():
        raise ImageError("the given array has NaN or infinite values")
    low, high = float(array.min()), float(array.max())
    if low < -_SLACK or high > 1 + _SLACK:
        raise ImageError(
            f"a float image must lie in [0, 1], this one spans [{low:g}, {high:g}]; "
            "scale it first (divide by 255 if it holds 8-bit values)"
        )
    return np.rint(np.clip(array, 0, 1) * 255).astype(np.uint8), ()


def _squeeze(values: np.ndarray, sixteen: bool) -> tuple[np.ndarray, str]:
    """Deep greyscale to 8 bits, scaled and never clipped; `sixteen` says the full range is 0..65535."""
    wide = values.astype(np.float64)
    if not np.isfinite(wide).all():
        raise ImageError("has NaN or infinite pixels")
    low, high = wide.min(), wide.max()
    if sixteen or (low >= 0 and 255 < high <= 65535):
        return np.rint(wide / 257).astype(np.uint8), "16-bit greyscale scaled to 8 bits"
    if low >= 0 and high <= 1 and values.dtype.kind == "f":
        return np.rint(wide * 255).astype(np.uint8), "float greyscale in [0, 1] scaled to 8 bits"
    if low >= 0 and high <= 255:
        return np.rint(wide).astype(np.uint8), f"{values.dtype} greyscale rounded to 8 bits"
    stretched = np.rint((wide - low) / max(high - low, 1e-12) * 255).astype(np.uint8)
    return stretched, f"{values.dtype} greyscale of range [{low:g}, {high:g}] stretched to 8 bits"


_strict_lock = Lock()
_strict_depth = 0
_strict_saved = False


@contextmanager
def _strict_decoding() -> Iterator[None]:
    """Pillow's switch for accepting cut-off files is global and other libraries set it: off while we work."""
    global _strict_depth, _strict_saved
    with _strict_lock:  # several threads decode at once: the first in switches off, the last out restores
        if _strict_depth == 0:
            _strict_saved = ImageFile.LOAD_TRUNCATED_IMAGES
            ImageFile.LOAD_TRUNCATED_IMAGES = False
        _strict_depth += 1
    try:
        yield
    finally:
        with _strict_lock:
            _strict_depth -= 1
            if _strict_depth == 0:
                ImageFile.LOAD_TRUNCATED_IMAGES = _strict_saved
