"""Studies draw thousands of views with a small network, whose calls cost more than its sums: many images to a call."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.studies.colours import colours


@pytest.fixture(autouse=True)
def large_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onesdaug.augment.operator.CPU_BATCH", 32)


@pytest.fixture()
def place(tmp_path: Path) -> Path:
    """Of a study of a model of one's own."""
    return colours(tmp_path)
