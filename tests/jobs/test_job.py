"""The folder job: resume gives the same bytes, nothing foreign is overwritten, one bad image costs only itself."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest
from PIL import Image

from onesdaug import Augmenter
from onesdaug.common.files import locked, sha256_of
from onesdaug.errors import ConfigError, OnesdaugError
from onesdaug.jobs import files
from onesdaug.jobs.manifest import Manifest
from tests.conftest import make_image
from tests.jobs.fake import Fake, contents, make


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    folder = tmp_path / "in"
    (folder / "sub").mkdir(parents=True)
    for number in range(4):
        make_image(number).save(folder / f"p{number}.png")
    make_image(9).save(folder / "sub" / "q.png")
    return folder


def rows_of(out: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in (out / "manifest.jsonl").read_text().splitlines()]


class Killed(BaseException):
    """Like kill -9: nothing catches it."""


def test_files_names_and_manifest(photos: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    summary = make(photos, out, k=2, seed=5)
    assert (summary.made, summary.skipped, summary.failed) == (10, 0, 0)
    assert {"p0_view1.png", "sub/q_view2.png"} < set(contents(out))
    rows = rows_of(out)
    assert len(rows) == 10
    for row in rows:
        assert row["status"] == "ok"
        assert (row["seed"], row["t0"], row["steps_run"], row["schema"]) == (5, 651, 14, 1)
        assert sha256_of(out / str(row["view"])) == row["sha256"]
    again = make(photos, out, k=2, seed=5)
    assert (again.made, again.skipped) == (0, 10)
    assert rows_of(out) == rows


@pytest.mark.parametrize(
    ("where", "at"),
    [(where, at) for where in ("write", "replace") for at in (1, 2, 4, 6)] + [("append", at) for at in (1, 2, 4)],
)
def test_cut_anywhere_then_rerun_is_byte_identical(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str, at: int
) -> None:
    """Views here depend on the whole batch: only redoing cut batches as they were planned gives the same bytes."""
    make(photos, tmp_path / "whole", k=3)
    out = tmp_path / "cut"
    count = 0
    owner, name = {
        "write": (os, "fsync"),
        "append": (Manifest, "append"),
        "replace": (Path, "replace"),
    }[where]
    real = getattr(owner, name)

    def dying(*args: object) -> object:
        nonlocal count
        count += 1
        if count == at:
            raise Killed
        return real(*args)

    with monkeypatch.context() as patch:
        patch.setattr(owner, name, dying)
        with pytest.raises(Killed):
            make(photos, out, k=3)
    if where == "append":  # the write itself was torn
        with (out / "manifest.jsonl").open("ab") as file:
            file.write(b'{"key": "12')
    make(photos, out, k=3)
    assert contents(out) == contents(tmp_path / "whole")
    assert [f.name for f in out.rglob(".onesdaug-*")] == [".onesdaug-lock"]


def test_raising_k_keeps_what_is_there_and_a_cut_there_resumes_too(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    for out in (whole, cut):
        make(photos, out, k=2)
    before = contents(whole)
    fake = Fake()
    assert make(photos, whole, fake, k=4).made == 10
    assert sum(fake.calls) == 10  # nothing that was there is computed again
    assert before.items() <= contents(whole).items()

    real, count = Path.replace, 0

    def dying(self: Path, target: Path) -> Path:
        nonlocal count
        count += 1
        if count == 3:
            raise Killed
        return real(self, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", dying)
        with pytest.raises(Killed):
            make(photos, cut, k=4)
    make(photos, cut, k=4)
    assert contents(cut) == contents(whole)


def test_a_lost_view_is_made_again_with_its_batch(photos: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    make(photos, out)
    before = contents(out)
    (out / "p1_view2.png").unlink()
    fake = Fake()
    summary = make(photos, out, fake)
    assert (summary.made, fake.calls) == (1, [4])
    assert contents(out) == before


def test_nothing_foreign_is_overwritten(photos: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "p1_view1.png").write_bytes(b"precious")
    summary = make(photos, out, k=2)
    assert (summary.made, summary.failed) == (9, 1)
    assert (out / "p1_view1.png").read_bytes() == b"precious"
    (error,) = [row for row in rows_of(out) if row["status"] == "error"]
    assert "p1_view1.png" in str(error["reason"])
    assert "--overwrite" in str(error["reason"])
    # other settings: the files of the first run are in the way as well
    assert make(photos, out, k=2, seed=1).failed == 5
    assert make(photos, out, k=2, seed=1, overwrite=True).made == 10
    assert make(photos, out, k=2, seed=1, overwrite=True).skipped == 10
    assert (out / "p1_view1.png").read_bytes() != b"precious"


def test_one_bad_image_costs_only_itself(photos: Path, tmp_path: Path) -> None:
    (photos / "p2b.png").write_text("not an image")
    out = tmp_path / "out"
    summary = make(photos, out, Fake(batch_size=7, bad=[make_image(1)]), k=2)
    assert summary.made == 8
    assert set(summary.failures) == {str(photos / "p1.png"), str(photos / "p2b.png")}
    errors = {row["source"]: row["reason"] for row in rows_of(out) if row["status"] == "error"}
    assert "breaks the network" in str(errors[str(photos / "p1.png")])
    assert "text file" in str(errors[str(photos / "p2b.png")])
    before = contents(out)
    again = make(photos, out, Fake(batch_size=7, bad=[make_image(1)]), k=2)
    assert (again.made, again.failed, again.skipped) == (0, 2, 8)
    assert contents(out) == before


def test_tweaked_images_are_saved_and_can_be_asked_for_later(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shape = Augmenter.from_pretrained("shape", device="cpu")
    make(photos, tmp_path / "a", shape, save_aug=True, k=1)
    make(photos, tmp_path / "b", shape, k=1)
    cost = [row["seconds"] for row in Manifest(tmp_path / "b").views.values()]
    with monkeypatch.context() as patch:  # what is missing is stage 1's: no view is drawn again
        patch.setattr(shape, "run", None)
        make(photos, tmp_path / "b", shape, save_aug=True, k=1)
    assert "sub/q_tweak1.png" in contents(tmp_path / "a")
    assert contents(tmp_path / "a") == contents(tmp_path / "b")
    assert [row["seconds"] for row in Manifest(tmp_path / "b").views.values()] == cost
    assert make(photos, tmp_path / "b", shape, save_aug=True, k=1).skipped == 5


def test_two_jobs_on_one_folder(photos: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    with locked(out), pytest.raises(ConfigError, match="another onesdaug job"):
        make(photos, out)


def test_a_full_disk_stops_and_keeps_what_was_finished(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    real = files.png_bytes

    def full(image: Image.Image) -> bytes:
        if len(list(out.glob("*_view*.png"))) >= 4:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(image)

    with monkeypatch.context() as patch:
        patch.setattr(files, "png_bytes", full)
        with pytest.raises(OnesdaugError, match="disk is full"):
            make(photos, out)
    kept = contents(out)
    assert len(kept) >= 4
    assert [f.name for f in out.rglob(".onesdaug-*")] == [".onesdaug-lock"]
    make(photos, out)
    make(photos, tmp_path / "whole")
    assert contents(out) == contents(tmp_path / "whole")


def test_ctrl_c_finishes_the_writes_of_the_computed_batch(photos: Path, tmp_path: Path) -> None:
    class Interrupting(Fake):
        def run(self, *args: object, **kw: object) -> list[object]:  # type: ignore[override]
            if len(self.calls) == 2:
                raise KeyboardInterrupt
            return super().run(*args, **kw)  # type: ignore[arg-type,return-value]

    out = tmp_path / "out"
    summary = make(photos, out, Interrupting())
    assert summary.interrupted
    assert summary.made == len(contents(out)) == 8


def test_identical_images_under_two_names_both_get_views(photos: Path, tmp_path: Path) -> None:
    (photos / "copy.png").write_bytes((photos / "p0.png").read_bytes())
    out = tmp_path / "out"
    make(photos, out)
    assert {"copy_view1.png", "p0_view1.png"} < set(contents(out))
    assert make(photos, out).made == 0


def test_notes_are_said_a_few_times_then_counted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    for number in range(5):
        make_image(number).convert("L").save(folder / f"{number}.png")
    caplog.set_level("INFO", "onesdaug")
    make(folder, tmp_path / "out", k=1)
    assert len(caplog.messages) == 4
    assert "2 more images" in caplog.messages[-1]
    assert all(row["notes"] == ["greyscale converted to RGB"] for row in rows_of(tmp_path / "out"))
