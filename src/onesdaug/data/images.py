"""Any image in, 8-bit RGB out: what was converted is noted, what cannot be read is an error that names it.

Photographs, stored views and the members of data sets all come through here, and only here are image files opened.
"""

from __future__ import annotations

import io
import stat
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import IO, Any

import numpy as np
from PIL import ExifTags, Image, ImageFile, UnidentifiedImageError

from onesdaug.data.sources import FORMATS
from onesdaug.errors import ImageError

# Where Pillow begins to warn of decompression bombs: 256 MiB of RGB. Three views by the shape tweak, at the image's
# own size, then take 4 GB. Checked from the header, before anything is decoded.
MAX_PIXELS = 89_478_485
_MAX_BYTES = 1 << 30  # no file of so many pixels is larger, and some decoders read the whole file first
_LARGE = 1 << 25  # pixels: such images are decoded one at a time, however many threads there are

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
        return _decoded(Path(source), str(Path(source)))
    if isinstance(source, Image.Image):
        return _guarded(source, "the given image")
    array, notes = _from_array(source)
    return LoadedImage(Image.fromarray(array), notes)


def decode_image(data: bytes, label: str) -> Image.Image:
    """RGB image from a file's bytes; `label` names it in errors."""
    return read_bytes(data, label).image


def read_bytes(data: bytes, label: str) -> LoadedImage:
    """`decode_image` with notes about what was converted on the way."""
    return _decoded(data, label)


def _decoded(source: Path | bytes, label: str) -> LoadedImage:
    with _strict_decoding(), opened(source, label) as image:
        return _guarded(image, label)


@contextmanager
def opened(source: Path | bytes, label: str) -> Iterator[Image.Image]:
    """Pillow's image of a file, or of a file's bytes, of which only the header is read yet.

    Only the formats listed are tried: others start foreign programs (PostScript) or have readers nobody looks after.
    """
    with _named(label), _file(source, label) as file:
        try:
            image = Image.open(file, formats=tuple(FORMATS))
        except UnidentifiedImageError:
            file.seek(0)
            raise ImageError(f"{label} {_what_else(file.read(512))}") from None
        with image:
            yield image


@contextmanager
def _file(source: Path | bytes, label: str) -> Iterator[IO[bytes]]:
    if isinstance(source, bytes):
        yield io.BytesIO(source)
        return
    try:
        info = source.stat()
        if stat.S_ISDIR(info.st_mode):
            raise ImageError(f"{label} is a folder, not an image")
        if not stat.S_ISREG(info.st_mode):  # opening a pipe would wait for ever
            raise ImageError(f"{label} is not a regular file")
        if info.st_size > _MAX_BYTES:
            raise ImageError(f"{label} has {info.st_size:,} bytes, more than any image that is read here")
        with source.open("rb") as file:
            yield file
    except FileNotFoundError:
        gone = "is a link to a file that does not exist" if source.is_symlink() else "does not exist"
        raise ImageError(f"{label} {gone}") from None
    except OSError as error:
        raise ImageError(f"{label} cannot be read: {error.strerror or error}") from error


@contextmanager
def _named(label: str) -> Iterator[None]:
    """Whatever a decoder throws becomes an ImageError that names the image."""
    try:
        yield
    except ImageError:
        raise
    except MemoryError:
        raise ImageError(f"{label} needs more memory than there is") from None
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        raise ImageError(_too_large(label)) from None
    except Exception as error:  # decoders raise anything from SyntaxError to struct.error on broken data
        damaged = "is cut off" if "truncated" in str(error) else "is damaged"
        raise ImageError(f"{label} {damaged} and was not used: {error}") from error


def _guarded(image: Image.Image, label: str) -> LoadedImage:
    """Check the size, then decode and convert."""
    pixels = image.width * image.height
    if pixels > MAX_PIXELS:
        raise ImageError(_too_large(label, image.size))
    if not pixels:
        raise ImageError(f"{label} has no pixels ({image.width}×{image.height})")
    with _named(label), _one_large if pixels > _LARGE else nullcontext():
        return _to_rgb(image)


