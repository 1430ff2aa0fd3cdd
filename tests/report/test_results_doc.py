"""docs/results.md is made from results/*.json and never edited."""

from __future__ import annotations

from pathlib import Path

import pytest

from onesdaug.report.markdown import COMMAND, DOCUMENT, FOLDER, markdown
from onesdaug.studies.accuracy import verdict_of
from onesdaug.studies.result import Cell, Instance, StudyResult, read_result, read_results
from onesdaug.studies.spec import Ref, load_study

REPOSITORY = Path(__file__).parents[2]


def test_the_document_is_what_the_results_say() -> None:
    document = REPOSITORY / DOCUMENT
    if not document.is_file():
        pytest.skip(f"there is no {DOCUMENT} yet; `{COMMAND}` writes it")
    results = read_results(REPOSITORY / FOLDER)
    assert document.read_text(encoding="utf-8") == markdown(results), f"run `{COMMAND}`"
    for sheet in (sheet for result in results for sheet in result.sheets):
        assert (REPOSITORY / FOLDER / sheet.file).is_file(), f"{DOCUMENT} shows {sheet.file}, which is not there"


def test_the_seconds_in_the_documents_are_the_stored_ones() -> None:
    import json

    text = (REPOSITORY / "docs" / "studies.md").read_text(encoding="utf-8")
    whole = read_result(REPOSITORY / FOLDER / "theory.json").made
    stored = json.loads((REPOSITORY / "benchmarks" / "results" / "studies-from-banks.json").read_text())
    assert whole.machine["device"] == "NVIDIA H200" and whole.seconds["from the start of the run"] < 600
    assert f"{whole.seconds['from the start of the run']:.0f} s on one H200" in text
    seconds = stored["seconds"]["the command, from start to report"]
    assert f"{seconds:.0f} s from stored banks on two CPU cores" in text and seconds < 60


def test_every_stored_claim_follows_from_the_stored_cells() -> None:
    """Both sides are cells of the same file: their means differ by what the claim says."""
    checked = 0
    for result in read_results(REPOSITORY / FOLDER):
        specs = {spec.says: spec for spec in load_study(result.study).claims} if result.claims else {}
        for claim in result.claims:
            for seen in claim.instances:
                sides = [_cell(result, seen, ref) for ref in (specs[claim.says].better, specs[claim.says].than)]
                better, than = sides
                assert seen.difference.difference == pytest.approx(better.accuracy.mean - than.accuracy.mean, abs=1e-9)
                for mine, other, sign in ((better, than, 1), (than, better, -1)):
                    if other.kind == "baseline" and mine.gain is not None:  # then the whole comparison is stored twice
                        assert seen.difference.difference == pytest.approx(sign * mine.gain.difference, abs=1e-12)
                        stored = seen.difference.ci95, seen.difference.p_value
                        assert stored == pytest.approx((mine.gain.ci95, mine.gain.p_value))
                assert seen.verdict == verdict_of(seen.difference)
                checked += 1
    assert checked > 50


def _cell(result: StudyResult, seen: Instance, ref: Ref) -> Cell:
    found = [
        c
        for c in result.cells
        if f"{c.data}, {c.classifier}, {c.shot}-shot" == seen.where
        and (c.row, c.support, c.query) == (ref.row, ref.support, ref.query)
        and c.generator in ("", seen.generator)
    ]
    assert len(found) == 1
    return found[0]
