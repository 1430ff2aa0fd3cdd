"""The host's share of a view stays small: work is one call per batch and canvas shape, not one per row."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import kornia.geometry.transform
import numpy as np
import pytest
import torch
from torch.nn.functional import avg_pool2d, interpolate
from torch.utils._python_dispatch import TorchDispatchMode

from onesdaug import AugmentConfig, Augmenter, Schedule, ShapeTweak
from onesdaug.augment import fit, operator, stages
from onesdaug.augment.fit import Pictures
from onesdaug.augment.operator import Row
from onesdaug.augment.seeds import stream
from onesdaug.augment.shape import Psi, homographies, warp
from onesdaug.generators.base import Generator
from tests.conftest import make_image

CONFIG = AugmentConfig(steps=2, solver="ddpm-ancestral")


class Coarse(Generator):
    """A generator that costs nothing: latents are pooled pixels, and no noise is ever seen in them."""

    size = 24
    schedule = Schedule.scaled_linear()

    def encode(self, x: torch.Tensor) -> torch.Tensor:
        return avg_pool2d(2 * x - 1, 4)

    def decode(self, z: torch.Tensor) -> torch.Tensor:
        return interpolate(z / 2 + 0.5, scale_factor=4).clamp(0, 1)

    def image_tokens(self, x: torch.Tensor) -> torch.Tensor:
        return x.mean((2, 3))[:, None]

    def null_tokens(self, n: int) -> torch.Tensor:
        return torch.zeros(n, 1, 3)

    def predict(self, z, t, tokens, image_scale) -> torch.Tensor:
        return torch.zeros_like(z)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often each function that handles pictures is called."""
    counted: Counter[str] = Counter()

    def count(module: Any, name: str) -> None:
        function: Callable[..., Any] = getattr(module, name)

        def counting(*args: Any, **kwargs: Any) -> Any:
            counted[name] += 1
            return function(*args, **kwargs)

        monkeypatch.setattr(module, name, counting)

    count(kornia.geometry.transform, "warp_grid")
    count(fit, "interpolate")
    count(stages, "to_square")
    count(stages, "normal")
    count(operator, "from_square")
    return counted


@pytest.mark.parametrize("mode", ["squash", "pad", "crop"])
def test_a_batch_of_one_geometry_is_one_call_each(mode, calls: Counter[str]) -> None:
    aug = Augmenter(Coarse(), CONFIG.model_copy(update={"fit": mode}), batch_size=64)
    aug.tensors(torch.rand(9, 3, 20, 30), k=3)
    noisy = 1 + int((aug.table.s > 0).sum())
    # resized to the canvas and back; squares of the tweaked rows and of the originals
    assert calls == {"warp_grid": 1, "interpolate": 2, "to_square": 2, "from_square": 1, "normal": noisy}


def test_mixed_sizes_cost_one_call_per_canvas_shape(calls: Counter[str]) -> None:
    images = [make_image(i, size) for i, size in enumerate([(20, 30), (40, 60), (30, 20), (20, 30), (24, 24)])]
    rows = [Row(image, k) for image in images for k in (1, 2, 3)]
    for mode, shapes in (("squash", 1), ("pad", 1), ("crop", 3)):
        calls.clear()
        Augmenter(Coarse(), CONFIG.model_copy(update={"fit": mode}), batch_size=64).run(rows)
        assert (calls["warp_grid"], calls["to_square"]) == (shapes, 2 * shapes)


def test_the_device_is_waited_for_once_however_many_batches() -> None:
    """A number fetched from the device stops the host until all queued work is done."""

    class Waits(TorchDispatchMode):
        count = 0

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            self.count += func is torch.ops.aten._local_scalar_dense.default
            return func(*args, **(kwargs or {}))

    counts = []
    for batch_size in (64, 3):
        with Waits() as waits:
            Augmenter(Coarse(), CONFIG, batch_size=batch_size).tensors(torch.rand(9, 3, 24, 24), k=3)
        counts.append(waits.count)
    assert counts == [3, 3]  # the input's least and greatest value, and whether the views are finite


def test_pictures_of_any_sizes_keep_their_order() -> None:
    sizes = [(4, 6), (5, 5), (4, 6), (6, 4), (5, 5), (4, 6)]
    single = [torch.rand(3, *size) for size in sizes]
    pictures = Pictures.of(single)
    assert [tuple(part.shape) for part in pictures.parts] == [(3, 3, 4, 6), (2, 3, 5, 5), (1, 3, 6, 4)]
    for wanted in ([0, 1, 2, 3, 4, 5], [5, 5, 1, 0, 4, 3, 3, 2], [4, 1], [3]):
        taken = pictures.take(np.array(wanted)).split()
        assert all(torch.equal(got, single[i]) for got, i in zip(taken, wanted, strict=True))
    cut = pictures.each(lambda part, _: part[..., :4, :4])
    assert torch.equal(cut.dense(), torch.stack([picture[:, :4, :4] for picture in single]))


def test_psi_as_rows_and_as_objects_are_the_same() -> None:
    tweak, aspects = ShapeTweak(), [random.Random(0).uniform(0.3, 3) for _ in range(50)]
    rows = tweak.draw([stream(3, k, "shape") for k in range(50)])
    psis = [tweak.sample(stream(3, k, "shape")) for k in range(50)]
    assert [Psi.from_row(row) for row in rows] == psis
    assert np.array_equal(rows, [psi.row() for psi in psis])
    together = homographies(rows, aspects)
    assert np.allclose(together, [p.homography(a) for p, a in zip(psis, aspects, strict=True)], atol=1e-12)
    x = torch.rand(50, 3, 8, 8)
    assert torch.equal(warp(x, rows, aspects=aspects), warp(x, psis, aspects=aspects))


def test_large_pictures_at_their_own_size_go_one_at_a_time(
    monkeypatch: pytest.MonkeyPatch, calls: Counter[str]
) -> None:
    """Their memory would grow with the batch; the views are the same."""
    rows = [Row(make_image(0, (40, 30)), k) for k in range(1, 5)]
    aug = Augmenter(None, CONFIG)
    together = aug.run(rows)
    assert calls["warp_grid"] == 1
    monkeypatch.setattr(operator, "_NATIVE_PIXELS", 2500)
    apart = aug.run(rows)
    assert calls["warp_grid"] == 1 + 2
    assert all(np.array_equal(a.image, b.image) for a, b in zip(together, apart, strict=True))
