"""Pictures of each kind, and an encoder that needs no weights."""

from __future__ import annotations

import pytest

from onesdaug.data.dataset import Dataset
from onesdaug.generators.pocket import photo_training
from tests.generators.photos import Glance, part


@pytest.fixture
def glance(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(photo_training.PhotoTraining, "encoder", Glance())


@pytest.fixture(scope="module")
def pictures() -> list[tuple[str, Dataset]]:
    return [
        ("photographs", part(range(8), 64)),
        ("data", part(range(20, 24), 48, ["n1", "n1", "n2", "n2"])),
        ("photographs", part(range(6, 12), 64, mark="again")),
        ("also", part(range(30, 33), 32, ["n1", "n3", "n3"])),
    ]
