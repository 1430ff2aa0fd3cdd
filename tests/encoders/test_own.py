"""`--encoder my.py:object`: every kind of object, what it is fed, and errors of two lines."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from onesdaug.encoders.load import load_encoder
from onesdaug.errors import ConfigError

MINE = """
import numpy as np
import torch
from torch import nn
from onesdaug.encoders.base import Encoder
from onesdaug.encoders.preprocess import Preprocess


class Net(nn.Module):
    preprocess = Preprocess(resize=32, crop=24, mean=(0, 0, 0), std=(1, 1, 1))

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 5)

    def forward(self, x):
        assert x.shape[1:] == (3, 24, 24), x.shape
        return self.layer(x.mean((2, 3)))


class Plain:
    dim = 3
    input = "tensor"
    preprocess = {"resize": 16, "crop": 16, "mean": [0, 0, 0], "std": [1, 1, 1]}

    def __call__(self, x):
        assert x.shape[2:] == (16, 16)
        return x.mean((2, 3))


class Transformed(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(6, 2)

    def forward(self, x):
        return self.layer(x)

    def preprocess(self, picture):
        return torch.tensor([*picture.size, *np.asarray(picture)[0, 0], 1.0])


instance = Net()


def factory(width=4):
    return Encoder(nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(3, width)), Preprocess(40, 40))


def tensors(x):
    return x.mean((2, 3))


def pictures(images):
    return np.stack([[*image.size, np.asarray(image).mean()] for image in images])


def cropped(images):
    return [[*map(float, image.size)] for image in images]


cropped.preprocess = {"resize": 20, "crop": 10}


def broken(images):
    return images.no_such_thing()


class Unfinished(nn.Module):
    def forward(self, x):
        raise ValueError("shape trouble\\nin two lines")


class NeedsArguments(nn.Module):
    def __init__(self, width):
        super().__init__()


def maps(x):
    return x.mean(3)


class Typo(nn.Module):
    preprocess = {"cropp": 3}

    def forward(self, x):
        return x.mean((2, 3))


number = 3
"""


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    file = tmp_path / "my.py"
    file.write_text(MINE)
    monkeypatch.chdir(tmp_path)
    return file


@pytest.mark.parametrize(
    ("name", "dim", "size"),
    [
        ("Net", 5, 24),
        ("instance", 5, 24),
        ("factory", 4, 40),
        ("Plain", 3, 16),
        ("tensors", 3, 84),
        ("pictures", 3, None),
        ("cropped", 2, 10),
        ("Transformed", 2, None),
    ],
)
def test_any_object_that_looks(mine: Path, name: str, dim: int, size: int | None) -> None:
    encoder = load_encoder(f"my.py:{name}")
    assert (encoder.dim, encoder.size) == (dim, size)
    images = torch.rand(3, 3, 50, 40)
    assert encoder.embed(images, batch=2).shape == (3, dim)
    assert encoder.embed(list(images)).shape == (3, dim)
    assert load_encoder(f"my.py:{name}").fingerprint == encoder.fingerprint


def test_pictures_are_whole_unless_a_crop_is_named(mine: Path) -> None:
    images = [torch.ones(3, 50, 40), torch.zeros(3, 30, 60)]
    whole = load_encoder("my.py:pictures")
    assert whole.embed(images).tolist() == [[40, 50, 255], [60, 30, 0]]
    assert whole.short_side > 96  # so that it is given the files' own pixels
    assert load_encoder("my.py:cropped").embed(images).tolist() == [[10, 10], [10, 10]]


def test_a_changed_file_is_another_encoder(mine: Path) -> None:
    from onesdaug.common import registry

    before = [load_encoder(f"my.py:{name}").fingerprint for name in ("Net", "tensors")]
    mine.write_text(MINE.replace("x.mean((2, 3))", "x.amax((2, 3))"))
    registry._file.cache_clear()
    after = [load_encoder(f"my.py:{name}").fingerprint for name in ("Net", "tensors")]
    assert all(one != other for one, other in zip(before, after, strict=True))


@pytest.mark.parametrize(
    ("name", "words"),
    [
        (
            "broken",
            ["encoder my.py:broken takes neither", "AttributeError: 'list' object", "my.py:", "AttributeError"],
        ),
        ("Unfinished", ["encoder my.py:Unfinished, given 1 images, failed", "ValueError: shape trouble in two lines"]),
        ("NeedsArguments", ["encoder my.py:NeedsArguments: calling it without arguments", "TypeError", "width"]),
        ("maps", ["takes neither", "one vector per image, (1, C), but gave Tensor of shape (1, 3, 84)"]),
        ("Typo", ["encoder my.py:Typo: its preprocess failed", "cropp"]),
        ("number", ["my.py:number gives int; want an Encoder"]),
        ("Nett", ["'my.py:Nett' cannot be loaded", "my.py has no attribute 'Nett': did you mean 'Net'?"]),
    ],
)
def test_a_wrong_one_gives_two_lines(mine: Path, name: str, words: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        load_encoder(f"my.py:{name}")
    text = str(caught.value)
    assert all(word in text for word in words), text
    assert len(text.splitlines()) <= 3


def test_the_place_in_the_users_file_is_named(mine: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load_encoder("my.py:Unfinished")
    line = 1 + next(i for i, text in enumerate(MINE.splitlines()) if "shape trouble" in text)
    assert f"{mine}:{line})" in str(caught.value)
    assert len(str(caught.value).splitlines()) == 2
    with pytest.raises(ConfigError, match=r"name the object in the file too, my\.py:Name"):
        load_encoder("my.py")


def test_an_error_on_some_later_batch_is_told_alike(mine: Path) -> None:
    mine.write_text(
        "def f(images):\n    assert images[0].size != (5, 5), 'too small'\n    return [[1.0]] * len(images)\n"
    )
    encoder = load_encoder("my.py:f")
    with pytest.raises(ConfigError, match=r"given 2 images, failed:\n  AssertionError: too small \(.*my.py:2\)"):
        encoder.embed(torch.rand(2, 3, 5, 5))
