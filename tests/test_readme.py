"""README.md: its Python runs as pasted, and it says what the program says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from onesdaug.common.hub import GIGABYTES
from onesdaug.common.options import IP_REPO
from onesdaug.generators.sd.files import REPO
from tests.docs.blocks import ROOT, blocks

README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_each_block_runs_by_itself_in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    made: list[dict[str, Any]] = []
    for block in blocks("README.md", "python"):
        names: dict[str, Any] = {}
        exec(compile(block.code, "README.md", "exec"), names)
        made.append(names)
    views, ensemble = made
    assert [view.size for view in views["views"]] == [views["photo"].size] * 3
    assert [len(row) for row in views["many"]] == [3, 3] and views["x"].shape == (2, 3, 3, 84, 84)
    assert ensemble["features"].shape == ensemble["encoder"](ensemble["batch"]).shape


def test_the_size_of_the_weights_is_one_number() -> None:
    said = f"about {GIGABYTES[REPO] + GIGABYTES[IP_REPO]:.0f} GB"
    for page in ("README.md", "docs/vlm.md"):
        (row,) = re.findall(r"^\|.*Stable Diffusion 1\.5.*$", (ROOT / page).read_text(encoding="utf-8"), re.MULTILINE)
        assert said in row, page


def test_nothing_is_installed_by_a_name_that_is_not_published_yet() -> None:
    for page in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]:
        assert not re.search(r"pip install '?onesdaug", page.read_text(encoding="utf-8")), page.name
