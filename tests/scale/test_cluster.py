"""A job on a real cluster of two nodes, of which a worker and then a node die: the result is the local one's."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from onesdaug.augment.seeds import image_digest
from onesdaug.jobs.ledger import Ledger
from onesdaug.jobs.manifest import Manifest
from onesdaug.jobs.plan import list_inputs
from onesdaug.jobs.survey import JobSettings
from onesdaug.scale.batch import DIED, run_on_ray
from onesdaug.scale.start import RayOptions
from tests.conftest import make_image
from tests.jobs.fake import contents, make
from tests.scale.fake import Drawer, drawer, photographs

BAD, DEADLY, COUNT, K = 11, 20, 32, 3
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # Ray's own
CHANGING = {"time", "seconds", "peak_memory_mb"}


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    return photographs(tmp_path / "in", COUNT, BAD)


def lasting(out: Path) -> dict[str, dict[str, Any]]:
    rows = Manifest(out).views
    return {name: {k: v for k, v in row.items() if k not in CHANGING} for name, row in rows.items()}


def test_a_worker_and_a_node_die_and_the_result_is_that_of_the_local_job(
    photos: Path, tmp_path: Path, cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Views here depend on the whole batch; one image is no image, and one kills whoever draws it."""
    deadly, pids = image_digest(make_image(DEADLY)), tmp_path / "pids"
    pids.mkdir()
    local = make(photos, tmp_path / "local", Drawer(tmp_path, 0.0, deadly), k=K)
    assert (local.made, local.failed) == ((COUNT - 2) * K, 2)

    commits, commit = 0, Ledger.commit

    def killing(self: Ledger, writing: Any) -> None:
        nonlocal commits
        commit(self, writing)
        commits += 1
        if commits == 3:
            drawing = max(pids.iterdir(), key=lambda file: file.stat().st_mtime)
            os.kill(int(drawing.name), signal.SIGKILL)
        if commits == 8:
            cluster.remove_node(cluster.second, allow_graceful=False)

    out = tmp_path / "out"
    load = drawer(pids, 0.1, deadly, kills=True)
    job, options = JobSettings(out, K), RayOptions(ray="auto")
    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "commit", killing)
        report, about = run_on_ray(load, list_inputs([photos], out), job, options, "cpu")
    assert (report.made, report.skipped) == (local.made, 0)
    assert len(list(pids.iterdir())) > 2  # the dead were replaced
    assert report.failures[str(photos / f"p{DEADLY}.png")] == DIED
    assert set(report.failures) == set(local.failures)
    assert contents(out) == contents(tmp_path / "local")
    assert lasting(out) == lasting(tmp_path / "local")
    assert about.batch_size == 4
