"""examples/quickstart.ipynb: its cells run in order in one process, and it is stored without outputs."""

from __future__ import annotations

import json
import re
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest

from onesdaug.cli import main

FILE = Path(__file__).resolve().parents[2] / "examples" / "quickstart.ipynb"


def cells(kind: str) -> list[dict[str, Any]]:
    notebook = json.loads(FILE.read_text(encoding="utf-8"))
    assert notebook["nbformat"] == 4
    return [cell for cell in notebook["cells"] if cell["cell_type"] == kind]


def test_it_is_stored_as_written() -> None:
    """No outputs, no counts, no paths of a machine; each cell has a name of its own."""
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in cells("code"))
    assert not re.search(r"/(home|root|tmp|work|Users)/", FILE.read_text(encoding="utf-8"))
    names = [cell["id"] for kind in ("code", "markdown") for cell in cells(kind)]
    assert len(set(names)) == len(names)


@pytest.mark.usefixtures("one_step")
def test_it_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("skimage")
    pytest.importorskip("sklearn")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    names: dict[str, Any] = {}
    for cell in cells("code"):
        code = "".join(cell["source"])
        if code.startswith("!onesdaug"):  # a shell's line, with names of the notebook in braces
            monkeypatch.setattr(sys, "argv", shlex.split(code[1:].format(**names)))
            with pytest.raises(SystemExit) as done:
                main()
            assert not done.value.code, capsys.readouterr()
        else:
            exec(compile(code, FILE.name, "exec"), names)
    assert [view.size for view in names["views"]] == [names["photo"].size] * 3
    assert names["answers"].shape == (4, 4)
    assert (names["folder"] / "tuned.json").is_file()
    printed = capsys.readouterr().out
    assert "0 views:" in printed and "2 views:" in printed and "1-shot:" in printed
