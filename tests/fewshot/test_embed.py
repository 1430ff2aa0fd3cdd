"""Embedding: columns in order, resumable after a kill, keyed by everything that matters."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from onesdaug.data.dataset import Dataset
from onesdaug.errors import ConfigError, DataError
from onesdaug.fewshot.embed import embed
from onesdaug.fewshot.views import as_batch, resolve_views


class MeanColour:
    """An encoder whose features can be checked by eye; counts the images it sees."""

    def __init__(self, fingerprint: str = "mean", die_after: int = 10**9) -> None:
        self.fingerprint, self.seen, self.die_after = fingerprint, 0, die_after

    def embed(self, images: Tensor) -> Tensor:
        self.seen += len(images)
        if self.seen > self.die_after:
            raise KeyboardInterrupt
        return images.mean((2, 3))


class Darker:
    """View k is the image divided by 2^k."""

    def describe(self) -> dict[str, Any]:
        return {"source": "darker"}

    def make(self, images: NDArray[np.uint8], ids: Sequence[str], k: int, seed: int) -> Tensor:
        return torch.stack([as_batch(images) / 2 ** (i + 1) for i in range(k)], dim=1)


@pytest.fixture
def dataset() -> Dataset:
    images = np.random.default_rng(0).integers(0, 256, (10, 8, 8, 3), dtype=np.uint8)
    labels = np.repeat(np.arange(2), 5)
    return Dataset(images, labels, ("a", "b"), tuple(f"{'ab'[c]}/{i}" for i, c in enumerate(labels)), "data1")


def test_columns_are_original_then_views(dataset: Dataset, tmp_path: Path) -> None:
    bank = embed(dataset, MeanColour(), tmp_path / "b.safetensors", Darker(), 2, chunk=4, dtype=torch.float32)
    colours = torch.from_numpy(dataset.images).float().div(255).mean((1, 2))
    assert torch.allclose(bank.features, torch.stack([colours, colours / 2, colours / 4], dim=1), atol=1e-6)
    assert bank.labels.tolist() == dataset.labels.tolist()
    assert (bank.info.ids, bank.info.data, bank.info.encoder) == (dataset.ids, "data1", "mean")
    assert bank.info.views == {"source": "darker", "k": 2}
    assert [p.name for p in tmp_path.iterdir()] == ["b.safetensors"]


def test_a_killed_run_goes_on(dataset: Dataset, tmp_path: Path) -> None:
    output, done = tmp_path / "b.safetensors", []
    with pytest.raises(KeyboardInterrupt):
        embed(dataset, MeanColour(die_after=20), output, Darker(), 2, chunk=4)
    assert not output.exists()
    rest = MeanColour()
    bank = embed(dataset, rest, output, Darker(), 2, chunk=4, progress=lambda n, total: done.append((n, total)))
    assert rest.seen == 18  # the first of three chunks was there: 6 of 10 images, three columns each
    assert done == [(4, 10), (8, 10), (10, 10)]
    whole = embed(dataset, MeanColour(), tmp_path / "whole.safetensors", Darker(), 2, chunk=4)
    assert torch.equal(bank.features, whole.features)


def test_a_finished_bank_is_not_made_again_but_another_setting_is(dataset: Dataset, tmp_path: Path) -> None:
    output = tmp_path / "b.safetensors"
    embed(dataset, MeanColour(), output, Darker(), 1)
    again = MeanColour()
    embed(dataset, again, output, Darker(), 1)
    assert again.seen == 0
    for change in ({"k": 2}, {"seed": 1}, {"dtype": torch.float32}):
        other = MeanColour()
        embed(dataset, other, output, Darker(), **{"k": 1, **change})  # type: ignore[arg-type]
        assert other.seen > 0
    new = MeanColour("other weights")
    embed(dataset, new, output, Darker(), 1, dtype=torch.float32)
    assert new.seen > 0


def test_oracle_and_plain_banks_store_originals_only(dataset: Dataset, tmp_path: Path) -> None:
    oracle = embed(dataset, MeanColour(), tmp_path / "o.safetensors", "oracle", 3)
    plain = embed(dataset, MeanColour(), tmp_path / "p.safetensors")
    assert oracle.features.shape == plain.features.shape == (10, 1, 3)
    assert (oracle.k, oracle.oracle, plain.k, plain.oracle) == (3, True, 0, False)


def test_views_and_k_go_together(dataset: Dataset, tmp_path: Path) -> None:
    for views, k in ((None, 2), (Darker(), 0)):
        with pytest.raises(ConfigError, match="k ≥ 1 needs views"):
            embed(dataset, MeanColour(), tmp_path / "b.safetensors", views, k)


@pytest.mark.parametrize("name", ["crop-flip", "shape"])
def test_named_views_do_not_depend_on_the_chunk(dataset: Dataset, name: str) -> None:
    views = resolve_views(name, device="cpu")
    assert views.describe()["source"] == name
    together = views.make(dataset.images[:3], dataset.ids[:3], 2, seed=0)
    alone = views.make(dataset.images[2:3], dataset.ids[2:3], 2, seed=0)
    assert together.shape == (3, 2, 3, 8, 8)
    assert torch.allclose(together[2], alone[0], atol=1e-5)
    assert not torch.allclose(together, views.make(dataset.images[:3], dataset.ids[:3], 2, seed=1))


def test_views_from_a_folder(dataset: Dataset, tmp_path: Path) -> None:
    from PIL import Image

    (tmp_path / "manifest.jsonl").write_text("{}\n")
    (tmp_path / "a").mkdir()
    for n in (1, 2):
        Image.fromarray(dataset.images[n]).save(tmp_path / "a" / f"0_view{n}.png")
    views = resolve_views(str(tmp_path))
    found = views.make(dataset.images[:1], dataset.ids[:1], 2, seed=0)
    assert torch.equal(found[0], as_batch(dataset.images[1:3]))
    with pytest.raises(DataError, match="no view 3 of a/0"):
        views.make(dataset.images[:1], dataset.ids[:1], 3, seed=0)
    before = views.describe()
    (tmp_path / "manifest.jsonl").write_text("{}\n{}\n")
    assert resolve_views(str(tmp_path)).describe() != before
