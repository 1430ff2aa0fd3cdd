"""Pictures that lie beside a result, inside the page: their own bytes, or in their place why they cannot be shown."""

from __future__ import annotations

import base64
import io
from dataclasses import dataclass
from pathlib import Path

from PIL import Image

from onesdaug.data.images import load_image, opened
from onesdaug.errors import DataError, ImageError

_TYPES = {"JPEG": "image/jpeg", "PNG": "image/png", "WEBP": "image/webp", "GIF": "image/gif"}
_SIDE = 256  # pixels of a thumbnail's longer side: sharp at the 128 or so CSS pixels it gets


@dataclass(frozen=True)
class Picture:
    uri: str = ""
    size: tuple[int, int] = (0, 0)
    problem: str = ""


def embed(folder: Path, file: str) -> Picture:
    try:
        return Picture(*_uri(folder, file))
    except (DataError, ImageError, OSError) as error:
        return Picture(problem=str(error).replace(f"{folder}/", ""))


def _uri(folder: Path, name: str) -> tuple[str, tuple[int, int]]:
    """The file's own bytes, once it has been shown to decode: a broken one would leave a hole in the page."""
    if Path(name).is_absolute() or ".." in Path(name).parts:
        raise DataError(f"{name} does not lie beside the results")
    path = folder / name
    size = load_image(path).size
    with opened(path, name) as picture:
        kind = picture.format or ""
    if kind not in _TYPES:
        raise DataError(f"{name} is {kind or 'of a kind'} that browsers do not show; PNG, JPEG and WebP are shown")
    return f"data:{_TYPES[kind]};base64,{base64.b64encode(path.read_bytes()).decode()}", size


def save_thumbnail(image: Image.Image, path: Path) -> None:
    """A JPEG of a few kilobytes, whatever the image."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(thumbnail(image))


def thumbnail(image: Image.Image) -> bytes:
    """The same as the file's bytes."""
    small, file = image.convert("RGB"), io.BytesIO()
    small.thumbnail((_SIDE, _SIDE), Image.Resampling.LANCZOS)
    small.save(file, "JPEG", quality=85, optimize=True)
    return file.getvalue()


def thumbnail_uri(image: Image.Image) -> str:
    """The same inside a page."""
    return f"data:image/jpeg;base64,{base64.b64encode(thumbnail(image)).decode()}"
