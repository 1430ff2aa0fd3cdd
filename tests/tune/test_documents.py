"""docs/tune.md says what the stored measurements say."""

from __future__ import annotations

import json

from benchmarks import auto_views, tune_check


def test_the_tables_are_those_of_the_stored_numbers() -> None:
    text = auto_views.DOCUMENT.read_text()
    tables = {
        auto_views.NAME: auto_views.table(json.loads(auto_views.RESULT.read_text())),
        tune_check.NAME: tune_check.paragraph(json.loads(tune_check.RESULT.read_text())),
    }
    assert auto_views.with_tables(text, tables) == text, "run benchmarks/auto_views.py and tune_check.py document"
