"""Faithfulness and diversity: right on vectors that can be checked by eye, and the curve over noise levels."""

from __future__ import annotations

import json
import math
import os
import sys
from argparse import Namespace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from benchmarks import faithfulness as benchmark
from benchmarks.faithfulness import curve
from onesdaug import AugmentConfig, Augmenter
from onesdaug.analysis.faithfulness import agreements, cosines, diversities, measure, view_diversities
from onesdaug.data.dataset import Dataset
from onesdaug.errors import ConfigError, DataError
from tests.augment.counting import Counting
from tests.conftest import Told

ROOT_HALF = math.sqrt(0.5)


class Pixels:
    """An encoder whose features are the centred pixels."""

    fingerprint = "pixels"

    def __init__(self) -> None:
        self.seen = 0

    def embed(self, images: Tensor) -> Tensor:
        self.seen += len(images)
        return images.flatten(1) - 0.5


class Knowing(Counting):
    """A generator that draws, with a condition, the colour of the original, and without one, grey."""

    def predict(self, z: Tensor, t: Tensor, tokens: Tensor, image_scale: Tensor) -> Tensor:
        on = (image_scale > 0).float()[:, None]
        wanted = on * (2 * tokens[:, 0] - 1)
        abar = torch.as_tensor(self.schedule.abar).float()[t].view(-1, 1, 1, 1)
        return (z - abar.sqrt() * wanted[:, :, None, None]) / (1 - abar).sqrt()


@pytest.fixture
def colours() -> Dataset:
    """Four images each of red, green and blue, with a little noise."""
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(3), 4)
    images = rng.integers(0, 60, (12, 8, 8, 3), dtype=np.uint8)
    images[np.arange(12), :, :, labels] += 180
    return Dataset(images, labels, ("red", "green", "blue"), tuple(f"x/{i}" for i in range(12)), "colours")


def test_cosine_to_the_original() -> None:
    originals = torch.tensor([[2.0, 0], [0, 3]])
    views = torch.tensor([[[5.0, 0], [1, 1]], [[4, 0], [0, -1]]])
    assert torch.allclose(cosines(originals, views), torch.tensor([[1, ROOT_HALF], [0, -1]], dtype=torch.float64))


def test_the_diversity_of_a_view_is_its_mean_distance_to_the_others() -> None:
    views = torch.tensor([[[2.0, 0], [0, 1], [3, 0]]])
    assert torch.allclose(view_diversities(views), torch.tensor([[0.5, 1.0, 0.5]]).double())
    assert torch.allclose(diversities(views), torch.tensor([2 / 3]).double())


def test_diversity_is_the_mean_over_pairs() -> None:
    views = torch.tensor([[[1.0, 0], [0, 2], [3, 0]], [[1, 1], [2, 2], [0.5, 0.5]], [[1, 0], [-1, 0], [0, 1]]])
    # pairs at right angles, the same, and opposite: (1 + 0 + 1)/3, 0, (2 + 1 + 1)/3
    assert torch.allclose(diversities(views), torch.tensor([2 / 3, 0, 4 / 3], dtype=torch.float64))
    rows = torch.randn(4, 5, 9, generator=torch.Generator().manual_seed(0)).double()
    u = rows / rows.norm(dim=-1, keepdim=True)
    slow = [[1 - float(u[n, i] @ u[n, j]) for i in range(5) for j in range(i)] for n in range(4)]
    assert torch.allclose(diversities(rows), torch.tensor(slow).double().mean(1), atol=1e-6)
    with pytest.raises(ConfigError, match="two views"):
        diversities(rows[:, :1])


def test_the_centroid_leaves_the_image_itself_out() -> None:
    # class 0 is one image along x and one along y; class 1 lies between, nearer to x
    originals = torch.tensor([[1.0, 0], [0, 1], [2, 1], [4, 2]])
    labels = torch.tensor([0, 0, 1, 1])
    # without itself image 0 has only y left in its class: class 1 is nearer, and so for image 1
    assert agreements(originals, originals.unsqueeze(1), labels).tolist() == [[0], [0], [1], [1]]
    # the same vector as a view of image 0 or of image 1 meets different centroids
    same = torch.tensor([0.1, 1.0]).expand(4, 1, 2)
    assert agreements(originals, same, labels).tolist() == [[1], [0], [0], [0]]


