"""Fixtures shared by all tests: tiny real-format models, made once per run, and sample images."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")  # of commands that tests start: both cores are busy

import numpy as np
import pytest
import torch
from hypothesis import settings
from PIL import Image

from onesdaug.common.progress import Progress

if TYPE_CHECKING:
    from tests.report.chromium import Browser
    from tests.studies.world import World

torch.set_num_threads(1)  # tiny models: threads only wait for each other
settings.register_profile("ci", deadline=None)  # two noisy cores: time is never what a property is about
settings.load_profile("ci")


@pytest.fixture(autouse=True)
def same_randomness() -> None:
    """What a test draws does not depend on which ones ran before it."""
    torch.manual_seed(0)


@pytest.fixture(autouse=True, scope="module")
def loaded_modules_stay() -> None:
    """Searching all that was ever imported for garbage, over and over, took a seventh of the suite's time."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def tiny_sd(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny Stable Diffusion in diffusers format."""
    from tests.tiny import save_sd

    return save_sd(tmp_path_factory.mktemp("sd"))


@pytest.fixture(scope="session")
def tiny_ip(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Tiny IP-Adapters: base and plus."""
    from tests.tiny import save_ip_adapter

    return {kind: save_ip_adapter(tmp_path_factory.mktemp(kind), kind) for kind in ("base", "plus")}


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    """Synthetic benchmarks, untrained checkpoints and a small generator, for studies."""
    from tests.studies.world import make_world

    return make_world(tmp_path_factory.mktemp("world"))


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """A headless Chromium."""
    from tests.report import chromium

    found = chromium.find()
    if found is None:
        pytest.skip(chromium.NOT_FOUND)
    with chromium.Browser(*found) as running:
        yield running


@pytest.fixture
def large_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls of a small network cost more than its sums: many images to a call."""
    monkeypatch.setattr("onesdaug.augment.operator.CPU_BATCH", 32)


@pytest.fixture
def one_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """Generators take one step: an example is about how they are called, not about what they draw."""
    from onesdaug import Augmenter

    load = Augmenter.from_pretrained

    def loaded(*names: Any, **options: Any) -> Augmenter:
        whole = load(*names, **options)
        return whole.with_config(whole.config.model_copy(update={"steps": 1}))

    monkeypatch.setattr(Augmenter, "from_pretrained", loaded)


Told = list[tuple[str, int, int]]


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Told:
    """What of how many is done, each time that a loop says so."""
    seen: Told = []
    advance = Progress.advance

    def heard(self: Progress, count: int = 1, skipped: int = 0) -> None:
        advance(self, count, skipped)
        seen.append((self.what, self.done, self.total))

    monkeypatch.setattr(Progress, "advance", heard)
    return seen


def make_image(seed: int, size: tuple[int, int] = (32, 32)) -> Image.Image:
    """A smooth random RGB picture: low-frequency colour, so that resizing and warping behave as on photographs."""
    coarse = np.random.default_rng(seed).integers(0, 256, (6, 6, 3), dtype=np.uint8)
    return Image.fromarray(coarse).resize(size, Image.Resampling.BICUBIC)
