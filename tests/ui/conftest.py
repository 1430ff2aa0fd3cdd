"""A page's networks: those that come with the package, and tiny ones that draw at once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from onesdaug.ui.networks import Networks
from onesdaug.ui.settings import UiSettings
from onesdaug.ui.work import Work
from tests.conftest import make_image

TINY = "tests.augment.test_operator:Counting"


@pytest.fixture(scope="session")
def pocket() -> Networks:
    return Networks(UiSettings(device="cpu"))


@pytest.fixture(scope="session")
def tiny() -> Networks:
    """A generator that takes no time."""
    return Networks(UiSettings(model=TINY, device="cpu", max_k=4, max_images=6))


@pytest.fixture
def photos(tmp_path: Path) -> list[Path]:
    files = []
    for number in range(4):
        files.append(tmp_path / f"photo{number}.png")
        make_image(number, (48, 32)).save(files[-1])
    return files


class Listener(Work[Any]):
    """Work that is done at once, here; what it showed is kept."""

    def __init__(self) -> None:
        super().__init__(lambda _: None, Event())
        self.shown: list[Any] = []
        self.words: list[str] = []

    def show(self, found: Any) -> None:
        self.check()
        self.shown.append(found)

    def tell(self, share: float | None, words: str) -> None:
        self.check()
        self.words.append(words)


@pytest.fixture
def work() -> Iterator[Listener]:
    return Listener()  # type: ignore[return-value]
