"""What stands where it should not: inputs among the outputs, pipes, links, folders, edited manifests."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from onesdaug.errors import ConfigError, DataError
from onesdaug.jobs.folder import ViewFolder
from onesdaug.jobs.job import JobReport, run_job
from onesdaug.jobs.manifest import Manifest
from onesdaug.jobs.plan import list_inputs
from onesdaug.jobs.sheet import write_sheet
from onesdaug.jobs.survey import JobSettings
from tests.conftest import make_image
from tests.jobs.fake import Fake, make
from tests.jobs.test_manifest import row


def run(inputs: list[Path], out: Path, **task: Any) -> JobReport:
    return run_job(Fake(), list_inputs(inputs, out), JobSettings(out, **task))  # type: ignore[arg-type]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "d").mkdir()
    for number, name in enumerate(("a", "b", "a_view1", "sheet")):
        make_image(number).save(tmp_path / "d" / f"{name}.png")
    return tmp_path / "d"


@pytest.mark.parametrize("spelled", ["plain", "linked folder", "link to the output", "link at the output"])
def test_an_input_of_the_same_job_is_never_replaced(folder: Path, tmp_path: Path, spelled: str) -> None:
    given, out, before = folder / "a_view1.png", folder, (folder / "a_view1.png").read_bytes()
    if spelled == "linked folder":
        out = tmp_path / "same"
        out.symlink_to(folder)
    elif spelled == "link to the output":
        given = tmp_path / "other.png"
        given.symlink_to(folder / "a_view1.png")
    elif spelled == "link at the output":
        (folder / "a_view1.png").rename(tmp_path / "real.png")
        given.symlink_to(tmp_path / "real.png")
    report = run([folder / "a.png", given, folder / "b.png"], out, k=2, overwrite=True)
    (source,) = report.failures
    assert source == str(folder / "a.png") and "itself an input" in report.failures[source]
    assert given.read_bytes() == before and report.made == 5  # a's second view and both of the others


def test_nor_by_the_contact_sheet(folder: Path) -> None:
    listing = list_inputs([folder / "sheet.png"], folder)
    before = (folder / "sheet.png").read_bytes()
    with pytest.raises(ConfigError, match="itself an input"):
        write_sheet(folder, listing.items, 1, None, "", (), overwrite=True)
    assert (folder / "sheet.png").read_bytes() == before


@pytest.mark.parametrize("overwrite", [False, True])
def test_pipes_links_and_folders_at_the_place_of_a_view_cost_only_their_image(
    folder: Path, tmp_path: Path, overwrite: bool
) -> None:
    out = tmp_path / "out"
    (out / "in_a_folder").mkdir(parents=True)
    os.mkfifo(out / "pipe_view1.png")
    (out / "loop_view1.png").symlink_to(out / "loop_view1.png")
    (out / "dangling_view1.png").symlink_to(tmp_path / "elsewhere.png")
    (out / "folder_view1.png").mkdir()
    (out / "sub").symlink_to(tmp_path / "gone")
    (out / "file").touch()
    pictures = tmp_path / "in"
    for name in ("pipe", "loop", "dangling", "folder", "sub/deep", "file/deep", "good"):
        (pictures / name).parent.mkdir(parents=True, exist_ok=True)
        make_image(len(name)).save(pictures / f"{name}.png")
    report = make(pictures, out, k=1, overwrite=overwrite)
    replaced = {"pipe", "loop", "dangling"}
    failed = {"folder", "sub/deep", "file/deep"} | (set() if overwrite else replaced)
    assert {str(Path(source).relative_to(pictures).with_suffix("")) for source in report.failures} == failed
    assert (out / "good_view1.png").is_file() and not (tmp_path / "elsewhere.png").exists()
    for name in replaced:
        assert (out / f"{name}_view1.png").is_file() == overwrite


@pytest.mark.parametrize("name", ["manifest.jsonl", ".onesdaug-lock"])
def test_a_pipe_in_the_place_of_our_own_files_is_refused(folder: Path, tmp_path: Path, name: str) -> None:
    (tmp_path / "out").mkdir()
    os.mkfifo(tmp_path / "out" / name)
    with pytest.raises(DataError, match=f"{name} cannot be read or written: it is a pipe"):
        run([folder / "a.png"], tmp_path / "out")


def test_a_pipe_or_link_at_a_temporary_name_is_no_trap(folder: Path, tmp_path: Path) -> None:
    whole, out = tmp_path / "whole", tmp_path / "out"
    out.mkdir()
    names: list[str] = []
    real = Path.replace
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Path, "replace", lambda self, target: names.append(self.name) or real(self, target))  # type: ignore[func-returns-value]
        run([folder / "a.png"], whole, k=2)
    os.mkfifo(out / names[0])
    (out / names[1]).symlink_to(tmp_path / "target")
    assert run([folder / "a.png"], out, k=2).made == 2
    assert not (tmp_path / "target").exists()


def test_a_pipe_at_the_sheet_is_refused(folder: Path, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "sheet.png")
    with pytest.raises(DataError, match="it is a pipe"):
        write_sheet(tmp_path, list_inputs([folder / "a.png"], tmp_path).items, 1, None, "", ())


@pytest.mark.parametrize("view", ["../x_view1.png", "/{}/x_view1.png", "a/../../x_view1.png", ""])
def test_manifest_paths_that_leave_the_folder_are_not_followed(folder: Path, tmp_path: Path, view: str) -> None:
    out = tmp_path / "out"
    out.mkdir()
    foreign = tmp_path / ".onesdaug-foreign"
    foreign.touch()
    (out / "manifest.jsonl").write_text(json.dumps(row(view.replace("{}", str(tmp_path)))) + "\n")
    assert Manifest(out).unreadable == 1
    assert run([folder / "a.png"], out, k=1).made == 1
    assert foreign.exists()


EDITS: dict[str, Any] = {
    "k": [0, -1, 10**30, 1.5, "1", None, True],
    "view": [3, None, ["x"], {}],
    "key": [None, 1],
    "sha256": [None, [1]],
    "tweak_sha256": [1, {}],
    "source": [None, 7],
    "digest": [{}, None],
    "batch": [None, 1],
    "config": [[], None],
    "generator": [None, 2],
    "status": [None, 5, "strange"],
    "time": [None, 3, {}],
    "seed": [None, {}, [1]],
    "seconds": ["x", None],
}


@pytest.mark.parametrize(("field", "value"), [(field, value) for field, values in EDITS.items() for value in values])
def test_edited_lines_are_passed_over_and_the_job_goes_on(
    folder: Path, tmp_path: Path, field: str, value: object
) -> None:
    out = tmp_path / "out"
    run([folder / "a.png"], out, k=1)
    line = json.loads((out / "manifest.jsonl").read_text())
    edited = [json.dumps({**line, field: value}), json.dumps({name: line[name] for name in line if name != field})]
    for text in edited:
        (out / "manifest.jsonl").write_text(f'{text}\n{{"status": "error", "source": "x"}}\n{"[" * 100_000}\n')
        report = run([folder / "a.png", folder / "b.png"], out, k=1, overwrite=True)
        assert report.failed == 0
        ViewFolder(out).views(folder / "a.png")
        with pytest.raises(DataError):
            ViewFolder(out).views(folder / "a.png", k=10**12)


def test_names_that_are_no_characters_are_found_again(tmp_path: Path) -> None:
    name = os.fsdecode(b"\xff\xfe.png")
    Image.new("RGB", (8, 8)).save(tmp_path / "x.png")
    (tmp_path / "x.png").rename(tmp_path / name)
    assert run([tmp_path / name], tmp_path / "out").made == 3
    assert run([tmp_path / name], tmp_path / "out").skipped == 3
