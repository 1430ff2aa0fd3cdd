"""A new kind of study is one file: its grammar, its runner, its tables and plots; nothing else is edited."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from onesdaug.cli import app
from onesdaug.common.registry import STUDIES
from onesdaug.errors import ConfigError
from onesdaug.report.result import read_result
from onesdaug.studies.kind import kind_named, shown_by
from onesdaug.studies.spec import load_study

DOCS = (Path(__file__).parents[2] / "docs" / "extend.md").read_text(encoding="utf-8")


def example(name: str) -> str:
    found = re.search(rf"^# {re.escape(name)}$.*?(?=^```$)", DOCS, re.S | re.M)
    assert found is not None
    return found[0]


FILE, STUDY = example("my_kind.py"), example("my_words.toml")


@pytest.fixture
def study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_kind.py").write_text(FILE)
    (tmp_path / "words.toml").write_text(STUDY)
    return tmp_path / "words.toml"


def test_from_one_file_to_a_page(study: Path, tmp_path: Path) -> None:
    shown = CliRunner().invoke(app, ["study", "run", str(study), "-o", str(tmp_path / "out"), "--device", "cpu"])
    assert shown.exit_code == 0, shown.output
    assert "Lengths" in shown.stdout and "shot" in shown.stdout
    result = read_result(tmp_path / "out" / "words.json")
    assert result.kind == "my_kind.py:Words" and result.details == {"one": 3, "shot": 4}
    page = (tmp_path / "out" / "report.html").read_text()
    assert "<h1>How long words are</h1>" in page and "<caption>Lengths</caption>" in page
    made = ["report", str(tmp_path / "out"), "-o", str(tmp_path / "page.html"), "--csv", str(tmp_path / "all.csv")]
    assert CliRunner().invoke(app, made).exit_code == 0
    assert "words.json,Lengths,shot,letters,4,," in (tmp_path / "all.csv").read_text()


def test_a_result_outlives_the_kind_that_made_it(study: Path, tmp_path: Path) -> None:
    CliRunner().invoke(app, ["study", "run", str(study), "-o", str(tmp_path / "out"), "--device", "cpu"])
    result = read_result(tmp_path / "out" / "words.json")
    _, table = shown_by(result)
    gone = result.model_copy(update={"kind": "not_installed:Words", "tables": (table,)})
    assert tuple(shown_by(gone)) == (table,)


def test_what_a_file_may_not_say_is_named(study: Path, tmp_path: Path) -> None:
    (tmp_path / "wrong.toml").write_text(STUDY + 'colour = "red"\n')
    with pytest.raises(ConfigError, match=r"wrong\.toml: colour: Extra inputs"):
        load_study(str(tmp_path / "wrong.toml"))
    (tmp_path / "kind.toml").write_text(STUDY.replace("my_kind.py:Words", "wrods"))
    with pytest.raises(ConfigError, match="no kind of study 'wrods'"):
        load_study(str(tmp_path / "kind.toml"))
    with pytest.raises(ConfigError, match="cannot be loaded"):
        kind_named("my_kind.py:Nothing")
    with pytest.raises(ConfigError, match="no subclass of"):
        kind_named("my_kind.py:WordsStudy")


def test_what_a_command_of_its_own_makes_is_no_file_to_run(tmp_path: Path) -> None:
    (tmp_path / "speed.toml").write_text('kind = "bench"\ntitle = "Speed"\npaper = ""\nabout = ""\n')
    ran = CliRunner().invoke(app, ["study", "run", str(tmp_path / "speed.toml"), "-o", str(tmp_path / "out")])
    assert ran.exit_code == 1 and "only shown" in ran.output


def test_every_kind_of_ours_loads_and_refuses_what_it_does_not_know() -> None:
    assert set(STUDIES) >= {
        "fewshot",
        "theory",
        "efficiency",
        "qualitative",
        "pope",
        "demo",
        "bench",
        "evaluation",
    }
    for name in STUDIES:
        assert kind_named(name).spec.model_config["extra"] == "forbid"
