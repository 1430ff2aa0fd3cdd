"""The same views as ever: digests of every preset's views, both pocket generators, three seeds.

`python -m tests.augment.test_digests` writes them anew, which is right only when views are meant to change. Kernels
round differently on other processors and versions of torch: there the digests say nothing, and the test says so.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
import torch

from onesdaug import Augmenter
from onesdaug.augment.config import PRESETS, preset
from tests.conftest import make_image

FILE = Path(__file__).with_name("digests.json")
GENERATORS = ("pocket", "pocket-imagenet")
SEEDS = (0, 1, 2)


def here() -> dict[str, str]:
    """What the last bit of a view depends on."""
    return {"torch": torch.__version__, "cpu": torch.backends.cpu.get_cpu_capability()}


def digests(generator: str) -> dict[str, list[str]]:
    loaded = Augmenter.from_pretrained(generator, device="cpu", dtype="float32")
    image = make_image(7, (84, 84))
    found = {}
    for name in (name for name in PRESETS if not name.startswith("photo")):  # those are for another generator
        augmenter = Augmenter(loaded.generator, preset(name))
        views = [augmenter(image, k=1, seed=seed)[0] for seed in SEEDS]
        found[name] = [hashlib.sha256(view.tobytes()).hexdigest()[:16] for view in views]
    return found


@pytest.mark.parametrize("generator", GENERATORS)
def test_views_are_the_same_bytes_as_ever(generator: str) -> None:
    stored = json.loads(FILE.read_text())
    if stored["here"] != here():
        pytest.skip(f"digests are of {stored['here']}, this is {here()}")
    assert digests(generator) == stored[generator]


if __name__ == "__main__":
    FILE.write_text(json.dumps({"here": here(), **{name: digests(name) for name in GENERATORS}}, indent=1) + "\n")
