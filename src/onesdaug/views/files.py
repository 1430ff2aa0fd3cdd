"""Whole files or none: PNG bytes, temporary names, checksums, the lock of an output folder."""

from __future__ import annotations

import hashlib
import io
import os
import signal
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from zlib import Z_RLE

from PIL import Image, ImageFile

from onesdaug.errors import ConfigError
from onesdaug.views.plan import HIDDEN, LOCK

_TEMPORARY = HIDDEN + "tmp-"

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
    data = png_bytes(image)
    final = out / name
    final.parent.mkdir(parents=True, exist_ok=True)
    # a short name of its own for each target: the target's may already be as long as the file system allows
    temporary = final.parent / (_TEMPORARY + hashlib.blake2b(os.fsencode(name), digest_size=8).hexdigest())
    with temporary.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    return temporary, hashlib.sha256(data).hexdigest()


def sha256_of(path: Path) -> str | None:
    """SHA-256 of a file, None when there is none, nothing when there is something that cannot be read."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (IsADirectoryError, PermissionError):
        return ""


def remove_leftovers(folders: Iterable[Path]) -> None:
    """Delete the temporary files that a killed job left in these folders."""
    for folder in folders:
        for file in folder.glob(_TEMPORARY + "*"):
            with suppress(FileNotFoundError):
                file.unlink()


def check_writable(out: Path) -> None:
    """See, before any weights are loaded, that OUT is or can become a folder to write to."""
    there = next(place for place in (out, *out.absolute().parents) if place.exists())
    if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        raise ConfigError(f"cannot write to the output folder {out}: {there} is not a folder that can be written to")


@contextmanager
def locked(out: Path) -> Iterator[None]:
    """Hold OUT for this job. The kernel lets go of the lock when the process ends, however it ends."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        file = (out / LOCK).open("a")
    except OSError as error:
        raise ConfigError(f"cannot write to the output folder {out}: {error.strerror or error}") from error
    with file:
        try:
            import fcntl
        except ImportError:  # not a POSIX system: nothing to lock with
            yield
            return
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConfigError(
                f"another onesdaug job is writing to {out}; wait for it to end, or give another output folder"
            ) from None
        yield


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Let a Ctrl-C wait until the block is through."""
    if threading.current_thread() is not threading.main_thread():
        yield  # signals go to the main thread only
        return
    caught: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _: caught.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before or signal.default_int_handler)
    if caught:
        raise KeyboardInterrupt
