"""Several batches under way at once: the same files, order and errors, and memory bounded by the batch."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from onesdaug import Augmenter
from onesdaug.augment.config import preset
from onesdaug.jobs import survey
from onesdaug.jobs.job import WORKERS
from onesdaug.jobs.manifest import Manifest
from tests.conftest import make_image
from tests.jobs.fake import Fake, contents, make


class Overlapping(Fake):
    """A fake that says that three batches may be under way, and whose first ones wait until so many are."""

    overlap = 3

    def __init__(self, *args, **kw) -> None:
        super().__init__(*args, **kw)
        self.changed, self.now, self.most = threading.Condition(), 0, 0

    def run(self, rows, tweaked=False):
        with self.changed:
            self.now += 1
            self.most = max(self.most, self.now)
            self.changed.notify_all()
            self.changed.wait_for(lambda: self.most >= self.overlap, timeout=10)
        try:
            time.sleep(0.01)  # so that more could come
            return super().run(rows, tweaked)
        finally:
            with self.changed:
                self.now -= 1


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    folder = tmp_path / "in"
    folder.mkdir()
    for number in range(9):
        make_image(number, (24 + number, 20)).save(folder / f"p{number}.png")
    return folder


def order(out: Path) -> list[str]:
    return list(Manifest(out).views)


def test_the_same_files_in_the_same_order(photos: Path, tmp_path: Path) -> None:
    fake = Overlapping()
    summary = make(photos, tmp_path / "many", fake, k=3)
    make(photos, tmp_path / "one", k=3)
    assert summary.made == 27 and fake.most == 3
    assert contents(tmp_path / "many") == contents(tmp_path / "one")
    assert order(tmp_path / "many") == order(tmp_path / "one")
    assert make(photos, tmp_path / "many", Overlapping(), k=3).skipped == 27


def test_one_bad_image_costs_only_itself(photos: Path, tmp_path: Path) -> None:
    bad = [make_image(4, (28, 20))]
    summary = make(photos, tmp_path / "many", Overlapping(bad=bad), k=3)
    make(photos, tmp_path / "one", Fake(bad=bad), k=3)
    assert summary.made == 24 and list(summary.failures) == [str(photos / "p4.png")]
    assert contents(tmp_path / "many") == contents(tmp_path / "one")


def test_ctrl_c_keeps_what_was_computed_and_a_rerun_goes_on(photos: Path, tmp_path: Path) -> None:
    class Interrupting(Overlapping):
        def run(self, rows, tweaked=False):
            if rows[0].k == 1 and rows[0].image.size == (28, 20):  # the first row of the fourth batch
                raise KeyboardInterrupt
            return super().run(rows, tweaked)

    out = tmp_path / "out"
    summary = make(photos, out, Interrupting(), k=3)
    assert summary.interrupted and summary.made == len(contents(out)) == 12
    assert [f.name for f in out.rglob(".onesdaug-*")] == [".onesdaug-lock"]
    make(photos, out, Overlapping(), k=3)
    make(photos, tmp_path / "whole", k=3)
    assert contents(out) == contents(tmp_path / "whole")


def test_images_in_memory_are_bounded_by_the_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Decoded but not yet computed: what the readers are ahead, three batches under way, one being gathered."""
    folder = tmp_path / "in"
    folder.mkdir()
    for number in range(80):
        make_image(number, (8, 8)).save(folder / f"p{number}.png")
    decoded, computed, most = [0], [0], [0]
    lock, read = threading.Lock(), survey.read_image

    def counting(path):
        with lock:
            decoded[0] += 1
            most[0] = max(most[0], decoded[0] - computed[0])
        return read(path)

    class Slow(Overlapping):
        def run(self, rows, tweaked=False):
            views = super().run(rows, tweaked)
            with lock:
                computed[0] += len(rows) // 2
            return views

    monkeypatch.setattr(survey, "read_image", counting)
    make(folder, tmp_path / "out", Slow(batch_size=4), k=2)
    assert decoded[0] == computed[0] == 80
    assert most[0] <= WORKERS + 6 * 2


def test_a_real_augmenter_overlapped_gives_the_same_bytes(
    photos: Path, tmp_path: Path, tiny_sd: Path, tiny_ip: dict[str, Path]
) -> None:
    config = preset("paper-fast", steps=2)
    plain, many = (
        Augmenter.from_pretrained(tiny_sd, config=config, ip_repo=tiny_ip["base"], device="cpu") for _ in range(2)
    )
    many.overlap = 3
    make(photos, tmp_path / "one", plain, k=1)
    make(photos, tmp_path / "many", many, k=1)
    assert contents(tmp_path / "one") == contents(tmp_path / "many")
    rows = Manifest(tmp_path / "many").views.values()
    assert all(row["seconds"] > 0 for row in rows)


def test_all_batches_are_launched_by_one_thread_that_stays(
    photos: Path, tmp_path: Path, tiny_sd: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever prepares a batch, whichever job and augmenter it is of: cuDNN finds out once per thread."""
    config = preset("paper-fast", steps=2)
    first = Augmenter.from_pretrained(tiny_sd, config=config, ip_adapter=False, device="cpu", batch_size=2)
    seen = set()
    for name, aug in (("one", first), ("other", Augmenter(first.generator, first.config, batch_size=2))):
        aug.overlap, inner = 3, aug.stages.draw
        monkeypatch.setattr(
            aug.stages, "draw", lambda *args, inner=inner: (seen.add(threading.get_ident()), inner(*args))[1]
        )
        assert make(photos, tmp_path / name, aug, k=1).made == 9
    assert len(seen) == 1 and threading.get_ident() not in seen
    assert contents(tmp_path / "one") == contents(tmp_path / "other")
