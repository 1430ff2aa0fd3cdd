"""Studies draw thousands of views with a small network, whose calls cost more than its sums: many images to a call."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def large_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onesdaug.augment.operator.CPU_BATCH", 32)
