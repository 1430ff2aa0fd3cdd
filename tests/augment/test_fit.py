"""Any size and aspect meets the square and comes back."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from onesdaug import AugmentConfig, Augmenter, ShapeTweak
from onesdaug.augment.fit import from_square, geometry, resize, to_canvas, to_square
from onesdaug.data.pixels import to_pil
from onesdaug.errors import ImageError
from tests.conftest import make_image

sides = st.integers(1, 90)


@given(sides, sides, st.sampled_from(["squash", "pad", "crop"]))
@settings(max_examples=60)
def test_every_size_comes_back(height: int, width: int, fit) -> None:
    if fit == "crop" and max(height, width) > 16 * min(height, width):
        return
    geo = geometry(height, width, 24, fit)
    x = torch.rand(3, height, width)
    canvas = to_canvas(x, geo)
    square = to_square(canvas, geo)
    assert square.shape == (3, 24, 24)
    back = resize(from_square(square, canvas, geo), height, width)
    assert back.shape == x.shape


@pytest.mark.parametrize("fit", ["squash", "pad", "crop"])
@pytest.mark.parametrize("size", [(48, 24), (24, 48), (24, 24)])
def test_an_untouched_view_is_the_image(fit, size: tuple[int, int]) -> None:
    """If the generator changed nothing, neither would the trip through the square (but for resampling)."""
    image = make_image(2, size)
    geo = geometry(image.height, image.width, 48, fit)
    canvas = to_canvas(image, geo)
    view = from_square(to_square(canvas, geo), canvas, geo)
    back = resize(to_pil(view[None])[0], *geo.image)
    assert np.abs(np.asarray(back, int) - np.asarray(image, int)).mean() < 3


def test_crop_redraws_only_the_centre() -> None:
    geo = geometry(24, 60, 24, "crop")
    canvas = torch.zeros(3, 24, 60)
    view = from_square(torch.ones(3, 24, 24), canvas, geo)
    assert view[:, :, 18:42].min() == 1 and view[:, :, :18].max() == 0 and view[:, :, 42:].max() == 0


def test_pad_mirrors_and_cuts_off() -> None:
    geo = geometry(10, 24, 24, "pad")
    canvas = to_canvas(torch.rand(3, 10, 24), geo)
    top = geo.window[0]
    assert torch.equal(canvas[:, top - 1], canvas[:, top])  # symmetric: the edge row is repeated
    assert from_square(canvas, canvas, geo).shape == (3, 10, 24)


@pytest.mark.parametrize("size", [(1, 1), (2000, 2), (2, 2000)])
def test_extreme_images_work(size: tuple[int, int]) -> None:
    for fit in ("squash", "pad"):
        aug = Augmenter.from_pretrained("shape", config=AugmentConfig(fit=fit), device="cpu")
        (view,) = aug(make_image(0, size), k=1)
        assert view.size == size


def test_geometry_alone_keeps_the_resolution() -> None:
    """Without a generator there is no square to fit into: fine detail must survive an identity tweak."""
    noise = Image.fromarray(np.random.default_rng(0).integers(0, 256, (700, 900, 3), dtype=np.uint8))
    still = ShapeTweak(rotate=0, stretch=0, translate=0, perspective=0, flip=False)
    (view,) = Augmenter.from_pretrained("shape", config=AugmentConfig(shape=still), device="cpu")(noise, k=1)
    assert np.abs(np.asarray(view, int) - np.asarray(noise, int)).max() <= 1


def test_too_long_for_crop_says_what_to_do() -> None:
    with pytest.raises(ImageError, match=r"20000×10 pixels is too long and thin.*squash"):
        geometry(10, 20000, 512, "crop")
