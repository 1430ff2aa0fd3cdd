"""manifest.jsonl: one JSON object per view and per failed input, appended and never rewritten."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, InstanceOf, ValidationError

from onesdaug.common import jsonl
from onesdaug.jobs.plan import view_name

SCHEMA = 1  # part of every key: raise it when the same settings begin to give other pixels
NAME = "manifest.jsonl"
Text = InstanceOf[str]  # names may hold bytes that are no characters, which pydantic's own str refuses


def _inside(name: str) -> str:
    """A path in an edited line must not lead out of the folder: leftovers are deleted beside the views."""
    if not name or PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts:
        raise ValueError("does not lie in the output folder")
    return name


class ViewRow(BaseModel):
    """What is relied on of a view's line; `views` holds the lines as they are."""

    model_config = ConfigDict(strict=True)

    view: Annotated[Text, AfterValidator(_inside)]
    k: int = Field(ge=1, le=1_000_000)
    key: Text
    sha256: Text
    tweak_sha256: Text | None = None
    source: Text
    digest: Text
    batch: Text
    config: Text
    generator: Text


class RemarkRow(BaseModel):
    """The line of an input that failed, or of something to know about it."""

    model_config = ConfigDict(strict=True)

    source: Text
    status: Text
    reason: Text


def view_key(digest: str, config_json: str, seed: int, k: int, fingerprint: str) -> str:
    """Name of a view's content: everything that decides its pixels."""
    return _hash([digest, config_json, seed, k, fingerprint, SCHEMA])


def made_with(row: dict[str, Any]) -> tuple[str, Any, str]:
    """The settings behind a view: views of different ones are never mixed."""
    return row["config"], row.get("seed"), row["generator"]


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
        for row in jsonl.read(self.path):
            self._take(row)

    def _take(self, row: dict[str, Any] | None) -> None:
        if row is None or not _whole(row):
            self.unreadable += 1
        elif row.get("status") == "ok":
            self.views[row["view"]] = row
            self.remarks.pop(row["source"], None)
        else:
            self.remarks[row["source"]] = row

    def rows(self, prefix: str, k: int) -> list[dict[str, Any]]:
        """What is known of views 1..k of the input whose files begin with `prefix`; those never made are left out."""
        names = (view_name(prefix, number) for number in range(1, k + 1))
        return [self.views[name] for name in names if name in self.views]

    def repair(self) -> bool:
        """Drop a last line that a kill left torn; whether there was one."""
        return jsonl.repair(self.path)

    def append(self, rows: list[dict[str, Any]]) -> None:
        """Add rows and wait until they are on disk; all of them or, with the disk full, none."""
        stamp = {"schema": SCHEMA, "time": datetime.now(UTC).isoformat(timespec="milliseconds")}
        stamped = [{**row, **stamp} for row in rows]
        jsonl.append(self.path, stamped)
        for row in stamped:
            self._take(row)

    def remark(self, source: str, status: str, reason: str) -> None:
        """Record an input that failed ("error") or something to know ("note"); once, not at every rerun."""
        known = self.remarks.get(source)
        if known is None or (known["status"], known["reason"]) != (status, reason):
            self.append([{"key": None, "status": status, "source": source, "reason": reason}])


def _whole(row: dict[str, Any]) -> bool:
    try:
        (ViewRow if row.get("status") == "ok" else RemarkRow).model_validate(row)
    except ValidationError:
        return False
    return True
