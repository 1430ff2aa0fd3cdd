"""The page of all made-up results: drawn once, because its plots take seconds."""

from __future__ import annotations

from pathlib import Path

import pytest

from onesdaug.studies.page import write_report
from tests.report import example


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("results")
    example.write(made)
    (made / "other.json").write_text('{"rows": []}', encoding="utf-8")  # other results lie in the same folder
    return made


@pytest.fixture(scope="session")
def page_file(folder: Path) -> Path:
    return write_report(folder, folder / "report.html")
