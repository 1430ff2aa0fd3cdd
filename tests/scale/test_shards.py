"""Shards of views: the bytes of the image files, written whole, resumed, read back as inputs."""

from __future__ import annotations

import errno
import json
import os
import tarfile
from pathlib import Path

import pytest

from onesdaug.errors import OnesdaugError
from onesdaug.jobs.ledger import JobReport
from onesdaug.jobs.plan import list_inputs
from onesdaug.jobs.survey import JobSettings
from onesdaug.scale.batch import planned
from onesdaug.scale.shards import Kind, ShardWorker, run_shards
from onesdaug.scale.start import RayOptions
from tests.conftest import make_image
from tests.jobs.fake import contents, make
from tests.scale.fake import Drawer, drawer, photographs

pytest.importorskip("pyarrow")


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    return photographs(tmp_path / "in", 7, bad=3)


def shard(photos: Path, out: Path, kind: Kind = "parquet", **settings: object) -> JobReport:
    job = JobSettings(out, **{"k": 3, **settings})  # type: ignore[arg-type]
    listing = list_inputs([photos], out)
    return run_shards(drawer(photos.parent), listing, job, str(out), kind, 8, RayOptions(), "cpu")[0]


def stored(out: Path) -> dict[str, bytes]:
    from pyarrow import parquet

    found = {}
    for file in sorted(out.iterdir()):
        if file.suffix == ".parquet":
            table = parquet.read_table(file)
            found |= dict(zip(table["view"].to_pylist(), table["image"].to_pylist(), strict=True))
        elif file.suffix == ".tar":
            with tarfile.open(file) as archive:
                found |= {m.name: archive.extractfile(m).read() for m in archive if m.name.endswith(".png")}  # type: ignore[union-attr]
    return found


@pytest.mark.parametrize("kind", ["parquet", "webdataset"])
def test_the_same_bytes_as_image_files(photos: Path, tmp_path: Path, kind: Kind) -> None:
    make(photos, tmp_path / "files", Drawer(tmp_path))
    report = shard(photos, tmp_path / "out", kind)
    assert (report.made, report.skipped, report.failed) == (18, 0, 1)
    assert stored(tmp_path / "out") == contents(tmp_path / "files")
    rows = [json.loads(line) for file in sorted((tmp_path / "out").glob("*.jsonl")) for line in file.open()]
    assert {row["view"] for row in rows if row["status"] == "ok"} == set(contents(tmp_path / "files"))
    assert {row["source"] for row in rows if row["status"] == "error"} == {str(photos / "p3.png")}


def test_a_rerun_makes_what_is_missing_with_the_same_bytes(photos: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    shard(photos, out)
    files = {file.name: file.read_bytes() for file in out.glob("*.parquet")}
    again = shard(photos, out)
    assert (again.made, again.skipped, again.failed) == (0, 18, 1)
    (out / "views-000001.parquet").unlink()
    (out / "views-000002.parquet").write_bytes(files["views-000002.parquet"][:-5])  # torn by something else
    report = shard(photos, out, overwrite=True)
    assert (report.made, report.skipped) == (18 - 8, 8)
    assert {file.name: file.read_bytes() for file in out.glob("*.parquet")} == files
    make_image(50).save(photos / "p3.png")  # an image that was broken is whole now: only its shards change
    report = shard(photos, out)
    assert (report.made + report.skipped, report.failed) == (21, 0)


def test_other_settings_do_not_replace_a_shard_unasked(photos: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    shard(photos, out)
    before = stored(out)
    report = shard(photos, out, seed=1)
    assert report.made == 0
    assert "--overwrite" in report.failures[str(photos / "p0.png")]
    assert stored(out) == before
    assert shard(photos, out, seed=1, overwrite=True).made == 18
    assert stored(out) != before


def test_views_in_shards_are_inputs_again(photos: Path, tmp_path: Path) -> None:
    shard(photos, tmp_path / "out", "webdataset")
    listing = list_inputs([tmp_path / "out"], tmp_path / "more")
    assert len(listing.items) == 18


def test_batches_are_planned_by_place(photos: Path, tmp_path: Path) -> None:
    items = list_inputs([photos], tmp_path / "out").items
    cut = [[(share.item.prefix, share.numbers) for share in batch] for batch in planned(items, 3, 4)]
    assert cut[:2] == [[("p0", (1, 2, 3)), ("p1", (1,))], [("p1", (2, 3)), ("p2", (1, 2))]]
    assert sum(len(numbers) for batch in cut for _, numbers in batch) == 21


def test_a_full_disk_is_told(photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(ShardWorker, "_write", full)
    with pytest.raises(OnesdaugError, match=r"No space left on device\. All finished ones are kept"):
        shard(photos, tmp_path / "out")
