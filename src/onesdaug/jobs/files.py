"""The files of views: PNG bytes under temporary names, until the manifest knows them."""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Iterable
from pathlib import Path
from zlib import Z_RLE

from PIL import Image, ImageFile

from onesdaug.common.files import HIDDEN, LOCK, short_name

# Pillow's threads ask for the interpreter after every block of so many bytes; most pictures become a single one
ImageFile.MAXBLOCK = max(ImageFile.MAXBLOCK, 1 << 22)


def png_bytes(image: Image.Image) -> bytes:
    """The same pixels give the same bytes: no profile, comment or date travels along."""
    plain = image.convert("RGB")
    buffer = io.BytesIO()
    # of zlib's ways the one for PNG: several times as fast as the default, for nearly the same size
    Image.frombytes("RGB", plain.size, plain.tobytes()).save(buffer, "PNG", compress_level=1, compress_type=Z_RLE)
    return buffer.getvalue()


def write_png(out: Path, name: str, image: Image.Image) -> tuple[Path, str]:
    """Put an image, safely on disk, beside where OUT/name will be; gives the temporary path and the SHA-256."""
    return write_bytes(out, name, png_bytes(image))


def write_bytes(out: Path, name: str, data: bytes) -> tuple[Path, str]:
    """The same for a file's bytes."""
    final = out / name
    final.parent.mkdir(parents=True, exist_ok=True)
    temporary = final.parent / f"{HIDDEN}{short_name(name)}"
    with temporary.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    return temporary, hashlib.sha256(data).hexdigest()


def remove_leftovers(folders: Iterable[Path]) -> None:
    """Delete the temporary files that a killed job left in these folders."""
    for folder in folders:
        for file in folder.glob(HIDDEN + "*"):
            if file.name != LOCK and (file.is_symlink() or not file.is_dir()):  # a pipe would hang who opens it
                file.unlink(missing_ok=True)
