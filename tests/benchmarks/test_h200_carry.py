"""What travels to a lent machine goes in few folders, none of them too large."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from benchmarks import h200_carry
from benchmarks.h200_carry import fitted


def test_items_go_into_the_first_folder_that_has_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(h200_carry, "LARGEST", 10)
    assert fitted([6, 7, 4, 3, 10, 1], lambda size: size) == [[6, 4], [7, 3], [10], [1]]
    assert fitted([], len) == []


def test_networks_that_were_trained_are_carried_and_pictures_only_to_train_from(tmp_path: Path) -> None:
    """Training comes first, because it takes longest; the test classes and what draws follow."""
    (tmp_path / "mini-vit-small").mkdir()
    (tmp_path / "mini-vit-small" / "card.json").write_text("{}")
    (tmp_path / "tiny").mkdir()
    (tmp_path / "tiny" / "tiny-000.zip").write_bytes(b"0")
    data = tmp_path / "data"
    for name in ("miniimagenet", "cub"):
        (data / name).mkdir(parents=True)
    for name in (*(f"miniimagenet/train-{n}" for n in range(8)), "miniimagenet/test", "cub/test"):
        (data / f"{name}.zip").write_bytes(b"0")

    def places(tiny: Path | None) -> list[list[str]]:
        made = h200_carry.of_table_3(data, argparse.Namespace(checkpoints=tmp_path, tiny=tiny))
        assert list(made)[-1] == h200_carry.LITE2
        return [[place for _, place in items] for items in made.values()]

    first, *others, lite2 = places(tmp_path / "tiny")
    assert {"repo/src", "repo/benchmarks", "data/miniimagenet/val.zip", "data/cub/val.zip"} < set(first)
    assert lite2 == ["repo/packages/pocket-imagenet/src/onesdaug_pocket_imagenet/weights"]
    flat = [place for folder in others for place in folder]
    assert flat[0] == "fewshot/mini-vit-small" and "data/tiny/tiny-000.zip" in flat
    assert {"repo/src/onesdaug/weights", "data/cub/test.zip", "data/miniimagenet/train-7.zip"} < set(flat)
    again = [place for folder in places(None) for place in folder]
    assert "fewshot/mini-vit-small" in again and not any("train" in place or "tiny" in place for place in again)
