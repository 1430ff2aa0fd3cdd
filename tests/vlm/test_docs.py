"""The document says what the stored run says."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks.pope_speed import table

ROOT = Path(__file__).resolve().parents[2]


def test_the_table_of_seconds_is_the_stored_one() -> None:
    record = json.loads((ROOT / "benchmarks" / "results" / "pope-speed.json").read_text())
    text = (ROOT / "docs" / "vlm.md").read_text()
    assert f"<!-- table: speed -->\n{table(record)}\n<!-- end of table -->" in text
    assert record["commit"] in text and record["machine"]["device"].removeprefix("NVIDIA ") in text
