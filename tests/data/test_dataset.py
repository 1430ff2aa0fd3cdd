"""Parts of a data set: the first images of each class, or a random balanced part."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from onesdaug.data.dataset import Dataset
from onesdaug.data.pixels import on_device
from onesdaug.errors import DataError


def numbered() -> Dataset:
    """Three classes of 5, 7 and 6 images; every pixel of image i is i."""
    labels = np.repeat(np.arange(3), (5, 7, 6))
    images = np.broadcast_to(np.arange(18, dtype=np.uint8)[:, None, None, None], (18, 2, 2, 3)).copy()
    return Dataset(images, labels, ("a", "b", "c"), tuple(f"{i}" for i in range(18)), "f")


def test_sample_is_balanced_random_and_keeps_rows_together() -> None:
    part = numbered().sample(4, seed=1)
    assert part.counts().tolist() == [4, 4, 4]
    assert [str(i) for i in part.images[:, 0, 0, 0]] == list(part.ids)
    assert part.ids == numbered().sample(4, seed=1).ids != numbered().sample(4, seed=2).ids
    assert part.fingerprint != numbered().fingerprint


def test_sample_of_more_than_a_class_has_is_refused() -> None:
    with pytest.raises(DataError, match="6 images of each class asked for, one class has 5"):
        numbered().sample(6)


def test_take_gives_the_first_of_each_class() -> None:
    part = numbered().take(2, classes=2)
    assert part.ids == ("0", "1", "5", "6") and part.class_names == ("a", "b")


def test_pictures_of_a_cache_come_to_a_device_without_a_warning(recwarn: pytest.WarningsRecorder) -> None:
    images = np.zeros((2, 4, 4, 3), dtype=np.uint8)
    images.flags.writeable = False
    assert torch.equal(on_device(images, torch.device("cpu")), torch.zeros(2, 4, 4, 3, dtype=torch.uint8))
    assert not recwarn
