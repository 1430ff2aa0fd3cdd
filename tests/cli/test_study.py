"""`onesdaug study`: what a user types and sees."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from onesdaug.cli import app
from onesdaug.errors import ConfigError
from onesdaug.studies.spec import names
from tests.studies.world import World

runner = CliRunner()


def test_list_names_every_study_and_its_place_in_the_paper() -> None:
    shown = runner.invoke(app, ["study", "list"])
    assert shown.exit_code == 0
    assert all(name in shown.stdout for name in names())
    assert "Table 1" in shown.stdout and "Figures 2 and 3" in shown.stdout


def test_run_writes_results_and_a_page(world: World, tmp_path: Path, large_batches: None) -> None:
    options = ["--root", str(world.root), "--checkpoints", str(world.checkpoints), "--model", str(world.generator)]
    options += ["--episodes", "6", "--device", "cpu", "--work", str(world.root.parent / "work")]
    shown = runner.invoke(app, ["study", "run", "grid", "theory", "-o", str(tmp_path), *options])
    assert shown.exit_code == 0, shown.output
    told = ("paired difference to no views", "Views ", "2 studies in")
    assert all(words in " ".join(shown.stdout.split()) for words in told)
    result = json.loads((tmp_path / "grid.json").read_text())
    assert str(tmp_path) not in json.dumps(result)
    page = (tmp_path / "report.html").read_text()
    assert "ProtoNet-Res12" in page and "<script" not in page


def test_nothing_to_run_with_says_why_and_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ONESDAUG_DATA", raising=False)
    (tmp_path / "grid.json").write_text("{}")
    shown = runner.invoke(app, ["study", "run", "grid", "--model", "pocket", "-o", str(tmp_path)])
    assert shown.exit_code == 1
    assert "ONESDAUG_DATA is not set; to get it: ILSVRC-2012" in shown.stdout
    assert (tmp_path / "grid.json").read_text() == "{}"


def test_a_wrong_name_is_said_before_anything_is_done(tmp_path: Path) -> None:
    shown = runner.invoke(app, ["study", "run", "main", "mian", "-o", str(tmp_path / "out")])
    assert isinstance(shown.exception, ConfigError) and "there is no study 'mian'" in str(shown.exception)
    assert not (tmp_path / "out").exists()
    shown = runner.invoke(app, ["study", "run", "main", "--split", "tset", "-o", str(tmp_path / "out")])
    assert isinstance(shown.exception, ConfigError)
