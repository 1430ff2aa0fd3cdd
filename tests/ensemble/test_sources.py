"""View sources: the traditional baseline, and how everything else becomes one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from PIL import Image

from onesdaug.augment.config import preset
from onesdaug.data.pixels import to_pil, to_tensor
from onesdaug.ensemble.sources import ViewSource, as_source, find_views, row_seeds
from onesdaug.ensemble.traditional import CropFlip, Traditional
from onesdaug.errors import ConfigError


def images(n: int = 3, size: int = 12) -> torch.Tensor:
    pixels = torch.randint(0, 256, (n, 3, size, size + 4), generator=torch.Generator().manual_seed(1))
    return pixels.float() / 255


def test_crop_flip_view_is_the_same_in_any_batch() -> None:
    x, source = images(4), CropFlip()
    together = source.tensors(x, 3)
    assert together.shape == (4, 3, 3, 12, 16)
    order = torch.tensor([2, 0, 3, 1])
    assert torch.equal(source.tensors(x[order], 3), together[order])
    assert torch.equal(source.tensors(x[1:2], 2)[0], together[1, :2])


def test_crop_flip_views_differ_by_seed_and_number() -> None:
    x = images(1)
    a, b = CropFlip().tensors(x, 2)[0]
    assert not torch.equal(a, b)
    assert not torch.equal(CropFlip().tensors(x, 1, seed=1)[0, 0], a)
    assert torch.equal(CropFlip().tensors(x, 2, seeds=[7]), CropFlip().tensors(x, 2, seeds=[7]))


def test_crop_flip_of_the_whole_image_is_the_image_or_its_mirror() -> None:
    x = images(1)
    views = CropFlip(scale=(1.0, 1.0), ratio=(1.0, 1.0)).tensors(x, 8)[0]
    mirrored = [bool((v - x[0].flip(-1)).abs().max() < 1e-4) for v in views]
    same = [bool((v - x[0]).abs().max() < 1e-4) for v in views]
    assert all(m or s for m, s in zip(mirrored, same, strict=True))
    assert any(mirrored) and any(same)
    still = CropFlip(scale=(1.0, 1.0), flip=False).tensors(x, 2)[0]
    torch.testing.assert_close(still, x.expand(2, -1, -1, -1), atol=1e-4, rtol=0)


def test_crop_flip_stays_inside_the_image() -> None:
    """A horizontal ramp: a crop of at least 60 % of the area keeps at least 60 % of its range."""
    ramp = torch.linspace(0, 1, 64).expand(1, 3, 64, 64)
    views = CropFlip(scale=(0.6, 0.6), ratio=(1.0, 1.0)).tensors(ramp, 16)[0]
    spread = views.amax((1, 2, 3)) - views.amin((1, 2, 3))
    torch.testing.assert_close(spread, torch.full((16,), 0.6**0.5), atol=0.03, rtol=0)


def test_no_global_random_numbers_are_used() -> None:
    before = torch.random.get_rng_state()
    CropFlip().tensors(images(), 2)
    Traditional().tensors(images(), 2)
    assert torch.equal(torch.random.get_rng_state(), before)


@pytest.mark.parametrize("bad", [{"scale": (0.0, 1.0)}, {"scale": (0.5, 1.5)}, {"ratio": (2.0, 1.0)}])
def test_crop_flip_refuses_impossible_bounds(bad: dict[str, tuple[float, float]]) -> None:
    with pytest.raises(ConfigError, match=next(iter(bad))):
        CropFlip(**bad)


def test_crop_flip_wants_one_seed_per_row() -> None:
    with pytest.raises(ConfigError, match="2 seeds for 3 images"):
        CropFlip().tensors(images(3), 1, seeds=[1, 2])


def test_traditional_edits_are_the_same_in_any_batch_and_differ_by_number_and_seed() -> None:
    x, source = images(4), Traditional()
    together = source.tensors(x, 3)
    assert together.shape == (4, 3, 3, 12, 16) and together.min() >= 0 and together.max() <= 1
    order = torch.tensor([2, 0, 3, 1])
    torch.testing.assert_close(source.tensors(x[order], 3), together[order], atol=1e-6, rtol=0)
    assert not torch.equal(together[0, 0], together[0, 1])
    assert not torch.equal(source.tensors(x, 1, seed=1)[:, 0], together[:, 0])


def test_traditional_edits_of_no_strength_leave_the_image() -> None:
    x = images(2)
    still = Traditional(rotate=0, translate=0, scale=0, shear=0, jitter=0).tensors(x, 2)
    torch.testing.assert_close(still, x[:, None].expand(-1, 2, -1, -1, -1), atol=1e-5, rtol=0)


def test_traditional_rotation_keeps_distances_on_pictures_that_are_not_square() -> None:
    """A disc stays a disc of its size: rotation happens where pixels are square."""
    y, x = torch.meshgrid(torch.arange(48) - 23.5, torch.arange(96) - 47.5, indexing="ij")
    radius = (x**2 + y**2).sqrt()
    disc = (radius < 15).float().expand(1, 3, 48, 96)
    views = Traditional(rotate=90, translate=0, scale=0, shear=0, jitter=0).tensors(disc, 6)[0]
    assert (views - disc)[..., radius < 22].abs().mean() < 0.02  # farther out the edge is reflected


@pytest.mark.parametrize(("place", "name"), [(0, "Brightness"), (1, "Contrast"), (2, "Color")])
def test_traditional_colours_change_as_in_pil(place: int, name: str) -> None:
    from PIL import ImageEnhance

    from onesdaug.ensemble.traditional import _coloured

    x, factors = images(1), torch.ones(1, 3)
    factors[0, place] = 1.3
    theirs = to_tensor(getattr(ImageEnhance, name)(to_pil(x)[0]).enhance(1.3))
    assert (_coloured(x, factors)[0] - theirs).abs().max() < 2.5 / 255  # PIL rounds grey and its mean to bytes


@pytest.mark.parametrize("bad", [{"scale": 1.0}, {"jitter": 2.0}, {"shear": 90.0}, {"translate": -0.1}])
def test_traditional_refuses_impossible_strengths(bad: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match="scale in"):
        Traditional(**bad)


def test_function_gets_one_seed_per_image() -> None:
    seen: list[Sequence[str]] = []

    def brighter(batch: torch.Tensor, k: int, seeds: Sequence[str]) -> torch.Tensor:
        seen.append(seeds)
        return torch.stack([(batch + 0.1 * i).clamp(0, 1) for i in range(k)], dim=1)

    x = images(2)
    made = as_source(brighter).tensors(x, 2, 5)
    assert torch.equal(made[:, 0], x)
    assert seen == [row_seeds(x, 5)] and len(set(seen[0])) == 2


def test_pil_images_of_different_sizes() -> None:
    pictures = to_pil(images(1, 8)) + to_pil(images(1, 20))
    views = as_source(CropFlip()).images(pictures, 2, 0)
    assert [[v.size for v in row] for row in views] == [[(12, 8)] * 2, [(24, 20)] * 2]
    x = images(1, 8)
    for view, tensor in zip(views[0], CropFlip().tensors(x, 2)[0], strict=True):
        torch.testing.assert_close(to_tensor(view), tensor, atol=0.51 / 255, rtol=0)


def test_stored_views_are_asked_by_image() -> None:
    class Stored(ViewSource):
        def tensors(self, batch: torch.Tensor, k: int, seeds: Sequence[str] | None = None) -> torch.Tensor:
            return batch[:, None].expand(-1, k, -1, -1, -1)

        def pictures(self, images: Sequence[Image.Image], k: int, seed: int | str = 0) -> list[list[Image.Image]]:
            return [[image] * (k - 1) for image in images]

    source = as_source(Stored())
    assert source.tensors(images(2), 3, 0).shape == (2, 3, 3, 12, 16)
    with pytest.raises(ConfigError, match=r"3 views per image, but gave \[2\]"):
        source.images(to_pil(images(1)), 3, 0)


def test_anything_that_makes_tensors_will_do() -> None:
    class Duck:
        def tensors(self, batch: torch.Tensor, k: int, seeds: Sequence[str]) -> torch.Tensor:
            assert len(seeds) == len(batch)
            return batch[:, None].expand(-1, k, -1, -1, -1)

    x = images(2)
    assert torch.equal(as_source(Duck()).tensors(x, 3, 0)[:, 2], x)


def test_a_source_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_views.py").write_text(
        "def dark(batch, k, seeds):\n    return (batch / 2)[:, None].expand(-1, k, -1, -1, -1)\n"
    )
    monkeypatch.chdir(tmp_path)
    x = images(2)
    assert torch.equal(as_source("my_views.py:dark").tensors(x, 2, 0)[:, 1], x / 2)
    assert torch.equal(as_source("crop-flip").tensors(x, 2, 0), CropFlip().tensors(x, 2))
    assert as_source("shape").views.generator is None
    with pytest.raises(ConfigError, match=r"there is no generator 'crop-flop'.*views also come from crop-flip, trad"):
        as_source("crop-flop")


def test_wrong_shape_is_named() -> None:
    with pytest.raises(ConfigError, match=r"\(3, 2, 3, 12, 16\) for k=2, but gave \(3, 3, 12, 16\)"):
        as_source(lambda batch, k, seeds: batch).tensors(images(3), 2, 0)


@pytest.mark.parametrize("bad", [None, 3, CropFlip])
def test_not_a_source(bad: object) -> None:
    with pytest.raises(ConfigError, match="cannot make views"):
        as_source(bad)


def test_a_generator_by_name_draws_for_accuracy_unless_told() -> None:
    assert find_views("pocket", device="cpu").config == preset("pocket-accuracy")
    assert find_views("pocket", "pocket-faithful", device="cpu").config == preset("pocket-faithful")