def test_agreement_equals_a_plain_loop() -> None:
    rng = torch.Generator().manual_seed(0)
    labels = torch.tensor([5, 9, 5, 2, 9, 2, 5, 2, 9, 9])
    originals, views = torch.randn(10, 3, generator=rng), torch.randn(10, 4, 3, generator=rng)
    found = agreements(originals, views, labels)
    unit = originals / originals.norm(dim=1, keepdim=True)
    for i in range(10):
        rest = torch.arange(10) != i
        centroids = {c: unit[rest & (labels == c)].mean(0) for c in (2, 5, 9)}
        for k in range(4):
            close = {c: float(views[i, k] @ m / m.norm()) for c, m in centroids.items()}
            assert found[i, k] == float(max(close, key=close.__getitem__) == labels[i])


def test_measure_averages_views_before_images() -> None:
    originals = torch.tensor([[1.0, 0], [1, 0.1], [0, 1], [0.1, 1]])
    labels = torch.tensor([0, 0, 1, 1])
    views = torch.stack([originals, originals.flip(1)], dim=1)  # one view each of its own and of the other class
    found = measure(originals, views, labels)
    assert (found.agreement.mean, found.agreement.ci95, found.agreement.n) == (0.5, 0.0, 4)
    assert found.original_agreement.mean == 1.0
    expected = [0.5, 0.5 + 0.1 / 1.01, 0.5, 0.5 + 0.1 / 1.01]  # (1 + cos(f, flipped f)) / 2
    assert found.cosine.mean == pytest.approx(np.mean(expected))
    assert found.cosine.ci95 == pytest.approx(1.96 * np.std(expected) / 2)
    assert found.diversity is not None and found.diversity.mean == pytest.approx(2 - 2 * np.mean(expected))
    assert measure(originals, views[:, :1], labels).diversity is None


def test_bad_shapes_are_said_at_once() -> None:
    with pytest.raises(DataError, match=r"\(N, K, d\)"):
        measure(torch.zeros(4, 2), torch.zeros(4, 2), torch.zeros(4))
    with pytest.raises(DataError, match="two images or more"):
        agreements(torch.randn(3, 2), torch.randn(3, 1, 2), torch.tensor([0, 0, 1]))


def test_the_curve_falls_without_condition_and_holds_with_it(colours: Dataset, told: Told) -> None:
    aug = Augmenter(Knowing(), AugmentConfig(steps=10, solver="ddim", guidance=1, image_scale=1), batch_size=5)
    encoder = Pixels()
    points = curve(aug, colours, encoder, [0.0, 0.5, 1.0], k=2, batch=5)
    assert [(p.condition, p.noise_level) for p in points] == [(c, n) for c in (True, False) for n in (0.0, 0.5, 1.0)]
    assert encoder.seen == 12 + 6 * 24 and told == [("settings", i, 6) for i in range(1, 7)]
    on, off = points[:3], points[3:]
    assert all(p.agreement.mean == 1 for p in on) and all(p.original_agreement.mean == 1 for p in points)
    assert on[2].cosine.mean > 0.9 > 0.5 > off[2].cosine.mean
    assert off[2].agreement.mean < 1
    assert aug.config.noise_level == 0.7 and aug.config.condition  # the user's own is left alone


def test_the_curve_is_that_of_the_augmenters_own_views(colours: Dataset) -> None:
    config = AugmentConfig(steps=4, noise_level=0.5, guidance=2)
    point = curve(Augmenter(Counting(), config), colours, Pixels(), [0.5], k=3, conditions=[True], seed=7)[0]
    batch = torch.from_numpy(colours.images).permute(0, 3, 1, 2).float() / 255
    views = Augmenter(Counting(), config).tensors(batch, 3, seed=7)
    expected = cosines(batch.flatten(1) - 0.5, views.flatten(2) - 0.5)
    assert point.cosine.mean == pytest.approx(float(expected.mean()), abs=1e-6)
    assert point.cosine.n == 12


def test_geometry_alone_works_too_and_one_view_has_no_diversity(colours: Dataset) -> None:
    points = curve(Augmenter.from_pretrained("shape"), colours, Pixels(), [0.3, 0.9], k=1, conditions=[True])
    assert points[0].cosine == points[1].cosine and points[0].diversity is None  # no noise without a generator


