"""Augmenters whose views depend on everyone in the batch, for jobs on other processes."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from onesdaug.augment.operator import Row, View
from onesdaug.augment.seeds import image_digest
from onesdaug.scale.batch import Loader
from tests.conftest import make_image
from tests.jobs.fake import Fake


class Drawer(Fake):
    """Leaves its process number in `pids`; the `deadly` image kills the process, or is only bad, as said."""

    side, device = None, "cpu"

    def __init__(self, pids: Path, seconds: float = 0.0, deadly: str = "", kills: bool = False) -> None:
        super().__init__(batch_size=4)
        self.pids, self.seconds, self.deadly, self.kills = pids, seconds, deadly, kills

    def summary(self) -> str:
        return "fake"

    def run(self, rows: Sequence[Row], tweaked: bool = False) -> list[View]:
        (self.pids / str(os.getpid())).touch()
        time.sleep(self.seconds)
        if self.deadly in {image_digest(row.image) for row in rows}:
            if self.kills:
                os._exit(1)
            raise RuntimeError("this image breaks the network")
        return super().run(rows, tweaked)


def drawer(*args: object, **settings: object) -> Loader:
    return partial(Drawer, *args, **settings)  # type: ignore[arg-type]


def photographs(folder: Path, count: int, bad: int) -> Path:
    """p0.png and so on; one of them is no image."""
    folder.mkdir()
    for number in range(count):
        make_image(number).save(folder / f"p{number}.png")
    (folder / f"p{bad}.png").write_bytes(b"no image")
    return folder
