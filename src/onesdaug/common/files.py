"""Whole files or none, and one writer at a time: temporary names, checksums, the lock of an output folder."""

from __future__ import annotations

import errno
import hashlib
import os
import re
import shutil
import signal
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from onesdaug.common.progress import log
from onesdaug.errors import ConfigError, DataError

HIDDEN = ".onesdaug-"  # prefix of everything of ours that is no result
LOCK = HIDDEN + "lock"


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """A temporary name beside `path`: the file written there takes its place when the block ends well, else goes."""
    target = path.resolve()  # a link stays one
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = _beside(target)
    try:
        yield temporary
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def whole_folder(path: Path) -> Iterator[Path]:
    """The same for a folder, given empty; an old one makes room. A kill never leaves a mixture of the two."""
    new, old = _beside(path), _beside(path, "-old")
    shutil.rmtree(new, ignore_errors=True)  # a killed process may have had the same number
    new.mkdir(parents=True)
    try:
        yield new
        if path.exists():
            shutil.rmtree(old, ignore_errors=True)
            path.rename(old)
        new.rename(path)
    finally:
        shutil.rmtree(new, ignore_errors=True)
    shutil.rmtree(old, ignore_errors=True)


def write_text(path: Path, text: str) -> Path:
    """Write a text file whole or not at all; a pipe or a terminal is written to as it is."""
    if path.exists() and not path.is_file():
        path.write_text(text, encoding="utf-8")
        return path
    with whole_file(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
    return path


def _beside(path: Path, mark: str = "") -> Path:
    """A name of this process's own for each target; short, as the target's may be as long as the system allows."""
    return path.with_name(f"{HIDDEN}{os.getpid()}-{short_name(path.name)}{mark}.tmp")  # torch.save wants an ending


def is_uri(path: object) -> bool:
    """Whether it names a file by a scheme, s3://bucket/photos for instance."""
    return re.match(r"[a-z][a-z0-9+.-]+://", str(path)) is not None


def short_name(name: str) -> str:
    return hashlib.blake2b(os.fsencode(name), digest_size=8).hexdigest()


def mode_of(path: Path) -> int:
    """The kind of what is there, for `stat`'s tests; 0 for nothing, and for what cannot be reached or named."""
    try:
        return path.stat().st_mode
    except (OSError, ValueError):
        return 0


def check_plain_file(path: Path) -> None:
    """Refuse what is there and is no regular file: opening a pipe would wait for ever, and a device has no end."""
    if (mode := mode_of(path)) and not stat.S_ISREG(mode):
        kind = "a folder" if stat.S_ISDIR(mode) else "a pipe" if stat.S_ISFIFO(mode) else "a device or a socket"
        raise DataError(f"{path} cannot be read or written: it is {kind}, not a file; move it away")


def sha256_of(path: Path) -> str | None:
    """SHA-256 of a file, None when there is none, nothing when there is something that cannot be read."""
    try:
        check_plain_file(path)
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except FileNotFoundError:
        return "" if path.is_symlink() else None
    except (OSError, DataError):  # a folder, a pipe, a link to itself, someone else's
        return ""


def check_writable(out: Path) -> None:
    """See, before any weights are loaded, that OUT is or can become a folder to write to."""
    there = next(place for place in (out, *out.absolute().parents) if mode_of(place))
    if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        raise ConfigError(f"cannot write to the output folder {out}: {there} is not a folder that can be written to")


@contextmanager
def locked(out: Path, wait: bool = False) -> Iterator[None]:
    """Hold OUT for this job; another is refused or, to `wait`, let in when OUT is free or gone.

    The kernel lets go of the lock when the process ends, however it ends.
    """
    while True:
        check_plain_file(out / LOCK)
        try:
            out.mkdir(parents=True, exist_ok=True)
            file = (out / LOCK).open("a")
        except OSError as error:
            if wait and isinstance(error, FileNotFoundError):  # taken away just now by who held it
                continue
            raise ConfigError(f"cannot write to the output folder {out}: {error.strerror or error}") from error
        with file:
            if not _lock(file):
                if not wait:
                    raise ConfigError(
                        f"another onesdaug job is writing to {out}; wait for it to end, or give another output folder"
                    )
                log.info(f"waiting for another run, which writes to {out}")
                _lock(file, wait=True)
            if os.fstat(file.fileno()).st_nlink:  # else OUT has gone while we waited: what is there now is another
                yield
                return


def _lock(file: IO[str], wait: bool = False) -> bool:
    """Whether nobody else holds it."""
    try:
        import fcntl
    except ImportError:  # not a POSIX system: nothing to lock with
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP):  # those of a file system without locks
            raise
    return True


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
