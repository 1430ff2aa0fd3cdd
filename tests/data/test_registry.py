"""What the registry says about the real benchmarks, checked where they lie."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from onesdaug.data.registry import BENCHMARKS, SPLITS, check, load_split
from onesdaug.errors import DataError
from tests.real_data import real_root


@pytest.mark.parametrize("name", ["miniimagenet", "cub"])
@pytest.mark.parametrize("split", SPLITS)
def test_real_benchmarks_are_what_they_should_be(name: str, split: str) -> None:
    found = check(name, split, real_root(name))
    assert found.problems == ()
    assert (found.classes, found.images) == (
        BENCHMARKS[name].splits[split].classes,
        BENCHMARKS[name].splits[split].images,
    )


def test_a_real_split_loads_at_its_working_size() -> None:
    val = load_split("cub", "val", real_root("cub"))
    assert val.images.shape == (2932, 92, 92, 3)
    assert val.fingerprint in BENCHMARKS["cub"].splits["val"].fingerprints


def test_class_splits_are_the_published_ones() -> None:
    classes = {name: [b.splits[s].classes for s in SPLITS] for name, b in BENCHMARKS.items()}
    assert classes["miniimagenet"] == [64, 16, 20]
    assert classes["tieredimagenet"] == [351, 97, 160]
    assert classes["cub"] == [100, 50, 50]
    assert sum(BENCHMARKS["cub"].splits[s].images for s in SPLITS) == 11_788
    assert sum(BENCHMARKS["tieredimagenet"].splits[s].images for s in SPLITS) == 779_165


def test_missing_data_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("ONESDAUG_DATA", raising=False)
    with pytest.raises(DataError, match="ONESDAUG_DATA"):
        load_split("miniimagenet", "train")
    found = check("cub", "test", tmp_path)
    assert found.images == 0
    assert "no test split of cub" in found.problems[0]
    assert os.environ.get("ONESDAUG_DATA") is None
