"""The manifest survives being torn, and the latest row of a file counts."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from onesdaug.jobs.manifest import Manifest, batch_id, view_key


def row(view: str, key: str = "k", **more: object) -> dict[str, object]:
    names = {"key": key, "view": view, "source": view, "sha256": "s", "digest": "d", "batch": "b"}
    return {"status": "ok", "k": 1, "config": "c", "generator": "g", **names, **more}


def test_latest_row_wins_and_errors_are_replaced_by_success(tmp_path: Path) -> None:
    manifest = Manifest(tmp_path)
    manifest.remark("a", "error", "broken")
    manifest.remark("a", "error", "broken")  # said before: not written again
    manifest.append([row("a", "old"), row("b")])
    manifest.append([row("a", "new")])
    again = Manifest(tmp_path)
    assert again.views["a"]["key"] == "new"
    assert again.remarks == {}
    assert len(again.path.read_text().splitlines()) == 4


@pytest.mark.parametrize("cut", [1, 5, 40])
def test_a_torn_last_line_is_dropped_before_appending(tmp_path: Path, cut: int) -> None:
    Manifest(tmp_path).append([row("a"), row("b")])
    path = tmp_path / "manifest.jsonl"
    os.truncate(path, path.stat().st_size - cut)
    manifest = Manifest(tmp_path)
    assert manifest.repair()
    manifest.append([row("c")])
    again = Manifest(tmp_path)
    assert set(again.views) == ({"a", "b", "c"} if cut == 1 else {"a", "c"})  # cut 1 took only the line's end
    assert again.unreadable == 0
    assert not again.repair()


def test_damaged_lines_in_the_middle_are_counted(tmp_path: Path) -> None:
    (tmp_path / "manifest.jsonl").write_text('garbage\n{"status": "ok"}\n[]\n\n')
    manifest = Manifest(tmp_path)
    assert (manifest.unreadable, manifest.views) == (3, {})


def test_a_full_disk_leaves_the_manifest_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    manifest = Manifest(tmp_path)
    manifest.append([row("a")])
    before = manifest.path.read_bytes()
    real = os.write
    monkeypatch.setattr(os, "write", lambda file, data: real(file, data[:10]))
    with pytest.raises(OSError, match="No space"):
        manifest.append([row("b")])
    assert manifest.path.read_bytes() == before


def test_keys_depend_on_all_that_decides_the_pixels() -> None:
    base = ("digest", "{}", 0, 1, "model")
    others = [("x", *base[1:]), ("digest", "{1}", 0, 1, "model"), (*base[:2], 1, 1, "model")]
    others += [(*base[:3], 2, "model"), (*base[:4], "m")]
    assert len({view_key(*parts) for parts in [base, *others]}) == 6
    assert batch_id(["a", "b"]) != batch_id(["b", "a"])
