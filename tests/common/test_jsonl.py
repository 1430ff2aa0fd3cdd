"""JSON lines: torn ends are repaired, damaged lines are told, a full disk takes nothing back."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from onesdaug.common import jsonl
from onesdaug.errors import DataError


def test_what_is_appended_is_read_and_damage_is_told(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    assert [*jsonl.read(path)] == [] and not jsonl.repair(path)
    jsonl.append(path, [{"n": 1}, {"n": "zwölf"}])
    with path.open("ab") as file:
        file.write(b"\x00garbage\n\n[1]\n")
    jsonl.append(path, [{"n": 3}])
    assert [*jsonl.read(path)] == [{"n": 1}, {"n": "zwölf"}, None, None, {"n": 3}]
    with pytest.raises(DataError, match="cannot be read"):
        [*jsonl.read(tmp_path)]


@pytest.mark.parametrize("torn", [b'{"n": 2', b'{"n": 2, "text": "' + b"x" * 200_000, b'{"n": 2}'])
def test_a_torn_last_line(tmp_path: Path, torn: bytes) -> None:
    path = tmp_path / "a.jsonl"
    jsonl.append(path, [{"n": 1}])
    with path.open("ab") as file:
        file.write(torn)
    kept = [{"n": 1}, {"n": 2}] if torn.endswith(b"}") else [{"n": 1}]
    assert [*jsonl.read(path)] == kept
    assert jsonl.repair(path) and not jsonl.repair(path)
    jsonl.append(path, [{"n": 3}])
    assert [*jsonl.read(path)] == [*kept, {"n": 3}]


@pytest.mark.parametrize("fails", ["write", "fsync"])
def test_a_full_disk_leaves_the_file_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: str) -> None:
    path = tmp_path / "a.jsonl"
    jsonl.append(path, [{"n": 1}])
    before, real = path.read_bytes(), os.write

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, fails, full if fails == "fsync" else lambda file, data: real(file, data[:3]))
    with pytest.raises(OSError, match="No space"):
        jsonl.append(path, [{"n": 2}, {"n": 3}])
    assert path.read_bytes() == before
