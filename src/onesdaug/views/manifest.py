"""manifest.jsonl: one JSON object per view and per failed input, appended and never rewritten."""

from __future__ import annotations

import errno
import hashlib
import json
import os
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from onesdaug.errors import DataError

SCHEMA = 1  # part of every key: raise it when the same settings begin to give other pixels
NAME = "manifest.jsonl"
_OF_VIEW = ("view", "key", "sha256", "source", "digest", "batch", "config", "generator")


def view_key(digest: str, config_json: str, seed: int, k: int, fingerprint: str) -> str:
    """Name of a view's content: everything that decides its pixels."""
    return _hash([digest, config_json, seed, k, fingerprint, SCHEMA])


def batch_id(keys: Iterable[str]) -> str:
    """Name of a batch: its rows in order. Results may depend, in the last bit, on who shares the batch."""
    return _hash(list(keys))


def _hash(parts: list[Any]) -> str:
    return hashlib.blake2b(json.dumps(parts).encode(), digest_size=16).hexdigest()


class Manifest:
    """The manifest of one output folder: `views` and `remarks` hold what counts now, the latest row of each.

    A file has at most one row that counts, the last one that names it: its key says what the file should hold
    and its sha256 what was written.
    """

    def __init__(self, out: Path) -> None:
        self.path = out / NAME
        self.views: dict[str, dict[str, Any]] = {}
        self.remarks: dict[str, dict[str, Any]] = {}  # by source: errors and notes
        self.unreadable = 0  # damaged lines that were passed over
        if self.path.exists():
            try:
                with self.path.open("rb") as file:
                    for line in file:
                        self._take(line)
            except OSError as error:
                raise DataError(f"{self.path} cannot be read: {error.strerror or error}") from error

    def _take(self, line: bytes) -> None:
        row = _parse(line)
        if row is None:
            self.unreadable += bool(line.strip())
        elif row.get("status") == "ok":
            self.views[row["view"]] = row
            self.remarks.pop(row["source"], None)
        else:
            self.remarks[row["source"]] = row

    def repair(self) -> bool:
        """Drop a last line that a kill left torn, so that the next row starts on a line of its own."""
        if not self.path.exists():
            return False
        with self.path.open("rb+") as file:
            size = file.seek(0, os.SEEK_END)
            tail = b""
            while size - len(tail) > 0 and b"\n" not in tail:
                start = max(0, size - len(tail) - 65536)
                file.seek(start)
                tail = file.read(size - start)
            torn = tail.rpartition(b"\n")[2]
            if not torn:
                return False
            if _parse(torn) is None:
                file.truncate(size - len(torn))
                self.unreadable = max(0, self.unreadable - 1)
            else:  # whole, only the line's end is missing
                file.seek(0, os.SEEK_END)
                file.write(b"\n")
            file.flush()
            os.fsync(file.fileno())
        return True

    def append(self, rows: list[dict[str, Any]]) -> None:
        """Add rows in one write and wait until they are on disk; all of them or, with the disk full, none."""
        stamp = {"schema": SCHEMA, "time": datetime.now(UTC).isoformat(timespec="milliseconds")}
        lines = [json.dumps({**row, **stamp}).encode() + b"\n" for row in rows]
        data = b"".join(lines)
        file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
        try:
            size = os.fstat(file).st_size
            try:
                if os.write(file, data) != len(data):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.path))
                os.fsync(file)
            except OSError:
                os.ftruncate(file, size)
                raise
        finally:
            os.close(file)
        for line in lines:
            self._take(line)

    def remark(self, source: str, status: str, reason: str, **more: Any) -> None:
        """Record an input that failed ("error") or something to know ("note"); once, not at every rerun."""
        known = self.remarks.get(source)
        if known is None or (known["status"], known["reason"]) != (status, reason):
            self.append([{"key": None, "status": status, "source": source, "reason": reason, **more}])


def _parse(line: bytes) -> dict[str, Any] | None:
    try:
        row = json.loads(line)
    except ValueError:
        return None
    if not isinstance(row, dict):
        return None
    needed = _OF_VIEW if row.get("status") == "ok" else ("source",)
    whole = all(isinstance(row.get(name), str) for name in needed)
    return row if whole and ("view" not in needed or isinstance(row.get("k"), int)) else None
