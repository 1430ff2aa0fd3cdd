"""docs/results.md is made from results/*.json and never edited."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from onesdaug.report.join import LARGEST
from onesdaug.report.records import Cell, Claim, Instance
from onesdaug.report.result import StudyResult, read_results
from onesdaug.studies.document import COMMAND, DOCUMENT, FOLDER, markdown
from onesdaug.studies.kinds.fewshot.claims import Ref, verdict_of
from onesdaug.studies.spec import Study, load_study

REPOSITORY = Path(__file__).parents[2]


def test_the_document_is_what_the_results_say() -> None:
    document = REPOSITORY / DOCUMENT
    if not document.is_file():
        pytest.skip(f"there is no {DOCUMENT} yet; `{COMMAND}` writes it")
    results = read_results(REPOSITORY / FOLDER)
    assert document.read_text(encoding="utf-8") == markdown(results), f"run `{COMMAND}`"
    for sheet in (sheet for result in results for sheet in result.sheets):
        assert (REPOSITORY / FOLDER / sheet.file).is_file(), f"{DOCUMENT} shows {sheet.file}, which is not there"


def test_the_readme_shows_what_the_results_say() -> None:
    from benchmarks.readme_table import README, written

    text = README.read_text(encoding="utf-8")
    assert written(text) == text, "run python benchmarks/readme_table.py"
    assert "5-shot" in text and "CUB" in text and "class-faithful" not in text


def test_the_seconds_in_the_documents_are_the_stored_ones() -> None:
    import json

    text = (REPOSITORY / "docs" / "studies.md").read_text(encoding="utf-8")
    stored = REPOSITORY / "benchmarks" / "results"
    images, banks = (json.loads((stored / f"studies-from-{name}.json").read_text()) for name in ("images", "banks"))
    seconds = images["seconds"]["from the start of the run"]
    assert images["machine"]["device"] == "NVIDIA H200" and seconds < 600
    assert f"{seconds:.0f} s on one H200" in text and images["commit"] in text
    seconds = banks["seconds"]["the command, from start to report"]
    assert f"{seconds:.0f} s from stored banks on two CPU cores" in text and seconds < 60


def test_every_stored_claim_follows_from_the_stored_cells() -> None:
    """All sides are cells of the same file: their means differ by what the claim says."""
    checked = 0
    for result in read_results(REPOSITORY / FOLDER):
        specs = {spec.says: spec for spec in _study(result.study).claims} if result.claims else {}  # type: ignore[attr-defined]
        assert [claim.says for claim in result.claims] == list(specs)
        later = {name.split(",")[0] for run in result.made.also for name in run.generators}
        for claim in result.claims:
            spec = specs[claim.says]
            kinds = {seen.verdict for seen in claim.instances}
            if claim.verdict == "other model":
                _check_other_model(result, claim, spec)
                continue
            assert claim.verdict == ("not tested here" if not kinds else kinds.pop() if len(kinds) == 1 else "mixed")
            assert claim.margin == spec.margin
            for seen in claim.instances:
                (ref,) = [ref for ref in spec.better if seen.row in ("", ref.row)]
                better, than = _cell(result, seen, ref), _cell(result, seen, spec.than)
                # rows without a generator are those of the first run: a joined one's own are the same up to rounding
                other_run = seen.generator in later and not (better.generator and than.generator)
                apart = pytest.approx(better.accuracy.mean - than.accuracy.mean, abs=LARGEST if other_run else 1e-9)
                assert seen.difference.difference == apart
                for mine, other, sign in ((better, than, 1), (than, better, -1)):
                    if other.kind == "baseline" and mine.gain is not None:  # then the whole comparison is stored twice
                        assert seen.difference.difference == pytest.approx(sign * mine.gain.difference, abs=1e-12)
                        stored = seen.difference.ci95, seen.difference.p_value
                        assert stored == pytest.approx((mine.gain.ci95, mine.gain.p_value))
                assert seen.verdict == verdict_of(seen.difference, spec.margin)
                assert not spec.classifiers or _classifier(seen.where) in spec.classifiers
                checked += 1
    assert checked


def test_what_the_results_say_of_classifiers_is_what_the_cards_say() -> None:
    """A sentence about training or scoring cannot drift from the checkpoint that was used."""
    import json

    from onesdaug.fewshot.heads import load_head
    from onesdaug.studies.provenance import describe

    checked = 0
    for result in read_results(REPOSITORY / FOLDER):
        for classifier in _study(result.study).classifiers if result.made.classifiers else ():
            for data, spec in classifier.encoder.items():
                told = result.made.classifiers.get(f"{classifier.name}, {data}")
                folder = REPOSITORY / "artifacts" / "fewshot" / spec
                if told is None or classifier.head is not None or not folder.is_dir():
                    continue
                settings = {"metric": classifier.metric[data]} if data in classifier.metric else {}
                head, card = load_head(folder, **settings), json.loads((folder / "card.json").read_text())
                assert head is not None and told == describe(classifier, data, head, card)
                checked += 1
    assert checked > 5


def test_nothing_drawn_from_the_condition_alone_is_called_the_papers_operator() -> None:
    found = {
        cell.label
        for result in read_results(REPOSITORY / FOLDER)
        for cell in result.cells
        if cell.noise_level == 1.0 and cell.row == "generated"
    }
    assert found == {"condition alone"}


def _classifier(where: str) -> str:
    """Of "data, classifier, shots"; its name may hold a comma."""
    return where.partition(", ")[2].rpartition(", ")[0]


def _check_other_model(result: StudyResult, claim: Claim, spec: Any) -> None:
    """Told of models that are not the paper's, and of those alone; of POPE's answers each has its gain."""
    assert claim.instances
    for seen in claim.instances:
        if result.kind == "pope":
            places = {(a.row, a.k, a.split, a.rule, a.generator): a.gain for a in result.answers}
            assert seen.difference == places[spec.row, spec.k, spec.split, "vote", seen.generator]
        else:
            assert _classifier(seen.where) not in spec.classifiers


def _study(name: str) -> Study:
    plan = REPOSITORY / "benchmarks" / "plans" / f"{name}.toml"
    return load_study(str(plan) if plan.is_file() else name)


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
