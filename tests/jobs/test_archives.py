"""Pictures in zip files, tars, Parquet files and stores are inputs like files: the same views, the same bytes."""

from __future__ import annotations

import io
import tarfile
import zipfile
from pathlib import Path

import pytest
from PIL import Image

from onesdaug.errors import ConfigError
from onesdaug.jobs.plan import Listing, list_inputs
from onesdaug.jobs.survey import load
from tests.conftest import make_image

pa = pytest.importorskip("pyarrow")
NAMES = ["cat/a.png", "cat/b.png", "dog/a.png"]


def png(seed: int) -> bytes:
    buffer = io.BytesIO()
    make_image(seed).save(buffer, "PNG")
    return buffer.getvalue()


def write_tar(path: Path, members: dict[str, bytes]) -> Path:
    with tarfile.open(path, "w") as archive:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return path


def write_parquet(path: Path, columns: dict[str, list[object]]) -> Path:
    from pyarrow import parquet

    parquet.write_table(pa.table(columns), path, row_group_size=2)
    return path


def seen(listing: Listing) -> dict[str, Image.Image]:
    assert not listing.problems
    return {item.prefix: load(item).image for item in listing.items}


def same(found: dict[str, Image.Image], expected: dict[str, int]) -> bool:
    return {k: v.tobytes() for k, v in found.items()} == {k: make_image(v).tobytes() for k, v in expected.items()}


def test_a_zip_file_is_like_the_folder_it_was_made_of(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "pets.zip", "w") as archive:
        for seed, name in enumerate(NAMES):
            archive.writestr(name, png(seed))
        archive.writestr("notes.txt", b"x")
    found = seen(list_inputs([tmp_path / "pets.zip"], tmp_path / "out"))
    assert same(found, {"cat/a": 0, "cat/b": 1, "dog/a": 2})


def test_members_of_shards_may_be_called_alike(tmp_path: Path) -> None:
    for shard in range(2):
        write_tar(tmp_path / f"s-{shard}.tar", {"0.png": png(2 * shard), "0.cls": b"3", "1.png": png(2 * shard + 1)})
    found = seen(list_inputs([tmp_path], tmp_path / "out"))
    assert same(found, {"s-0/0": 0, "s-0/1": 1, "s-1/0": 2, "s-1/1": 3})
    uri = seen(list_inputs([tmp_path.as_uri()], tmp_path / "out"))
    assert same(uri, {"s-0/0": 0, "s-0/1": 1, "s-1/0": 2, "s-1/1": 3})


@pytest.mark.parametrize("layout", ["bytes and a key", "as Hugging Face writes them", "without names"])
def test_parquet(tmp_path: Path, layout: str) -> None:
    pictures = [png(seed) for seed in range(5)]
    columns: dict[str, list[object]] = {"label": list(range(5))}
    if layout == "bytes and a key":
        columns |= {"key": [f"k{n}.jpg" for n in range(5)], "image": list(pictures)}
    elif layout == "without names":
        columns |= {"png": list(pictures)}
    else:
        columns |= {"image": [{"bytes": data, "path": f"k{n}.jpg"} for n, data in enumerate(pictures)]}
    file = write_parquet(tmp_path / "x.parquet", columns)
    names = [f"x/{n:08d}" if layout == "without names" else f"x/k{n}" for n in range(5)]
    assert same(seen(list_inputs([file], tmp_path / "out")), dict(zip(names, range(5), strict=True)))


def test_a_store_of_files(tmp_path: Path) -> None:
    (tmp_path / "in" / "sub").mkdir(parents=True)
    (tmp_path / "in" / "a.png").write_bytes(png(1))
    (tmp_path / "in" / "sub" / "b.png").write_bytes(png(2))
    uri = (tmp_path / "in").as_uri()
    assert same(seen(list_inputs([uri], tmp_path / "out")), {"a": 1})
    assert same(seen(list_inputs([uri], tmp_path / "out", recursive=True)), {"a": 1, "sub/b": 2})
    with pytest.raises(ConfigError, match="no such file or folder"):
        list_inputs([f"{uri}/nothing"], tmp_path / "out")


def test_what_is_broken_costs_only_itself(tmp_path: Path) -> None:
    good = write_tar(tmp_path / "a.tar", {"x.png": png(1), "../evil.png": png(2)})
    (tmp_path / "b.zip").write_bytes(b"PK no zip")
    (tmp_path / "c.parquet").write_bytes(b"PAR1")
    plain = write_tar(tmp_path / "d.tar", {"x.png": png(1), "y.png": b"torn"})
    listing = list_inputs([good, tmp_path / "b.zip", tmp_path / "c.parquet", plain], tmp_path / "out")
    assert [source for source, _ in listing.problems] == [str(tmp_path / n) for n in ("a.tar", "b.zip", "c.parquet")]
    assert "leads out of the archive" in listing.problems[0][1]
    assert [item.source for item in listing.items] == [f"{plain}:x.png", f"{plain}:y.png"]
