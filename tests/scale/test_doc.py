"""docs/scale.md says what the stored run says, and the stored run is what was asked for."""

from __future__ import annotations

import json

import pytest

from benchmarks import scale


def test_the_measured_parts_are_the_stored_run() -> None:
    text = scale.DOCS.read_text()
    assert scale.written(text) == text, "run python benchmarks/scale.py"


def test_the_stored_run_keeps_its_promises() -> None:
    """At 16 clients batches answer at least twice as many; malformed requests are 4xx; memory stays."""
    stored = json.loads(scale.STORED.read_text())["service"]
    assert stored["batches"]["requests_per_second"] >= 2 * stored["one by one"]["requests_per_second"]
    assert stored["malformed"]["requests"] == 10_000
    assert {code[0] for code in stored["malformed"]["codes"]} == {"4"}
    assert stored["memory"]["after_2000_mb"] < 1.05 * stored["memory"]["after_500_mb"]


def test_rate_between_the_first_batch_and_the_last() -> None:
    times = ["2026-01-01T00:00:00.000", "2026-01-01T00:00:00.010", "2026-01-01T00:00:01", "2026-01-01T00:00:02"]
    assert scale.steady_rate(times) == pytest.approx(1.0)