def _to_rgb(image: Image.Image) -> LoadedImage:
    """Pixels before all else: Pillow meets damage once, and a question about EXIF or frames may swallow that error."""
    deep = image.mode in ("RGB", "RGBA", "LA") and any(";16" in str(tile) for tile in getattr(image, "tile", ()))
    # a TIFF is turned by load(), which then forgets the tag
    turned = getattr(image, "tag_v2", {}).get(ExifTags.Base.Orientation) in _UPRIGHT
    image.load()
    orientation, upright = _orientation(image), image
    if orientation in _UPRIGHT:
        upright, turned = image.transpose(_UPRIGHT[orientation]), True
    rgb, conversions = _eight_bit_rgb(upright)
    frame, frames = image.tell() + 1, _frames(image)
    notes = {
        f"frame {frame} of {frames} used": frames > 1,
        "16 bits per channel reduced to 8": deep,
        "EXIF rotation applied": turned,
    }
    return LoadedImage(rgb, (*(note for note, true in notes.items() if true), *conversions))


def _eight_bit_rgb(image: Image.Image) -> tuple[Image.Image, list[str]]:
    """A plain image of its own: the file can be closed, and no colour profile or comment travels into outputs."""
    notes = []
    if image.mode.startswith("I") or image.mode == "F":
        grey, note = _squeeze(np.asarray(image), sixteen=";16" in image.mode or image.format == "PNG")
        return Image.fromarray(grey).convert("RGB"), [note]
    if image.has_transparency_data:
        kind = _PLAIN_NAMES.get(image.mode, image.mode)
        layer = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", layer.size, "white"), layer).convert("RGB")
        notes.append(f"{kind} with transparency laid on white")
    elif image.mode != "RGB":
        notes.append(f"{_PLAIN_NAMES.get(image.mode, image.mode)} converted to RGB")
        image = image.convert("RGB")
    return Image.frombytes("RGB", image.size, image.tobytes()), notes


def _orientation(image: Image.Image) -> int:
    with suppress(Exception):  # a broken EXIF block does not make the pixels unusable
        return int(image.getexif().get(ExifTags.Base.Orientation, 1))
    return 1


def _frames(image: Image.Image) -> int:
    with suppress(Exception):  # nor do frames that are not used
        return int(getattr(image, "n_frames", 1))
    return 1


def _what_else(head: bytes) -> str:
    """What a file that is no image looks like, for the message."""
    if not head:
        return "is empty (0 bytes)"
    if head.startswith(b"version https://git-lfs"):
        return "is a Git LFS pointer, not the image itself; run `git lfs pull`"
    if head.lstrip().lower().startswith((b"<!doctype", b"<html")):
        return "is an HTML page, not an image (a failed download?)"
    if b"\0" not in head and all(byte >= 32 or byte in b"\t\r\n\f\b\x1b" for byte in head):
        return "is a text file, not an image"
    return f"is not an image of a kind that is read here ({', '.join(FORMATS)})"


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
        raise ValueError("it has NaN or infinite pixels")
    low, high = wide.min(), wide.max()
    if sixteen or (low >= 0 and 255 < high <= 65535):
        return np.rint(wide / 257).astype(np.uint8), "16-bit greyscale scaled to 8 bits"
    if low >= 0 and high <= 1 and values.dtype.kind == "f":
        return np.rint(wide * 255).astype(np.uint8), "float greyscale in [0, 1] scaled to 8 bits"
    if low >= 0 and high <= 255:
        return np.rint(wide).astype(np.uint8), f"{values.dtype} greyscale rounded to 8 bits"
    stretched = np.rint((wide - low) / max(high - low, 1e-12) * 255).astype(np.uint8)
    return stretched, f"{values.dtype} greyscale of range [{low:g}, {high:g}] stretched to 8 bits"


_one_large = Lock()
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
