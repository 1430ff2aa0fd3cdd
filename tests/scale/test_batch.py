"""The cluster's job without a cluster: what workers are told and send back, resuming, and what the command says."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from onesdaug.cli import augment as command
from onesdaug.cli.augment import app
from onesdaug.errors import ConfigError
from onesdaug.jobs.ledger import JobReport
from onesdaug.jobs.plan import list_inputs
from onesdaug.jobs.survey import JobSettings
from onesdaug.scale import batch
from onesdaug.scale.start import RayOptions, load_ray, share
from tests.jobs.fake import contents, make
from tests.scale.fake import Drawer, drawer, photographs


class Here:
    """Stands in for `Spread`: one worker in this process, to which all goes and from which all comes as bytes."""

    def __init__(self, *_: object) -> None:
        pass

    def ask(self, question: Callable[[], Any]) -> Any:
        return pickle.loads(pickle.dumps(pickle.loads(pickle.dumps(question))()))

    def run(self, make: Callable[[], Any], units: Sequence[Any], *_: object) -> Iterator[tuple[Any, Any]]:
        work = pickle.loads(pickle.dumps(make))()
        for unit in reversed(units):  # the order of workers is nobody's promise
            yield unit, pickle.loads(pickle.dumps(work(pickle.loads(pickle.dumps(unit)))))


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch, "Spread", Here)
    monkeypatch.setattr(batch, "connected", lambda _: nullcontext())


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    return photographs(tmp_path / "in", 6, bad=4)


def spread(photos: Path, out: Path, **settings: object) -> JobReport:
    job = JobSettings(out, **{"k": 3, **settings})  # type: ignore[arg-type]
    return batch.run_on_ray(drawer(photos.parent), list_inputs([photos], out), job, RayOptions(ray="auto"), "cpu")[0]


def test_a_cut_batch_is_drawn_again_as_it_was(photos: Path, tmp_path: Path, here: None) -> None:
    """The local command and the cluster's go on with each other's work."""
    make(photos, tmp_path / "local", Drawer(tmp_path))
    out = tmp_path / "out"
    report = spread(photos, out)
    assert (report.made, report.skipped, report.failed) == (15, 0, 1)
    assert contents(out) == contents(tmp_path / "local")
    lines = (out / "manifest.jsonl").read_text()
    again = spread(photos, out)
    assert (again.made, again.skipped, again.failed) == (0, 15, 1)
    assert (out / "manifest.jsonl").read_text() == lines
    for name in ("p0_view2.png", "p5_view1.png"):
        (out / name).unlink()
    assert spread(photos, out).made == 2
    assert contents(out) == contents(tmp_path / "local")
    (out / "p1_view3.png").unlink()
    assert make(photos, out, Drawer(tmp_path)).made == 1
    assert contents(out) == contents(tmp_path / "local")


def test_what_is_not_ours_stays(photos: Path, tmp_path: Path, here: None) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "p2_view1.png").write_bytes(b"mine")
    report = spread(photos, out)
    assert (out / "p2_view1.png").read_bytes() == b"mine"
    assert "--overwrite replaces it" in report.failures[str(photos / "p2.png")]
    assert report.made == 14
    assert spread(photos, out, overwrite=True).made == 1


def test_tweaks_are_sent_along(photos: Path, tmp_path: Path, here: None) -> None:
    out = tmp_path / "out"
    assert spread(photos, out, save_aug=True).made == 15
    assert len(list(out.glob("*_tweak*.png"))) == 15


def test_without_ray_the_command_says_how_to_get_it(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ConfigError, match=r"pip install 'onesdaug\[ray\]'"):
        load_ray()
    found = CliRunner().invoke(app, [str(photos), "-o", str(tmp_path / "x"), "--model", "shape", "--ray"])
    assert "onesdaug[ray]" in str(found.exception)
    found = CliRunner().invoke(app, [str(photos), "-o", str(tmp_path / "x"), "--model", "shape"])
    assert found.exit_code == 1  # of the image that is none
    assert len(contents(tmp_path / "x")) == 15


@pytest.mark.parametrize(
    ("words", "address"),
    [
        (["--ray"], "local"),
        (["--ray", "--k", "1"], "local"),
        (["--ray", "auto"], "auto"),
        (["--ray", "ray://head:10001"], "ray://head:10001"),
        (["--ray", "10.0.0.1:6379"], "10.0.0.1:6379"),
        ([], None),
    ],
)
def test_ray_may_stand_without_an_address(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], address: str | None
) -> None:
    seen: list[str | None] = []

    def record(task: Any, *_: object) -> JobReport:
        seen.append(task.cluster.ray)
        return JobReport()

    monkeypatch.setattr(command._Task, "on_ray", record)
    monkeypatch.setattr(command._Task, "here", record)
    found = CliRunner().invoke(app, [*words, str(photos), "-o", str(tmp_path / "x"), "--model", "shape"])
    assert found.exit_code == 0, found.output
    assert seen == [address]


def test_workers_are_for_ray(photos: Path, tmp_path: Path) -> None:
    found = CliRunner().invoke(app, [str(photos), "-o", str(tmp_path / "x"), "--model", "shape", "--ray-workers", "2"])
    assert "--ray-cpus are for --ray" in str(found.exception)


def test_a_uri_is_for_shards(photos: Path) -> None:
    found = CliRunner().invoke(app, [str(photos), "-o", "s3://bucket/views", "--model", "shape"])
    assert "with --shards a URI works too" in str(found.exception)


@pytest.mark.parametrize(
    ("wanted", "nodes", "gpus", "cpus", "told"),
    [(1, (8,), 0, 1, False), (4, (8, 8), 0, 4, False), (4, (2, 1), 0, 2, True), (4, (8,), 1, 1, False)],
)
def test_a_worker_has_the_threads_of_the_plain_command(
    wanted: int, nodes: tuple[int, ...], gpus: int, cpus: int, told: bool,
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    monkeypatch.setattr(torch, "get_num_threads", lambda: wanted)
    ray = SimpleNamespace(
        cluster_resources=lambda: {"CPU": sum(nodes), "GPU": gpus},
        nodes=lambda: [{"Alive": True, "Resources": {"CPU": one}} for one in nodes],
    )
    with caplog.at_level("INFO"):
        assert share(ray, RayOptions(ray="local"), "auto")[1] == {"num_cpus": cpus, "num_gpus": gpus}
    assert ("may differ in their last bits" in caplog.text) == told
    assert share(ray, RayOptions(ray="local", ray_cpus=0.5), "auto")[1]["num_cpus"] == 0.5
