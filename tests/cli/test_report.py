"""`onesdaug report`: what it writes, and what it says where it cannot."""

from __future__ import annotations

import json
import os
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


@pytest.mark.parametrize("damage", ["cut early", "not text", "pipe", "another version", "nested"])
def test_one_that_cannot_be_read_is_named_and_the_rest_written(tmp_path: Path, damage: str) -> None:
    example.pope().save(tmp_path)
    broken, page = tmp_path / "broken.json", tmp_path / "report.html"
    texts = {"cut early": b'{"st', "not text": b'\xff\xfe{"study": 1}', "another version": b'{"study": "grid"}',
             "nested": b'{"study": ' + b"[" * 50_000}  # fmt: skip
    if damage == "pipe":
        os.mkfifo(broken)
    else:
        broken.write_bytes(texts[damage])
    shown = call(tmp_path, "-o", page)
    assert shown.exit_code == 2 and str(broken) in shown.stderr and "POPE" in page.read_text(encoding="utf-8")


def test_files_by_name_from_several_folders(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    example.write(first)
    example.pope().save(second)
    files = [first / example.qualitative().file, second / example.pope().file]
    shown = call(*files, "-o", tmp_path / "report.html")
    assert shown.exit_code == 0, shown.output
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "cannot be shown" not in text and "POPE" in text
    (second / "other.json").write_text("{}")
    assert "is not a study's result" in refused(second / "other.json", "-o", tmp_path / "x.html")


def test_markdown_holds_no_tags_of_others(tmp_path: Path) -> None:
    evil = "` <script>alert(1)</script> <img src=x onerror=y> `"
    path = example.pope().save(tmp_path)
    found = json.loads(path.read_text(encoding="utf-8"))
    found |= {"tag": evil, "title": evil, "about": evil, "notes": [evil], "paper": evil}
    found["made"] |= {"command": evil, "machine": {evil: evil}, "data": {evil: evil}}
    path.write_text(json.dumps(found), encoding="utf-8")
    document = tmp_path / "results.md"
    assert call(tmp_path, "-o", tmp_path / "report.html", "--markdown", document).exit_code == 0
    written = document.read_text(encoding="utf-8")
    assert "<script" not in written and "<img" not in written and "script>" in written
