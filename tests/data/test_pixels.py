"""Images of many sizes, worked on size by size: the same numbers as one by one, in the order they were given."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image

from onesdaug.augment.source import ViewSource
from onesdaug.common.registry import VIEWS
from onesdaug.data import pixels
from onesdaug.data.pixels import image_bytes, same_size
from onesdaug.encoders.base import Encoder
from onesdaug.encoders.preprocess import Preprocess

SIZES = [(20, 30), (30, 20), (20, 30), (16, 16), (30, 20), (20, 30)]


def pictures() -> list[Image.Image]:
    rng = np.random.default_rng(0)
    return [Image.fromarray(rng.integers(0, 256, (height, width, 3), np.uint8)) for width, height in SIZES]


def test_every_image_is_in_one_batch_of_its_size(monkeypatch: pytest.MonkeyPatch) -> None:
    images = [image_bytes(picture) for picture in pictures()] + [torch.rand(3, 30, 20)]
    found = list(same_size(images))
    assert sorted(place for places, _ in found for place in places) == list(range(7))
    assert all(torch.equal(batch[i], images[place]) for places, batch in found for i, place in enumerate(places))
    assert [len(places) for places, _ in found] == [3, 2, 1, 1]  # floats are not stacked with bytes
    monkeypatch.setattr(pixels, "TOGETHER", 1200)
    assert [len(places) for places, _ in same_size(images)] == [2, 1, 2, 1, 1]
    monkeypatch.setattr(pixels, "TOGETHER", 1)
    assert [len(places) for places, _ in same_size(images)] == [1] * 7


def test_features_are_those_of_each_image_alone() -> None:
    encoder = Encoder(lambda x: x.flatten(1), Preprocess(resize=14, crop=12), name="pixels")
    images = [image_bytes(picture) for picture in pictures()]
    assert torch.equal(encoder.embed(images), torch.cat([encoder.embed(image[None]) for image in images]))


@pytest.mark.parametrize("name", ["crop-flip", "traditional"])
def test_views_are_those_of_each_picture_alone(name: str) -> None:
    source = VIEWS.get(name)()
    assert isinstance(source, ViewSource)
    many = source.pictures(pictures(), 2, 5)
    alone = [source.pictures([picture], 2, 5)[0] for picture in pictures()]
    assert [[view.size for view in row] for row in many] == [[size] * 2 for size in SIZES]
    assert [[view.tobytes() for view in row] for row in many] == [[view.tobytes() for view in row] for row in alone]
    second = source.nth_pictures(pictures(), 2, 5)
    assert [view.tobytes() for view in second] == [row[1].tobytes() for row in many]
