from __future__ import annotations

import pytest
import torch

from benchmarks.average import average
from onesdaug.errors import ConfigError


def test_shares_heads_and_counters() -> None:
    tuned = {"encoder.w": torch.tensor([1.0, 3.0]), "encoder.n": torch.tensor(7), "head.w": torch.tensor([5.0])}
    start = {"encoder.w": torch.tensor([3.0, 3.0]), "encoder.n": torch.tensor(4)}
    mixed = average([(tuned, 0.75), (start, 0.25)])
    assert mixed["encoder.w"].tolist() == [1.5, 3.0]
    assert mixed["encoder.w"].dtype == torch.float32
    assert mixed["encoder.n"] == 7
    assert mixed["head.w"].tolist() == [5.0]  # only one part has a head: it is kept whole
    assert average([(tuned, 1.0), (start, 0.0)])["encoder.w"].tolist() == [1.0, 3.0]


def test_what_cannot_be_averaged() -> None:
    with pytest.raises(ConfigError, match="shares"):
        average([])
    with pytest.raises(ConfigError, match="shapes"):
        average([({"w": torch.zeros(2)}, 0.5), ({"w": torch.zeros(3)}, 0.5)])
