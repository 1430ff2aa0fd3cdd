"""docs/results.md is made from results/*.json and never edited."""

from __future__ import annotations

from pathlib import Path

import pytest

from onesdaug.report.markdown import COMMAND, DOCUMENT, FOLDER, markdown
from onesdaug.studies.result import read_results

REPOSITORY = Path(__file__).parents[2]


def test_the_document_is_what_the_results_say() -> None:
    document = REPOSITORY / DOCUMENT
    if not document.is_file():
        pytest.skip(f"there is no {DOCUMENT} yet; `{COMMAND}` writes it")
    results = read_results(REPOSITORY / FOLDER)
    assert document.read_text(encoding="utf-8") == markdown(results), f"run `{COMMAND}`"
    for sheet in (sheet for result in results for sheet in result.sheets):
        assert (REPOSITORY / FOLDER / sheet.file).is_file(), f"{DOCUMENT} shows {sheet.file}, which is not there"
