"""The documents say what the stored runs say, and the stored runs belong to the released weights."""

from __future__ import annotations

import json

import pytest

from benchmarks import pocket_report as report
from onesdaug.augment.config import AugmentConfig, preset


@pytest.fixture(scope="module")
def built() -> tuple[dict, dict[str, str]]:
    return report.build()


def test_documents_hold_the_tables_of_the_stored_runs(built: tuple[dict, dict[str, str]]) -> None:
    result, tables = built
    assert report.with_tables(report.DOCS.read_text(), tables) == report.DOCS.read_text()
    assert "| pocket-imagenet (condition alone), K = 3 |" in tables["test"]  # not the paper's operator
    assert json.loads(report.RESULTS.read_text()) == json.loads(json.dumps(result))


def test_every_row_has_its_episodes_and_paired_differences(built: tuple[dict, dict[str, str]]) -> None:
    rows = built[0]["rows"]
    assert {row["accuracy"]["n"] for row in rows} == {built[0]["episodes"]}
    for row in rows:
        if row["source"] is not None:
            base = next(r for r in rows if r["classifier"] == row["classifier"] and r["source"] is None)
            difference = row["accuracy"]["mean"] - base["accuracy"]["mean"]
            assert row["gain"]["difference"] == pytest.approx(difference, abs=1e-9)


def test_presets_are_the_settings_that_were_tested() -> None:
    plan = json.loads((report.ROOT / "benchmarks" / "plans" / "pocket-test.json").read_text())
    tested = {s["model"]: AugmentConfig(**s["config"], mode=s["mode"]) for s in plan["settings"] if "config" in s}
    assert tested == {name: preset(name) for name in ("pocket", "pocket-imagenet")}
