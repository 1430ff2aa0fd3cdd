"""Embedding: columns in order, resumable after a kill, keyed by everything that matters."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from onesdaug.common import files
from onesdaug.data import decode
from onesdaug.data.dataset import Dataset
from onesdaug.errors import ConfigError, DataError
from onesdaug.fewshot.embed import embed, embed_all
from onesdaug.fewshot.views import as_batch, resolve_views
from tests.conftest import Told


class MeanColour:
    """An encoder whose features can be checked by eye; counts the images it sees."""

    def __init__(self, fingerprint: str = "mean", die_after: int = 10**9) -> None:
        self.fingerprint, self.seen, self.die_after = fingerprint, 0, die_after
        self.short_side = 84

    def embed(self, images: Tensor) -> Tensor:
        self.seen += len(images)
        if self.seen > self.die_after:
            raise KeyboardInterrupt
        return images.mean((2, 3))


class Darker:
    """View k is the image divided by 2^k."""

    side = 0

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


def test_a_killed_run_goes_on(dataset: Dataset, tmp_path: Path, told: Told) -> None:
    output = tmp_path / "b.safetensors"
    with pytest.raises(KeyboardInterrupt):
        embed(dataset, MeanColour(die_after=20), output, Darker(), 2, chunk=4)
    assert not output.exists()
    rest = MeanColour()
    told.clear()
    bank = embed(dataset, rest, output, Darker(), 2, chunk=4)
    assert rest.seen == 18  # the first of three chunks was there: 6 of 10 images, three columns each
    assert told == [("images", 4, 10), ("images", 8, 10), ("images", 10, 10)]
    whole = embed(dataset, MeanColour(), tmp_path / "whole.safetensors", Darker(), 2, chunk=4)
    assert torch.equal(bank.features, whole.features)


def test_two_runs_that_make_the_same_banks_do_not_break_each_other(
    dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outputs, waits = [tmp_path / "a.safetensors", tmp_path / "b.safetensors"], threading.Event()
    late, runs = [MeanColour(), MeanColour()], list[Future[Any]]()
    monkeypatch.setattr(files.log, "info", lambda _: waits.set())

    class Followed(MeanColour):
        """At its first picture another run begins with the same, in another order, and has to wait."""

        def embed(self, images: Tensor) -> Tensor:
            if not self.seen:
                wanted = dict(zip(outputs[::-1], late, strict=True))
                runs.append(pool.submit(embed_all, dataset, wanted, Darker(), 2, chunk=4))
                assert waits.wait(30)
            return super().embed(images)

    with ThreadPoolExecutor(1) as pool:
        banks = embed_all(dataset, dict(zip(outputs, [Followed(), MeanColour()], strict=True)), Darker(), 2, chunk=4)
    assert runs[0].result().keys() == banks.keys() and [encoder.seen for encoder in late] == [0, 0]
    whole = embed(dataset, MeanColour(), tmp_path / "c.safetensors", Darker(), 2, chunk=4)
    assert all(torch.equal(bank.features, whole.features) for bank in banks.values())
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"{name}.safetensors" for name in "abc"]


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


# -- whole images for networks that look at more than the working size ----------------------------------------------


def _files(folder: Path, size: tuple[int, int] | None = None) -> Path:
    """Two classes of photographs of different sizes, or all of one."""
    from tests.conftest import make_image

    for number in range(8):
        home = folder / "ab"[number // 4]
        home.mkdir(parents=True, exist_ok=True)
        make_image(number, size or (120 + 10 * (number % 3), 150)).save(home / f"{number}.png")
    return folder


def _encoder(short_side: int) -> Any:
    from onesdaug.encoders.base import Encoder
    from onesdaug.encoders.convnet import ConvNet
    from onesdaug.encoders.preprocess import Preprocess

    torch.manual_seed(0)
    return Encoder(ConvNet(), Preprocess(resize=short_side, crop=84), 64, f"convnet at {short_side}")


def _generator(side: int) -> Any:
    from onesdaug.augment.config import preset
    from onesdaug.augment.operator import Augmenter
    from onesdaug.fewshot.views import Views

    # geometry on a square of this side stands for a generator: it sees and returns pixels in the same way
    return Views(Augmenter(None, preset("paper"), side=side), f"side {side}", torch.device("cpu"))


@pytest.mark.parametrize(("size", "short_side"), [(None, 92), ((84, 84), 92), ((84, 84), 256)])
def test_up_to_the_working_size_features_are_what_they_were(
    tmp_path: Path, size: tuple[int, int] | None, short_side: int
) -> None:
    """FEAT's encoders with pocket's side, bit for bit; and any encoder where the files are of the working size."""
    from onesdaug.data.registry import load_path

    data = load_path(_files(tmp_path / "data", size), 84)
    encoder, views = _encoder(short_side), _generator(96)
    bank = embed(data, encoder, tmp_path / "b.safetensors", views, 2, dtype=torch.float32)
    plain = as_batch(data.images)
    made = views.make(data.images, data.ids, 2, 0)
    expected = torch.stack([encoder.embed(plain), *(encoder.embed(column) for column in made.unbind(1))], dim=1)
    assert torch.equal(bank.features, expected) and "pixels" not in bank.info.views


def test_a_wide_encoder_and_a_wide_generator_get_whole_images(tmp_path: Path) -> None:
    from onesdaug.data.images import load_image
    from onesdaug.data.pixels import to_tensor
    from onesdaug.data.registry import load_path

    files = _files(tmp_path / "data")
    data = load_path(files, 84)
    pictures = [load_image(files / f"{name}.png") for name in data.ids]
    narrow, wide = _encoder(92), _encoder(112)
    views = _generator(512)
    outputs = {tmp_path / "narrow.safetensors": narrow, tmp_path / "wide.safetensors": wide}
    from onesdaug.fewshot.embed import embed_all

    banks = list(embed_all(data, outputs, views, 1, dtype=torch.float32, chunk=3).values())
    made = views.whole(pictures, data.ids, 1, 0)
    assert [view.size for (view,) in made] == [picture.size for picture in pictures]
    for bank, encoder in zip(banks, (narrow, wide), strict=True):
        of_views = torch.cat([encoder.embed(to_tensor(view)[None]) for (view,) in made])
        torch.testing.assert_close(bank.features[:, 1], of_views, atol=1e-5, rtol=1e-5)
        assert bank.info.views["pixels"] == "whole images"
    # the original is the encoder's own matter: the same in every bank of it, whoever drew the views
    torch.testing.assert_close(banks[0].features[:, 0], narrow.embed(as_batch(data.images)))
    whole = torch.cat([wide.embed(to_tensor(picture)[None]) for picture in pictures])
    torch.testing.assert_close(banks[1].features[:, 0], whole, atol=1e-5, rtol=1e-5)
    assert (whole - wide.embed(as_batch(data.images))).abs().max() > 1e-3  # the working size had lost something


def test_a_folder_of_views_is_seen_whole_by_a_wide_encoder(tmp_path: Path) -> None:
    from onesdaug.data.images import load_image
    from onesdaug.data.pixels import to_tensor
    from onesdaug.data.registry import load_path

    files = _files(tmp_path / "data")
    data, encoder = load_path(files, 84), _encoder(112)
    for name in data.ids:
        (tmp_path / "views" / name).parent.mkdir(parents=True, exist_ok=True)
        load_image(files / f"{name}.png").rotate(180).save(tmp_path / "views" / f"{name}_view1.png")
    (tmp_path / "views" / "manifest.jsonl").write_text("")
    source = resolve_views(str(tmp_path / "views"))
    bank = embed(data, encoder, tmp_path / "b.safetensors", source, 1, dtype=torch.float32)
    turned = [to_tensor(load_image(files / f"{name}.png").rotate(180))[None] for name in data.ids]
    torch.testing.assert_close(
        bank.features[:, 1], torch.cat([encoder.embed(x) for x in turned]), atol=1e-5, rtol=1e-5
    )


def test_few_large_images_are_in_memory_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from onesdaug.data.registry import load_path
    from onesdaug.fewshot import embed as module

    data, encoder, taken = load_path(_files(tmp_path / "data"), 84), _encoder(112), []
    expected = embed(data, encoder, tmp_path / "a.safetensors", dtype=torch.float32).features

    def originals(dataset: Dataset, rows: slice) -> list[Image.Image]:
        taken.append([member.id for member in dataset.members[rows]])
        return decode.originals(dataset, rows)

    monkeypatch.setattr(module, "originals", originals)
    largest = max(width * height for width, height in decode.sizes(data))
    monkeypatch.setattr(module, "WHOLE_PIXELS", 2 * largest)
    found = embed(data, encoder, tmp_path / "b.safetensors", dtype=torch.float32).features
    assert [name for names in taken for name in names] == list(data.ids) and 1 < len(taken) < len(data)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
