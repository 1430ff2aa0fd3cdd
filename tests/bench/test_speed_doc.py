"""docs/speed.md says what the stored run says."""

from __future__ import annotations

import json

from benchmarks import speed_report as report


def test_the_measured_part_is_the_stored_run() -> None:
    text = report.DOCS.read_text()
    assert report.written(text, json.loads(report.CPU.read_text())) == text, "run python benchmarks/speed_report.py"


def test_the_stored_run_names_what_made_it() -> None:
    record = json.loads(report.CPU.read_text())
    assert record["command"].startswith("onesdaug bench ") and not record["commit"].endswith("+")
    assert record["machine"]["device"] == "cpu" and record["machine"]["threads"] == 2
