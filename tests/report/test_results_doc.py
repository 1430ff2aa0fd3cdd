"""docs/results.md is made from results/*.json and never edited."""

from __future__ import annotations

from pathlib import Path

import pytest

from onesdaug.report.markdown import COMMAND, DOCUMENT, FOLDER, markdown
from onesdaug.studies.result import read_result, read_results

REPOSITORY = Path(__file__).parents[2]


def test_the_document_is_what_the_results_say() -> None:
    document = REPOSITORY / DOCUMENT
    if not document.is_file():
        pytest.skip(f"there is no {DOCUMENT} yet; `{COMMAND}` writes it")
    results = read_results(REPOSITORY / FOLDER)
    assert document.read_text(encoding="utf-8") == markdown(results), f"run `{COMMAND}`"
    for sheet in (sheet for result in results for sheet in result.sheets):
        assert (REPOSITORY / FOLDER / sheet.file).is_file(), f"{DOCUMENT} shows {sheet.file}, which is not there"


def test_the_seconds_in_the_documents_are_the_stored_ones() -> None:
    import json

    text = (REPOSITORY / "docs" / "studies.md").read_text(encoding="utf-8")
    whole = read_result(REPOSITORY / FOLDER / "theory.json").made
    stored = json.loads((REPOSITORY / "benchmarks" / "results" / "studies-from-banks.json").read_text())
    assert whole.machine["device"] == "NVIDIA H200" and whole.seconds["from the start of the run"] < 600
    assert f"{whole.seconds['from the start of the run']:.0f} s on one H200" in text
    seconds = stored["seconds"]["the command, from start to report"]
    assert f"{seconds:.0f} s from stored banks on two CPU cores" in text and seconds < 60
