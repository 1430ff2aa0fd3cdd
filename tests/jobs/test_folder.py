"""Stored views are found by what the image shows, and the sheet is drawn from files."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from onesdaug.data.pixels import to_tensor
from onesdaug.errors import ConfigError, DataError
from onesdaug.jobs.folder import ViewFolder
from onesdaug.jobs.manifest import Manifest
from onesdaug.jobs.plan import Item, list_inputs
from onesdaug.jobs.sheet import MAX_ROWS, _spread, write_sheet
from tests.conftest import make_image
from tests.jobs.fake import make


@pytest.fixture
def made(tmp_path: Path) -> Path:
    folder = tmp_path / "in"
    folder.mkdir()
    for number in range(3):
        make_image(number, (24, 16)).save(folder / f"{number}.png")
    make(folder, tmp_path / "out", k=2)
    return tmp_path / "out"


def test_views_by_pixels(made: Path, tmp_path: Path) -> None:
    folder = ViewFolder(made)
    assert len(folder) == len(folder.digests) == 3
    image = make_image(1, (24, 16))
    stored = [np.asarray(Image.open(made / f"1_view{k}.png")) for k in (1, 2)]
    assert all(np.array_equal(a, b) for a, b in zip(folder.views(image), stored, strict=True))
    assert len(folder.views(tmp_path / "in" / "1.png", k=1)) == 1
    assert image in folder
    assert make_image(7) not in folder


def test_tensors_are_a_view_source(made: Path) -> None:
    batch = torch.stack([to_tensor(make_image(n, (24, 16))) for n in (2, 0)])
    views = ViewFolder(made).tensors(batch, 2, seeds=["a", "b"])
    assert views.shape == (2, 2, 3, 16, 24)
    assert torch.equal(views[1, 1], to_tensor(Image.open(made / "0_view2.png")))


def test_what_is_not_there_is_said(made: Path, tmp_path: Path) -> None:
    folder = ViewFolder(made)
    with pytest.raises(DataError, match="no views of this image"):
        folder.views(make_image(7))
    with pytest.raises(DataError, match="--k 3"):
        folder.views(make_image(0, (24, 16)), k=3)
    (made / "0_view1.png").unlink()
    with pytest.raises(DataError, match="not on disk"):
        folder.views(make_image(0, (24, 16)))
    with pytest.raises(DataError, match="onesdaug augment"):
        ViewFolder(tmp_path / "in")


def test_views_of_different_settings_are_never_mixed(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    make_image(0, (24, 16)).save(folder / "0.png")
    make(folder, tmp_path / "out", k=3)
    make(folder, tmp_path / "out", k=2, seed=1, overwrite=True)
    assert len(ViewFolder(tmp_path / "out").views(folder / "0.png")) == 2  # view 3 is still seed 0's


def test_sheet(made: Path, tmp_path: Path) -> None:
    items = list_inputs([tmp_path / "in"], made).items
    views = set(Manifest(made).views)
    path = write_sheet(made, items, 3, lambda item, image: image, "title", views)
    size = Image.open(path).size
    assert size[0] > 5 * 200
    assert write_sheet(made, items * 10, 2, None, "t" * 500, views) == path  # its own sheet may be replaced
    assert Image.open(path).size[1] > MAX_ROWS * (133 + 30)
    path.write_bytes(b"mine")
    with pytest.raises(ConfigError, match="--overwrite"):
        write_sheet(made, items, 2, None, "title", views)
    write_sheet(made, items, 2, None, "title", views, overwrite=True)
    assert Image.open(write_sheet(made, items, 200, None, "many", views)).size[0] < 14 * 220
    nothing = Image.open(write_sheet(made, items, 2, None, "views of other settings", set()))
    assert nothing.size[1] < 2 * 200  # not one row: nothing is shown under a title that is not its own


@pytest.mark.parametrize(("folders", "each"), [(10, 20), (40, 3), (2, 100), (1, 30)])
def test_a_sheet_of_many_images_shows_every_folder(folders: int, each: int) -> None:
    names = [f"class{c}/{i}" for c in range(folders) for i in range(each)]
    items = [Item(Path(f"{name}.png"), f"{name}.png", name) for name in names]
    shown = _spread(items)
    counts = Counter(item.path.parent for item in shown)
    assert len(shown) == MAX_ROWS and shown == sorted(shown, key=items.index)
    assert len(counts) == min(folders, MAX_ROWS) and max(counts.values()) - min(counts.values()) <= 1
    if folders == 1:
        assert int(shown[-1].path.stem) > each - 3  # over the whole folder, not its beginning
    assert _spread(items[:5]) == items[:5] and _spread([]) == []