def test_the_benchmark_writes_a_record_and_a_picture(colours: Dataset, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    aug = Augmenter(Knowing(), AugmentConfig(steps=4, guidance=1))
    points = curve(aug, colours, Pixels(), [0.2, 0.8], k=2)
    rows = [benchmark.as_row(point) for point in points]
    assert rows[0].keys() == rows[3].keys() and rows[0]["noise_level"] == 0.2 and rows[3]["condition"] is False
    assert rows[0]["agreement"]["mean"] == 1.0
    benchmark.draw({"points": rows, "encoder": "pixels", "images": 12, "k": 2, "model": "fake"}, tmp_path / "f.png")
    assert (tmp_path / "f.png").read_bytes().startswith(b"\x89PNG")


def test_generators_are_compared_with_and_without_the_tweak(colours: Dataset, told: Told) -> None:
    config = AugmentConfig(steps=4, noise_level=0.7, guidance=1)
    augmenters = {"one": Augmenter(Knowing(), config), "two": Augmenter(Counting(), config)}
    rows = benchmark.compare(augmenters, colours, Pixels(), k=2, batch=5)
    assert [(row["model"], row["tweak"]) for row in rows] == [(n, t) for n in ("one", "two") for t in (True, False)]
    assert all(row["noise_level"] == 0.7 and row["original_agreement"]["mean"] == 1 for row in rows)
    assert rows[0]["share"]["mean"] == rows[0]["agreement"]["mean"] == 1.0
    plain = benchmark.curve(augmenters["two"], colours, Pixels(), [0.7], k=2, conditions=[True])[0]
    assert rows[2]["cosine"]["mean"] == round(plain.cosine.mean, 4) != rows[3]["cosine"]["mean"]  # the tweak is off
    assert all(augmenter.config == config for augmenter in augmenters.values())


def test_the_share_is_a_ratio_with_its_own_interval() -> None:
    originals = torch.tensor([[1.0, 0], [1, 0.1], [0, 1], [0.1, 1]])
    labels = torch.tensor([0, 0, 1, 1])
    views = torch.stack([originals, originals.flip(1)], dim=1)  # every image: one of two views agrees
    assert (benchmark.share(originals, views, labels).mean, benchmark.share(originals, views, labels).ci95) == (0.5, 0)
    half = torch.cat([originals[:2], originals[2:].flip(1)]).unsqueeze(1)  # all views of one class, none of the other
    found = benchmark.share(originals, half, labels)
    assert (found.mean, found.n) == (0.5, 4) and found.ci95 == pytest.approx(1.96 * 0.5 / 2)


def test_a_lent_machine_compares_all_that_was_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from benchmarks import h200_studies

    asked: list[Namespace] = []
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ONESDAUG_DATA", "")
    monkeypatch.setattr(sys, "argv", [])
    monkeypatch.setattr(benchmark, "measure", lambda args: asked.append(args) or {"points": [{"model": "pocket"}]})
    h200_studies.JOBS["faithful"](Namespace())
    assert json.loads((tmp_path / "results" / benchmark.COMPARED.name).read_text()) == {
        "points": [{"model": "pocket"}]
    }
    assert (asked[0].compare, asked[0].k, os.environ["ONESDAUG_DATA"]) == ([], 4, "data")
    assert "pocket" in benchmark.present() and "sd15" not in benchmark.present()


def test_generators_measured_again_stand_beside_those_that_were_not() -> None:
    facts = {"what": "x", "data": {"part": "p"}, "encoder": {"name": "e"}, "k": 2, "seed": 0}
    run = {"command": "c", "commit": "1", "machine": {}, "seconds": 1.0}
    points = [{"model": name, "share": 1} for name in ("a", "b")]
    before = {**facts, **run, "configs": {"a": 1, "b": 1}, "points": points}
    now = {**facts, **run, "commit": "2", "configs": {"a": 2}, "points": [{"model": "a", "share": 2}]}
    found = benchmark.beside(before, now)
    assert [(point["model"], point["share"]) for point in found["points"]] == [("a", 2), ("b", 1)]
    assert found["commit"] == "1" and found["configs"] == {"a": 2, "b": 1}
    assert [(one["of"], one["commit"]) for one in found["also"]] == [(["a"], "2")]
    assert len(benchmark.beside(found, now)["also"]) == 1
    with pytest.raises(SystemExit, match="other images"):
        benchmark.beside(before, {**now, "seed": 1})
