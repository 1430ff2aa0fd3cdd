"""`onesdaug fewshot evaluate --explain`: sentences after the table, which stays as it was."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from typer.testing import CliRunner

from onesdaug.cli.fewshot import app
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
