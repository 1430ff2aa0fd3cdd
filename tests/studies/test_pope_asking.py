"""How the model of a study is asked about photographs: many at once, never twice, and going on after a kill."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from onesdaug.common import registry
from onesdaug.studies.spec import load_study
from tests.studies.colours import MODEL, calls, pictures, ran
from tests.studies.world import only


def batched(place: Path, size: int) -> None:
    plan = place / "pope-colours.toml"
    lines = [line for line in plan.read_text().splitlines() if not line.startswith("batch_size")]
    plan.write_text("\n".join([f"batch_size = {size}", *lines]))
    load_study.cache_clear()  # it reads a file once


def test_what_was_said_is_kept_and_a_killed_run_goes_on(place: Path) -> None:
    (place / "model.stop").touch()
    with pytest.raises(KeyboardInterrupt):
        ran(place)
    (place / "model.stop").unlink()
    killed = pictures(place)
    resumed = only(ran(place))
    seen = pictures(place)
    again = only(ran(place))
    assert pictures(place) == seen and killed < seen
    whole = only(ran(place, work=place / "other"))
    for other in (again, whole):
        assert other.answers == resumed.answers and other.claims == resumed.claims
        timeless = [{k: v for k, v in r.details.items() if k != "seconds"} for r in (other, resumed)]
        assert timeless[0] == timeless[1]
    assert again.details == resumed.details  # times too: they were kept
    (place / "model.py").write_text(MODEL.replace("f00d", "beef"))
    registry._file.cache_clear()
    only(ran(place))
    assert pictures(place) > seen + killed  # another model: asked again


def test_a_model_that_takes_many_pictures_is_asked_about_many_photographs_at_once(place: Path) -> None:
    one_by_one, single = only(ran(place)), calls(place)
    assert max(single) == 2  # the views of one photograph
    for size in (1000, 7):
        (place / "model.seen").unlink()
        batched(place, size)
        many = only(ran(place, work=place / f"work-{size}"))
        assert sum(calls(place)) == sum(single)  # the same pictures with the same questions
        assert many.answers == one_by_one.answers and many.details["worse"] == one_by_one.details["worse"]
        assert max(calls(place)) <= size
        if size == 1000:  # a call for each time that something is asked: all 4 or 5 photographs, 3 questions, views
            files = len(list((place / "work-1000" / "pope").iterdir()))
            assert files <= len(calls(place)) <= 2 * files and max(calls(place)) == 5 * 3 * 2


def test_a_run_that_goes_on_from_a_part_leaves_the_same_files(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onesdaug.studies.kinds.pope.margins.CHUNK", 2)
    batched(place, 1000)
    whole = only(ran(place))

    def said() -> dict[str, list[object]]:
        """Without the times."""
        files = sorted((place / "work" / "pope").iterdir())
        rows = {file.name: [json.loads(line) for line in file.read_text().splitlines()] for file in files}
        return {name: [(row["image"], row["file"], row["margins"]) for row in lines] for name, lines in rows.items()}

    before, all_calls = said(), len(calls(place))
    for number, file in enumerate(sorted((place / "work" / "pope").iterdir())):
        lines = file.read_bytes().splitlines(keepends=True)
        kept = 2 * (number % 3)  # none, one or two of the chunks, and the beginning of the next
        file.write_bytes(b"".join(lines[:kept]) + b"".join(lines[kept : kept + 1])[:40])
    again = only(ran(place))
    assert said() == before and again.answers == whole.answers
    assert len(calls(place)) - all_calls < all_calls  # what was kept was not asked again


def test_a_model_may_say_that_its_file_has_changed_but_not_its_answers(place: Path) -> None:
    seen = []
    for number in (1, 2):
        (place / "model.py").write_text(MODEL + f'ask.code = "first"  # {number}\n')
        registry._file.cache_clear()
        only(ran(place))
        seen.append(calls(place))
    assert seen[0] == seen[1]
