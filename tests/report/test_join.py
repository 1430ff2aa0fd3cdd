"""Two runs of one study as one result."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from onesdaug.cli import app
from onesdaug.errors import DataError
from onesdaug.report.facts import drawn_by, in_full, in_one_line
from onesdaug.report.join import joined
from onesdaug.report.records import Cell, Claim, Instance, Sheet, overall
from onesdaug.report.result import Made, StudyResult, read_result
from onesdaug.statistics import Summary, paired

RESULTS = Path(__file__).parents[2] / "results"
DATA = {"miniimagenet": "abc · 12,000 images"}


def cell(row: str, generator: str, mean: float, k: int = 3, episodes: int = 100) -> Cell:
    kind: Any = "generative" if generator else "baseline"
    return Cell(
        data="miniimagenet", classifier="ProtoNet", shot=1, row=row, label=row, kind=kind, generator=generator,
        support=k, query=k, accuracy=Summary(mean, 0.001, episodes),
    )  # fmt: skip


def claim(verdict: Any, **by_generator: str) -> Claim:
    found = [
        Instance(where="here", generator=name, difference=paired(np.ones(9), np.full(9, 0.5)), verdict=came)  # type: ignore[arg-type]
        for name, came in by_generator.items()
    ]
    return Claim(says="views help", verdict=verdict, instances=tuple(found))


def run(commit: str, generators: tuple[str, ...], *cells: Cell, **more: Any) -> StudyResult:
    made = Made(
        command=f"onesdaug study run main --model {generators[0]}", commit=commit, date="2026-11-16",
        machine={"device": "one GPU"}, seconds={}, seeds={}, data=DATA,
        generators={name: f"weights of {name}" for name in generators},
    )  # fmt: skip
    return StudyResult(study="main", title="t", paper="Table 1", about="", made=made, cells=cells, **more)


@pytest.fixture
def first() -> StudyResult:
    return run(
        "aaa", ("pocket", "pocket, cub", "old"), cell("none", "", 0.5, 0), cell("crop-flip", "", 0.51),
        cell("generated", "pocket", 0.52), cell("generated", "old", 0.53), cell("tuned", "pocket", 0.54),
        claims=(claim("agrees", pocket="agrees", old="agrees"),),
        details={"tuned": [{"generator": "pocket", "weight": 0.5}, {"generator": "old", "weight": 0.6}], "one": 1},
        missing=("sd15: no weights", "photo: not installed"),
    )  # fmt: skip


@pytest.fixture
def later() -> StudyResult:
    return run(
        "bbb", ("photo", "old"), cell("none", "", 0.5001, 0), cell("generated", "photo", 0.6),
        cell("generated", "old", 0.61), cell("tuned", "photo", 0.62), cell("extra", "", 0.5),
        claims=(claim("mixed", photo="differs", old="agrees"),),
        details={"tuned": [{"generator": "photo", "weight": 0.4}], "one": 2},
    )  # fmt: skip


def test_new_generators_stand_beside_the_others_and_replace_their_own(first: StudyResult, later: StudyResult) -> None:
    found = joined(first, later)
    rows = [(one.row, one.generator, one.accuracy.mean) for one in found.cells]
    assert rows == [
        ("none", "", 0.5), ("crop-flip", "", 0.51), ("generated", "pocket", 0.52), ("generated", "old", 0.61),
        ("generated", "photo", 0.6), ("tuned", "pocket", 0.54), ("tuned", "photo", 0.62), ("extra", "", 0.5),
    ]  # fmt: skip
    assert [(i.generator, i.verdict) for i in found.claims[0].instances] == [
        ("pocket", "agrees"), ("photo", "differs"), ("old", "agrees"),
    ]  # fmt: skip
    assert found.claims[0].verdict == "mixed"
    assert found.details == {"tuned": [{"generator": "pocket", "weight": 0.5}, {"generator": "photo", "weight": 0.4}],
                             "one": 1}  # fmt: skip
    assert found.missing == ("sd15: no weights",)


def test_every_number_keeps_its_origin(first: StudyResult, later: StudyResult) -> None:
    found = joined(first, later)
    assert list(found.made.generators) == ["pocket", "pocket, cub"]
    assert [(one.commit, list(one.generators)) for one in found.made.also] == [("bbb", ["photo", "old"])]
    again = joined(found, run("ccc", ("old",), cell("generated", "old", 0.7)))
    assert [(one.commit, list(one.generators)) for one in again.made.also] == [("bbb", ["photo"]), ("ccc", ["old"])]
    told = dict(in_full(found))
    assert told["commit"] == "aaa" and told["commit, for photo, old"] == "bbb"
    assert drawn_by(found.made) == "pocket"  # with settings of its own for birds, but once
    assert told["generator: photo"] == "weights of photo" and "photo, old: commit bbb" in in_one_line(found)


def test_a_statement_that_was_judged_once_is_judged_by_that(first: StudyResult, later: StudyResult) -> None:
    only = later.model_copy(update={"claims": (claim("other model", photo="differs"),)})
    found = joined(first, only).claims[0]
    assert found.verdict == "agrees" and [one.generator for one in found.instances] == ["pocket"]
    none = first.model_copy(update={"claims": (claim("not tested here"),)})
    assert joined(none, only).claims[0].verdict == "other model"


def test_a_comparison_without_a_generator_comes_along_where_it_is_missing(
    first: StudyResult, later: StudyResult
) -> None:
    plain = claim("other model", **{"": "differs"})
    only = later.model_copy(update={"claims": (plain,)})
    none = first.model_copy(update={"claims": (claim("not tested here"),)})
    assert [one.generator for one in joined(none, only).claims[0].instances] == [""]
    both = first.model_copy(update={"claims": (plain,)})
    assert len(joined(both, only).claims[0].instances) == 1


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"study": "grid"}, "are of two studies"),
        ({"cells": (cell("none", "", 0.5, 0),)}, "holds no generator's numbers"),
        (
            {"cells": (cell("none", "", 0.5, 0, 40), cell("generated", "photo", 0.6))},
            "over 100 .* over 40 episodes",
        ),
        (
            {"cells": (cell("none", "", 0.52, 0), cell("generated", "photo", 0.6))},
            "50.00 ± 0.10 over 100 episodes in the first run, 52.00",
        ),
    ],
)
def test_what_does_not_belong_together_is_refused(
    first: StudyResult, later: StudyResult, change: dict[str, Any], reason: str
) -> None:
    with pytest.raises(DataError, match=reason):
        joined(first, later.model_copy(update=change))


def test_other_data_is_refused(first: StudyResult, later: StudyResult) -> None:
    other = later.model_copy(update={"made": later.made.model_copy(update={"data": {"miniimagenet": "xyz"}})})
    with pytest.raises(DataError, match="miniimagenet differs: abc"):
        joined(first, other)


def test_from_the_command_line(first: StudyResult, later: StudyResult, tmp_path: Path) -> None:
    first, later = (one.model_copy(update={"details": {}}) for one in (first, later))
    files = [str(one.save(tmp_path / name)) for one, name in ((first, "a"), (later, "b"))]
    done = CliRunner().invoke(app, ["study", "join", *files, "-o", str(tmp_path / "c")])
    assert done.exit_code == 0, done.output
    assert read_result(tmp_path / "c" / "main.json") == joined(first, later)


def test_pictures_come_with_their_generator(first: StudyResult, later: StudyResult, tmp_path: Path) -> None:
    files = []
    for name, run, generators in (("a", first, ("old", "other")), ("b", later, ("old", "new"))):
        sheets = tuple(Sheet(title=g, caption=name, file=f"{g}.webp", generator=g) for g in generators)
        of_sheets = run.model_copy(update={"cells": (), "claims": (), "details": {}, "sheets": sheets})
        files.append(str(of_sheets.save(tmp_path / name)))
        for sheet in sheets:
            (tmp_path / name / sheet.file).write_text(f"{name} {sheet.file}")
    done = CliRunner().invoke(app, ["study", "join", *files, "-o", str(tmp_path / "a")])
    assert done.exit_code == 0, done.output
    shown = {sheet.file: sheet.caption for sheet in read_result(tmp_path / "a" / "main.json").sheets}
    assert shown == {"other.webp": "a", "old.webp": "b", "new.webp": "b"}
    assert all((tmp_path / "a" / file).read_text() == f"{run} {file}" for file, run in shown.items())


def of(result: StudyResult, *generators: str) -> StudyResult:
    """As if these generators alone had been run."""
    claims = [
        one.model_copy(update={"instances": tuple(i for i in one.instances if i.generator in ("", *generators))})
        for one in result.claims
    ]
    mine = {name: told for name, told in told_of(result).items() if name.split(",")[0] in generators}
    return result.model_copy(
        update={
            "cells": tuple(one for one in result.cells if one.generator in ("", *generators)),
            "claims": tuple(one.model_copy(update={"verdict": overall(one.instances)}) for one in claims),
            "details": {"tuned": [one for one in result.details["tuned"] if one["generator"] in generators]},
            "made": result.made.model_copy(update={"generators": mine, "also": ()}),
        }
    )


def told_of(result: StudyResult) -> dict[str, str]:
    """What is said of the generators of all runs."""
    return {name: told for run in (result.made, *result.made.also) for name, told in run.generators.items()}


@pytest.mark.parametrize("name", ["tuned", "main"])
def test_a_stored_study_taken_apart_is_whole_again(name: str) -> None:
    whole = read_result(RESULTS / f"{name}.json")
    found = joined(of(whole, "pocket"), of(whole, "pocket-imagenet", "photo-128"))
    assert found.cells == whole.cells and found.missing == whole.missing
    assert told_of(found) == told_of(whole) and len(found.made.also) == 1
    for mine, theirs in zip(found.claims, whole.claims, strict=True):
        assert sorted(map(repr, mine.instances)) == sorted(map(repr, theirs.instances))
        assert mine.verdict == theirs.verdict or theirs.verdict in ("other model", "not tested here")
    by = [sorted(map(repr, one.details["tuned"])) for one in (found, whole)]
    assert by[0] == by[1]
