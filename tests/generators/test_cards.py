"""card.json in wrong shapes, and damaged shards: one line that names the folder, never a traceback."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from onesdaug.encoders.checkpoint import join, load_checkpoint, save_checkpoint
from onesdaug.encoders.load import build_backbone, load_encoder
from onesdaug.errors import DataError, OnesdaugError
from onesdaug.fewshot.heads import build_head, load_head
from onesdaug.generators.load import load_generator
from onesdaug.generators.pocket.condition import SlimRes12
from onesdaug.generators.pocket.generator import Pocket, load_decoder
from onesdaug.generators.pocket.networks import Autoencoder, Denoiser, TinyDecoder, Tokens
from onesdaug.generators.pocket.smoke import SMOKE

GONE = object()
HUGE = 10**9
ANY_KEY = [GONE, None, 7, "x", [], {}, True, 1.5, "\x1b[2J", HUGE]
DEEP = "[" * 200_000
NO_CARDS = ["", "{", "[]", "null", "7", '"card"', "{}", DEEP, '{"weights": NaN}', "\ufeff{}", "{" * 3 + "}" * 3]


def edits(card: dict[str, Any], prefix: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], Any]]:
    """Every field of the card, and of its parts, replaced by something else or gone."""
    found: list[tuple[tuple[str, ...], Any]] = []
    for name, value in card.items():
        kinds = [*ANY_KEY, -1, 0, [-1, 0, HUGE, "x"], {"name": 3}, {"x": {"y": []}}]
        found += [((*prefix, name), wrong) for wrong in kinds if wrong != value]
        if isinstance(value, dict) and value:
            found += edits(value, (*prefix, name))
    return found


def write(folder: Path, card: dict[str, Any], at: tuple[str, ...], value: Any) -> None:
    changed = json.loads(json.dumps(card))
    inner = changed
    for name in at[:-1]:
        inner = inner[name]
    if value is GONE:
        del inner[at[-1]]
    else:
        inner[at[-1]] = value
    (folder / "card.json").write_text(json.dumps(changed))


def survives(call: Callable[[], object], folder: Path) -> bool:
    """Whether it loads; if not, the error is one of ours and names where."""
    try:
        call()
    except OnesdaugError as error:
        assert str(folder) in str(error) and "Traceback" not in str(error)
        return False
    return True


@pytest.fixture(scope="module")
def classifier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cards") / "classifier"
    backbone, head = build_backbone("convnet", seed=0), build_head("feat", 64)
    card = {
        "kind": "meta", "backbone": "convnet", "head": {"name": "feat", "settings": {"temperature": 32.0}},
        "preprocess": backbone.default_preprocess.to_dict(),
    }  # fmt: skip
    save_checkpoint(folder, join({"encoder": backbone, "head": head}), card)
    return folder


@pytest.fixture(scope="module")
def pocket(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder, config = tmp_path_factory.mktemp("cards") / "pocket", SMOKE.network
    parts = {"autoencoder": Autoencoder(config), "denoiser": Denoiser(config), "tokens": Tokens(config)}
    stage = {"steps": 2, "batch": 8, "seconds": 0.1, "images_per_second": 80}
    card = {
        "kind": "pocket", "mode": "class", "network": config.to_dict(), "init": None, "recipe": {}, "seconds": 0.4,
        "condition": {"name": "slim-res12", "widths": list(SMOKE.widths)}, "stages": {"denoiser": stage},
        "data": {"name": "x", "classes": ["a", "b"], "images": 3, "fingerprint": "f"},
    }  # fmt: skip
    save_checkpoint(folder, join({**parts, "condition": SlimRes12(SMOKE.widths)}), card)
    return folder


def copied(folder: Path, tmp_path: Path) -> tuple[Path, dict[str, Any]]:
    shutil.copytree(folder, tmp_path / "copy")
    return tmp_path / "copy", json.loads((folder / "card.json").read_text())


def test_an_encoders_card_in_wrong_shapes(classifier: Path, tmp_path: Path) -> None:
    folder, card = copied(classifier, tmp_path)
    assert survives(lambda: load_encoder(folder), folder) and survives(lambda: load_head(folder), folder)
    refused = dict.fromkeys(card, 0)
    for at, value in edits(card):
        write(folder, card, at, value)
        good = survives(lambda: load_encoder(folder), folder) & survives(lambda: load_head(folder), folder)
        refused[at[0]] += not good
    assert min(refused[name] for name in ("weights", "backbone", "preprocess", "head")) >= 9
    for text in NO_CARDS:
        (folder / "card.json").write_text(text, encoding="utf-8")
        assert not survives(lambda: load_encoder(folder), folder)
    (folder / "card.json").write_bytes(b"\xff\xfe\x00")
    assert not survives(lambda: load_encoder(folder), folder)


def test_a_generators_card_in_wrong_shapes(pocket: Path, tmp_path: Path) -> None:
    folder, card = copied(pocket, tmp_path)
    assert survives(lambda: Pocket.from_pretrained(folder, device="cpu"), folder)
    refused = dict.fromkeys(card, 0)
    for at, value in edits(card):
        write(folder, card, at, value)
        refused[at[0]] += not survives(lambda: Pocket.from_pretrained(folder, device="cpu"), folder)
    assert min(refused[name] for name in ("weights", "kind", "mode", "network", "condition", "data", "stages")) >= 9
    for text in NO_CARDS:
        (folder / "card.json").write_text(text, encoding="utf-8")
        assert not survives(lambda: Pocket.from_pretrained(folder, device="cpu"), folder)
        assert not survives(lambda: load_generator(folder, device="cpu"), folder)


def test_a_tiny_decoders_card_in_wrong_shapes(tmp_path: Path) -> None:
    folder = tmp_path / "copy"
    sizes = {"channels": 4, "width": 8, "depth": 1}
    card = save_checkpoint(
        folder,
        join({"decoder": TinyDecoder(**sizes)}),
        {"kind": "pocket-decoder", "latents": "l", "network": sizes},
    )
    assert survives(lambda: load_decoder(folder, "l"), folder)
    for at, value in edits({name: card[name] for name in ("kind", "latents", "network", "weights")}):
        write(folder, card, at, value)
        assert not survives(lambda: load_decoder(folder, "l"), folder), (at, value)


@pytest.mark.parametrize("damage", ["empty", "text", "cut", "header", "pipe", "folder", "other tensors"])
def test_a_damaged_shard_is_named(classifier: Path, tmp_path: Path, damage: str) -> None:
    folder, card = copied(classifier, tmp_path)
    shard = folder / "model.safetensors"
    content = bytearray(shard.read_bytes())
    shard.unlink()
    if damage == "pipe":
        os.mkfifo(shard)
    elif damage == "folder":
        shard.mkdir()
    elif damage == "other tensors":
        save_checkpoint(folder, {"encoder.w": torch.zeros(2)}, card)
    else:
        content[3] ^= 0xFF if damage == "header" else 0
        parts = {"empty": b"", "text": b"hello", "cut": content[: len(content) // 2], "header": content}
        shard.write_bytes(parts[damage])
    with pytest.raises(DataError, match=str(folder)):
        load_encoder(folder)


def test_what_fits_is_still_loaded_as_it_was(pocket: Path) -> None:
    tensors, card = load_checkpoint(pocket)
    made = Pocket.from_pretrained(pocket, device="cpu")
    assert torch.equal(made.denoiser.state_dict()["place"], tensors["denoiser.place"]) and made.card == card
    assert Pocket.from_pretrained(pocket, device="cpu", side=64).size == 64
