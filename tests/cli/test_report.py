"""`onesdaug report`: what it writes, and what it says where it cannot."""

from __future__ import annotations

from pathlib import Path

import click.testing
import pytest
import typer
from typer.testing import CliRunner

from onesdaug.cli.report import report
from onesdaug.errors import OnesdaugError
from onesdaug.report.result import read_results
from onesdaug.studies.document import markdown
from tests.report import example

app = typer.Typer()
app.command()(report)


def call(*arguments: object) -> click.testing.Result:
    return CliRunner().invoke(app, [*map(str, arguments)])


def refused(*arguments: object) -> str:
    """The one line that a person sees."""
    result = call(*arguments)
    assert isinstance(result.exception, OnesdaugError), result.output
    return str(result.exception)


def test_a_page_and_a_document(tmp_path: Path) -> None:
    results, page, document = tmp_path / "results", tmp_path / "out" / "report.html", tmp_path / "results.md"
    example.write(results)
    shown = call(results, "-o", page, "--markdown", document)
    assert shown.exit_code == 0, shown.output
    assert shown.output.splitlines() == [str(page), str(document)]
    assert page.read_text(encoding="utf-8").startswith("<!doctype html>")
    assert document.read_text(encoding="utf-8") == markdown(read_results(results))


def test_results_and_report_html_are_the_defaults(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    example.qualitative().save(tmp_path / "results")  # without its pictures: said on the page
    monkeypatch.chdir(tmp_path)
    assert call().output == "report.html\n"
    assert "This picture cannot be shown" in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_what_is_not_there_or_broken_is_named(tmp_path: Path) -> None:
    assert f"there is no folder {tmp_path / 'none'}" in refused(tmp_path / "none")
    (tmp_path / "fewshot.json").write_text("{}", encoding="utf-8")
    assert f"{tmp_path} holds no results of studies" in refused(tmp_path)
    path = example.pope().save(tmp_path)
    path.write_text(path.read_text(encoding="utf-8")[:400], encoding="utf-8")
    assert f"{path} is not a study's result" in refused(tmp_path, "-o", tmp_path / "report.html")
    assert not (tmp_path / "report.html").exists()


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    example.pope().save(tmp_path)
    (tmp_path / "file").touch()
    assert str(tmp_path / "file") in refused(tmp_path, "-o", tmp_path / "file" / "report.html")
    (tmp_path / "folder").mkdir()
    assert f"{tmp_path / 'folder'} cannot be written" in refused(tmp_path, "-o", tmp_path / "folder")
    assert not list(tmp_path.glob("*.tmp")) and not list(tmp_path.glob(".*.tmp"))
