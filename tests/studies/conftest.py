"""What all tests of studies have."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.studies.colours import colours


@pytest.fixture(autouse=True)
def many_images_to_a_call(large_batches: None) -> None:
    """In every test here: studies draw thousands of views."""


@pytest.fixture()
def place(tmp_path: Path) -> Path:
    """Of a study of a model of one's own."""
    return colours(tmp_path)
