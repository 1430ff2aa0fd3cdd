"""The demo's banks drawn anew: the same images and originals, views of the generator that is there."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks import demo_bank
from onesdaug import Augmenter
from onesdaug.augment.config import preset
from onesdaug.data.dataset import Dataset
from onesdaug.fewshot.bank import FeatureBank

NAME = "mini-protonet-convnet"


def test_sources_name_a_generator_and_where_it_enters() -> None:
    own, at = (demo_bank.augmenter_of(source).config for source in ("pocket", "pocket@0.7"))
    assert own == preset("pocket-accuracy")
    assert at == preset("pocket-accuracy", noise_level=0.7, noise_map="strength", steps=10)


def test_only_views_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    released = demo_bank.OUT / f"{NAME}.pocket.safetensors"
    few = FeatureBank.load(released)
    ids = few.info.ids[:3]
    info = replace(few.info, ids=ids, views={"source": "pocket", "k": 3})
    FeatureBank(few.features[:3], few.labels[:3], info).save(tmp_path / released.name)
    entry = {"file": released.name, "classifier": NAME, "source": "pocket", "data": "test classes", "spread": 0.1}
    (tmp_path / demo_bank.CARD).write_text(json.dumps({"banks": [entry], "bytes": 0}))
    images = np.random.default_rng(0).integers(0, 255, (5, 84, 84, 3), dtype=np.uint8)
    split = Dataset(images, np.zeros(5, int), ("n1",), ("x", *ids[::-1], "y"), "toys")
    monkeypatch.setattr(demo_bank, "load_split", lambda *_: split)
    drawn = Augmenter(Augmenter.from_pretrained("pocket", device="cpu").generator, preset("pocket-accuracy", steps=1))
    monkeypatch.setattr(demo_bank, "augmenter_of", lambda source: drawn)
    shutil.copytree(demo_bank.RELEASED / NAME, tmp_path / "released" / NAME)
    demo_bank.redraw(["pocket"], tmp_path, tmp_path / "released")
    made = FeatureBank.load(tmp_path / released.name)
    assert torch.equal(made.features[:, 0], few.features[:3, 0]) and made.info.ids == ids
    assert not torch.equal(made.features[:, 1:], few.features[:3, 1:])
    assert made.info.views["generator"] == drawn.fingerprint
    card = json.loads((tmp_path / demo_bank.CARD).read_text())
    assert card["banks"][0]["spread"] is None and card["banks"][0]["data"] == "test classes"
    assert card["bytes"] == card["banks"][0]["bytes"] == (tmp_path / released.name).stat().st_size
