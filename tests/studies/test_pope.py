"""A model of one's own on photographs, with several sources of views: every picture is looked at once."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from onesdaug.errors import ConfigError
from onesdaug.report.claims import came_out, comparisons, tally
from onesdaug.report.result import StudyResult, find_results
from onesdaug.studies.document import markdown
from onesdaug.studies.kinds.pope.parts import worse_plot
from onesdaug.studies.kinds.pope.rows import best_threshold
from onesdaug.studies.kinds.pope.worse import WORSE
from onesdaug.studies.spec import load_study
from tests.studies.colours import pictures, ran
from tests.studies.world import only


def test_all_rows_in_one_result_and_each_picture_looked_at_once(place: Path) -> None:
    result = only(ran(place))
    splits = {"one": 15, "two": 10}  # five photographs that the threshold was not set on
    assert result.details["questions"] == splits
    assert [(a.split, a.row, a.rule, a.k) for a in result.answers] == [
        (split, row, rule, k)
        for split in splits
        for row, rules in (("none", [""]), *((r, ["vote", "margin"]) for r in ("traditional", "shape", "tuned-shape")))
        for rule in rules
        for k in ([1, 2] if rule else [0])
    ]
    for answer in result.answers:
        assert answer.accuracy.n == splits[answer.split]
        assert (answer.gain is None) == (answer.row == "none")
        assert answer.rule != "vote" or answer.k != 1 or "tuned" in answer.row or answer.gain.difference == 0  # type: ignore[union-attr]
    # 9 originals; 2 views of all by the shape tweak, of 5 by the edits, of 4 mirrored or of all where that was chosen;
    # each of two ways of making them worse: 5 originals, 2 views of each by the edits, and by the row that was chosen
    chosen = {c["settings"] for c in result.details["tuned"]}
    margin = next(c for c in result.details["tuned"] if (c["rule"], c["k"]) == ("margin", 2))
    wanted = 9 + 18 + 10 + (18 if "mirrored" in chosen else 8)
    assert pictures(place) == wanted + 2 * (5 + 10 + (0 if margin["share"] is None else 10))
    assert [(w["kind"], w["strength"], w["row"]) for w in result.details["worse"]] == [
        (kind, strength, row)
        for kind, strength in (("", 0.0), ("dark", 0.5), ("jpeg", 10.0))
        for row in ("traditional", "tuned-shape")
    ]
    assert all(s["seconds"] > 0 for s in result.details["seconds"])
    assert result.missing and "no-such" in result.missing[0]  # said, and the rest is run
    assert result.made.data.keys() == {"photographs", "questions, one", "questions, two"}


def test_threshold_and_weights_are_chosen_where_nothing_is_reported(place: Path) -> None:
    """Other labels of the first photographs change the choice; those of the others only what is reported."""

    def shift(first: bool) -> float:
        file = place / "data" / "pope" / "one.json"
        before = file.read_text()
        rows = [json.loads(line) for line in before.splitlines()]
        for row in rows:
            if (int(row["image"][1]) < 4) == first:
                row["label"] = "yes"
        file.write_text("\n".join(map(json.dumps, rows)))
        found = only(ran(place)).details
        file.write_text(before)
        return float(found["shift"])

    plain = only(ran(place)).details["shift"]
    assert shift(first=False) == plain and shift(first=True) != plain


def test_tuned_rows_set_the_threshold_of_mean_margins_anew(place: Path) -> None:
    """Views that lower every margin alike: at the threshold of no views all answers become no."""
    (place / "dim.py").write_text("def dim(batch, k, seeds):\n    return batch[:, None].repeat(1, k, 1, 1, 1) / 4\n")
    plan = place / "pope-colours.toml"
    rows = f'''
[[rows]]
id = "dim"
label = "dim"
views = "{place / "dim.py"}:dim"

[[rows]]
id = "tuned-dim"
label = "dim, tuned"
views = "tuned"
among = ["dim"]

[[claims]]'''
    plan.write_text(plan.read_text().replace("\n[[claims]]", rows, 1))
    ((result, _),) = ran(place).results  # no yes, no F1: as NaN it equals nothing
    found = {(a.row, a.rule): a for a in result.answers if a.split == "one" and a.k in (0, 2)}
    assert found["none", ""].accuracy.mean == found["tuned-dim", "margin"].accuracy.mean == 1
    assert found["dim", "margin"].accuracy.mean < 0.7
    choices = {c["rule"]: c for c in result.details["tuned"] if (c["row"], c["k"]) == ("tuned-dim", 2)}
    assert choices["vote"]["shift"] is None  # a vote is cast by the threshold of no views


def test_the_papers_statements_are_not_judged_on_another_model(place: Path) -> None:
    result = only(ran(place))
    (claim,) = result.claims
    assert claim.verdict == "other model"
    answer = next(a for a in result.answers if (a.split, a.row, a.rule, a.k) == ("one", "shape", "vote", 2))
    assert claim.instances[0].difference == answer.gain
    assert "with other models or data" in came_out(claim) and "agrees" not in came_out(claim)
    assert comparisons(claim).columns == ("compared on", "difference, points")
    assert tally([result]) == "No statement of the paper was tested."
    assert "**other model**: Two views help. Here, with other models or data: " in markdown([result])


def test_what_is_shown(place: Path) -> None:
    result = only(ran(place))
    text = markdown([result])
    assert "set on 4 photographs; every number is of the other 5" in text
    assert "| views | vote, K = 1 | vote, K = 2 | mean margin, K = 1 | mean margin, K = 2 |" in text
    paper = text[text.index("The paper, adversarial split") :]
    assert "| LLaVA | 78.83 | 77.41 |" in paper and "not to be compared" in paper[:500]
    assert text.count("78.83") == 1  # nowhere beside our numbers
    assert "0.5 of the light" in text and "Photographs made worse" in text
    figure = worse_plot(result.details["worse"])
    assert figure.startswith("<svg") and "JPEG quality 10" in figure and "traditional edits" in figure


def test_it_stands_behind_the_papers_own_table(tmp_path: Path) -> None:
    made = {"command": "", "commit": "", "date": "", "machine": {}, "seconds": {}, "seeds": {}, "data": {}}
    for name in ("pope-detector", "grid", "pope", "a-plan"):
        StudyResult(study=name, title="", paper="none", about="", made=made).save(tmp_path)
    found = [result.study for result, _ in find_results([tmp_path])[0]]
    assert found == ["pope", "pope-detector", "grid", "a-plan"]


def test_the_plan_of_the_detector_has_all_rows() -> None:
    study = load_study(str(Path(__file__).parents[2] / "benchmarks" / "plans" / "pope-detector.toml"))
    assert study.counts == (1, 2, 4) and len(study.files) == 3 and study.calibrate == 100
    assert study.generators == ("pocket", "pocket-imagenet", "photo")
    shown = {row.views for row in study.rows if not row.to_choose}
    assert shown == {"traditional", "shape", "generated", "tuned"}
    assert {len(strengths) for strengths in study.worse.kinds.values()} == {3} and set(study.worse.kinds) == set(WORSE)


def test_the_study_in_the_document_is_one(tmp_path: Path) -> None:
    document = (Path(__file__).parents[2] / "docs" / "vlm.md").read_text()
    file = tmp_path / "mine.toml"
    file.write_text(document.split("```toml\n")[1].split("```")[0])
    study = load_study(str(file))
    assert study.kind == "pope" and [row.id for row in study.rows] == ["vlm", "near", "tuned"] and study.worse.k == 4
    file = tmp_path / "wrong.toml"
    for old, new, told in (
        ('among = ["vlm", "near"]', 'among = ["vlm", "far"]', "no row called far"),
        ("blur = ", "fog = ", "no way of making photographs worse is called fog"),
        ('views = "generated" ', 'views = "generted" ', "no view source 'generted'"),
    ):
        file.write_text(document.split("```toml\n")[1].split("```")[0].replace(old, new))
        with pytest.raises(ConfigError, match=told):
            load_study.__wrapped__(str(file))


def test_the_best_threshold_is_found() -> None:
    margins, labels = np.array([-3.0, -1.0, 0.5, 2.0]), np.array([False, False, True, True])
    assert best_threshold(margins, labels) == pytest.approx(-0.25)
    assert best_threshold(margins, ~np.zeros(4, bool)) < -3 and best_threshold(margins, np.zeros(4, bool)) > 2


def test_photographs_are_made_worse_in_the_same_way_every_time() -> None:
    image = Image.fromarray(np.random.default_rng(0).integers(0, 255, (32, 40, 3)).astype(np.uint8))
    for name, strength in (("blur", 2.0), ("noise", 0.1), ("dark", 0.25), ("jpeg", 10.0)):
        one, two = (WORSE[name](image, strength) for _ in range(2))
        assert one.size == image.size and one.mode == "RGB"
        assert np.array_equal(np.asarray(one), np.asarray(two)) and not np.array_equal(np.asarray(one), image)
    assert np.asarray(WORSE["dark"](image, 0.25)).max() <= 64


def test_the_figure_in_the_documents_is_that_of_the_result() -> None:
    from benchmarks.pope_figure import FIGURE, RESULT, drawn

    if not RESULT.is_file():
        pytest.skip("the study of the detector has not been run yet")
    assert FIGURE.read_text(encoding="utf-8") == drawn(), "run python benchmarks/pope_figure.py"
    assert FIGURE.name in (FIGURE.parent / "vlm.md").read_text(encoding="utf-8")
