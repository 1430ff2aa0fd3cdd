"""JSON lines: objects appended to a file that is never rewritten, and that neither a kill nor a full disk spoils."""

from __future__ import annotations

import errno
import json
import os
from collections import deque
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from onesdaug.common.files import check_plain_file
from onesdaug.errors import DataError


def read(path: Path) -> Iterator[dict[str, Any] | None]:
    """Every object in its order, None for a damaged line; no file holds none.

    A last line that a kill tore is no damage: what it was to say has not been said.
    """
    check_plain_file(path)
    try:
        with path.open("rb") as file:
            for line in file:
                row = _parse(line)
                if row is not None or (line.strip() and line.endswith(b"\n")):
                    yield row
    except FileNotFoundError:
        return
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}") from error


def repair(path: Path) -> bool:
    """Drop a last line that a kill left torn, so that the next row starts on a line of its own; whether there was one.

    A line of which only the end is missing is kept.
    """
    if not path.exists():
        return False
    with path.open("rb+") as file:
        last = next(iter(deque(file, maxlen=1)), b"\n")
        if last.endswith(b"\n"):
            return False
        size = file.seek(0, os.SEEK_END)
        if _parse(last) is None:
            file.truncate(size - len(last))
        else:
            file.write(b"\n")
        file.flush()
        os.fsync(file.fileno())
    return True


def append(path: Path, rows: Iterable[dict[str, Any]]) -> None:
    """Add rows in one write and wait until they are on disk; all of them or, with the disk full, none."""
    data = b"".join(json.dumps(row).encode() + b"\n" for row in rows)
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    try:
        size = os.fstat(file).st_size
        try:
            if os.write(file, data) != len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
            os.fsync(file)
        except OSError:
            os.ftruncate(file, size)
            raise
    finally:
        os.close(file)


def _parse(line: bytes) -> dict[str, Any] | None:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):  # nested deeper than Python goes
        return None
    return row if isinstance(row, dict) else None
