"""`onesdaug fewshot evaluate --explain`: sentences after the table, which stays as it was."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from onesdaug.cli.fewshot import app
from onesdaug.cli.report import app as report_app
from onesdaug.errors import ConfigError
from onesdaug.fewshot.bank import FeatureBank
from tests.analysis.test_explain import make_bank

runner = CliRunner()


def evaluate(bank: Path, *arguments: str) -> str:
    common = ["evaluate", str(bank), "--query", "5", "--episodes", "40"]
    result = runner.invoke(app, [*common, *arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_sentences_follow_the_table(tmp_path: Path) -> None:
    path, records = tmp_path / "own.safetensors", [tmp_path / "a.json", tmp_path / "b.json"]
    make_bank("own").save(path)
    table = evaluate(path, "-o", str(records[0]))
    text = evaluate(path, "--explain", "-o", str(records[1]))
    assert text.startswith(table)
    paragraphs = text.removeprefix(table).strip().split("\n\n")
    assert [p.split(" accuracy")[0] for p in paragraphs] == [
        "Views helped: 5-way 1-shot",
        "Views helped: 5-way 5-shot",
    ]
    assert "In short: views helped" in paragraphs[0]
    assert "Nothing" not in table
    a, b = (json.loads(record.read_text())["cells"] for record in records)
    assert a == b
    gain = f"{100 * a[1]['gain']['difference']:+.2f} ± {100 * a[1]['gain']['ci95']:.2f}"
    assert gain in paragraphs[0].splitlines()[0]


def test_the_last_use_of_a_curve(tmp_path: Path) -> None:
    path = tmp_path / "own.safetensors"
    make_bank("own", 3).save(path)
    text = evaluate(path, "--curve", "--shot", "1", "--explain")
    assert text.count("accuracy gap") == 1
    assert "with 3 per support and 3 per query image" in text


def test_nothing_to_explain_is_one_line(tmp_path: Path) -> None:
    bank = make_bank("own")
    none = FeatureBank(bank.features[:, :1], bank.labels, replace(bank.info, views={"source": "none", "k": 0}))
    oracle = FeatureBank(bank.features[:, :1], bank.labels, replace(bank.info, views={"source": "oracle", "k": 1}))
    for name, made, line in (("none", none, "no views were used"), ("oracle", oracle, "oracle views are drawn")):
        path = tmp_path / f"{name}.safetensors"
        made.save(path)
        last = evaluate(path, "--shot", "1", "--explain").strip().splitlines()[-1]
        assert last.startswith("Nothing to explain")
        assert line in last
    path = tmp_path / "own.safetensors"
    bank.save(path)
    assert "Nothing to explain" in evaluate(path, "--support-views", "0", "--query-views", "0", "--explain")


def test_the_baseline_that_was_given_is_explained_against(tmp_path: Path) -> None:
    """Against a bank with the same views there is nothing between them, though both help against no views."""
    path, same = tmp_path / "own.safetensors", tmp_path / "same.safetensors"
    make_bank("own").save(path)
    make_bank("own").save(same)
    alone = evaluate(path, "--shot", "1", "--explain")
    assert "Views helped" in alone and "called before" not in alone
    text = evaluate(path, "--shot", "1", "--explain", "--baseline", str(same))
    assert "Views made no clear difference" in text and "% with same.safetensors (" in text
    assert "Views behind the support brought 0.00" in text.replace("+0.00", "0.00")
    assert "What is called before is same.safetensors" in text
    oracle = replace(make_bank("own").info, views={"source": "oracle", "k": 1})
    FeatureBank(make_bank("own").features[:, :1], make_bank("own").labels, oracle).save(same)
    assert "Nothing to explain" in evaluate(path, "--shot", "1", "--explain", "--baseline", str(same))


def test_outputs_by_their_endings(tmp_path: Path) -> None:
    path = tmp_path / "own.safetensors"
    make_bank("own", 3).save(path)
    for ending in ("json", "csv", "tex"):
        evaluate(path, "--shot", "1", "-o", str(tmp_path / f"a.{ending}"), "--plot", str(tmp_path / "a.svg"))
    (mean,) = {
        f"{100 * cell['accuracy']['mean']:.2f}" for cell in json.loads((tmp_path / "a.json").read_text())["cells"][1:]
    }
    assert mean in (tmp_path / "a.csv").read_text() and (tmp_path / "a.csv").read_text().startswith("source,table,row")
    assert mean in (tmp_path / "a.tex").read_text() and r"\toprule" in (tmp_path / "a.tex").read_text()
    svg = (tmp_path / "a.svg").read_text()
    assert svg.startswith("<svg xmlns") and "var(--" not in svg and "1-shot, 3 support, 3 query views" in svg
    evaluate(path, "--curve", "--plot", str(tmp_path / "curve.svg"))
    curve = (tmp_path / "curve.svg").read_text()
    assert "views per image" in curve and "5-shot, 2 views" in curve and "1-shot, baseline" in curve
    shown = runner.invoke(report_app, [str(tmp_path / "a.json"), "-o", str(tmp_path / "page.html")])
    assert shown.exit_code == 0 and mean in (tmp_path / "page.html").read_text()


@pytest.mark.parametrize("wrong", [["-o", "x.xlsx"], ["-o", "x"], ["--plot", "x.png"]])
def test_other_endings_are_refused_before_anything_is_computed(tmp_path: Path, wrong: list[str]) -> None:
    result = runner.invoke(app, ["evaluate", str(tmp_path / "none"), *wrong])
    assert isinstance(result.exception, ConfigError) and wrong[1] in str(result.exception)
