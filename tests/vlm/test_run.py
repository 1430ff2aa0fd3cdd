"""The run and its file: resumed exactly, never mixed, an error is never an answer."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from onesdaug.augment.config import preset
from onesdaug.augment.seeds import image_digest
from onesdaug.common.files import locked
from onesdaug.common.progress import Progress
from onesdaug.errors import ConfigError, DataError, OnesdaugError
from onesdaug.vlm.metrics import Resamples, measure
from onesdaug.vlm.model import Replies, Reply
from onesdaug.vlm.questions import Question, read_questions
from onesdaug.vlm.run import GIVE_UP, Headline, Job, answer, results
from onesdaug.vlm.score import grid, load_summary, parsed
from onesdaug.vlm.transcript import NAME, Record, Transcript
from tests.conftest import Told
from tests.vlm.tiny import save_questions


class Killed(BaseException):
    """Like kill -9: nothing catches it."""


class Fake:
    """Answers by what the pixels hash to; `fails` maps question keys to what happens instead."""

    modes = ("plain/greedy", "plain/sample", "repeat/sample")

    def __init__(self, fails: dict[str, BaseException | str] | None = None) -> None:
        self.fails, self.asked = fails or {}, []

    def ask(self, images: Sequence[Image.Image], question: str, key: str) -> Replies:
        self.asked.append(key)
        trouble = self.fails.get(key)
        if isinstance(trouble, BaseException):
            raise trouble
        values = [int(image_digest(image)[:4], 16) / 0x8000 - 1 for image in images]
        rows = [Reply("Yes" if v > 0 else "No", v) for v in values]
        if trouble is not None:
            rows[-1] = Reply(error=trouble)
        return {mode: list(rows) for mode in self.modes}


@pytest.fixture
def notes(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What stands beside the number of questions each time that it changes."""
    seen: list[str] = []
    advance = Progress.advance

    def heard(self: Progress, count: int = 1, skipped: int = 0) -> None:
        advance(self, count, skipped)
        if self.what == "questions":
            seen.append(self.note)

    monkeypatch.setattr(Progress, "advance", heard)
    return seen


def job_of(folder: Path, out: str = "out", k: int = 2, model: Fake | None = None, **more: Any) -> Job:
    pictures, file = save_questions(folder)
    chosen = model or Fake()
    return Job(
        questions=read_questions(file, more.pop("limit", None)),
        images=pictures,
        out=folder / out,
        about={"name": "fake", "kind": "local", "seed": 1, **more.pop("about", {})},
        load_model=lambda: chosen,
        k=k,
        generator="shape",
        config=more.pop("config", preset("vlm")) if k else None,
        device="cpu",
        **more,
    )


def rows_of(out: Path) -> list[dict[str, Any]]:
    """The file's answers without what they cost."""
    lines = [json.loads(line) for line in (out / NAME).read_text().splitlines()]
    return [{k: v for k, v in line.items() if "seconds" not in k} for line in lines]


def test_every_question_is_asked_about_the_image_and_its_views(tmp_path: Path, notes: list[str], told: Told) -> None:
    job = job_of(tmp_path)
    records = answer(job)
    assert [r.question for r in records] == list(job.questions.items)
    for record in records:
        assert all(len(rows) == 3 for rows in record.replies.values())
        assert len(record.view_seconds) == 2
        texts = [[r.text for r in rows] for rows in record.replies.values()]
        assert texts[0] == texts[1]
    assert len(list((tmp_path / "out" / "views").glob("*_view?.png"))) == 8  # once per image, not per question
    one, other = records[0].replies["plain/greedy"], records[3].replies["plain/greedy"]
    assert [r.margin for r in one] != [r.margin for r in other]
    right = [bool(Headline().right(record)) for record in records]
    for done in range(1, 13):
        assert notes[done] == f"{100 * sum(right[:done]) / done:.2f} % right (greedy)"
    assert [(done, total) for what, done, total in told if what == "questions"] == [(n, 12) for n in range(13)]


@pytest.mark.parametrize("at", [1, 5, 12])
@pytest.mark.parametrize("torn", [b"", b'{"question_id": 3, "im'])
def test_killed_and_run_again_is_the_same_file(tmp_path: Path, at: int, torn: bytes) -> None:
    answer(job_of(tmp_path, "whole"))
    with pytest.raises(Killed):
        answer(job_of(tmp_path, "cut", model=Fake({str(at): Killed()})))
    with (tmp_path / "cut" / NAME).open("ab") as file:
        file.write(torn)
    rest = Fake()
    answer(job_of(tmp_path, "cut", model=rest))
    assert rest.asked == [str(n) for n in range(at, 13)]
    assert rows_of(tmp_path / "cut") == rows_of(tmp_path / "whole")
    idle = Fake({"1": Killed()})
    answer(job_of(tmp_path, "cut", model=idle))  # finished: neither views nor model are needed
    assert idle.asked == []


def test_a_longer_limit_goes_on(tmp_path: Path) -> None:
    answer(job_of(tmp_path, limit=5))
    more = Fake()
    assert len(answer(job_of(tmp_path, model=more))) == 12
    assert more.asked == [str(n) for n in range(6, 13)]
    assert len(answer(job_of(tmp_path, limit=5))) == 5


def test_other_settings_are_refused_by_name(tmp_path: Path) -> None:
    answer(job_of(tmp_path))
    before = (tmp_path / "out" / NAME).read_bytes()
    for changed, names in (
        ({"about": {"seed": 2}}, "model.seed 1 → 2"),
        ({"about": {"vcd": None}}, "model.vcd null → null"),
        ({"k": 1}, "k 2 → 1"),
        ({"seed": 5}, "views.seed 1234 → 5"),
        ({"config": preset("vlm", shape=None)}, "views.config.shape"),
    ):
        with pytest.raises(ConfigError, match=names.replace(".", r"\.")):
            answer(job_of(tmp_path, **changed))
    with (tmp_path / "questions.json").open("a") as file:
        file.write(json.dumps({"question_id": 99, "image": "p0.png", "text": "?", "label": "no"}) + "\n")
    job = job_of(tmp_path)
    (tmp_path / "questions.json").write_text((tmp_path / "questions.json").read_text().replace("cat", "bird"))
    with pytest.raises(ConfigError, match="questions"):
        answer(replace(job, questions=read_questions(tmp_path / "questions.json")))
    assert (tmp_path / "out" / NAME).read_bytes() == before


def test_an_error_is_recorded_not_counted_and_asked_again(tmp_path: Path, notes: list[str]) -> None:
    fails = {"2": "HTTP 500", "4": RuntimeError("CUDA error\nbadly")}
    records = answer(job_of(tmp_path, model=Fake(fails)))
    assert [r.question.id for r in records if r.failed] == [2, 4]
    assert records[3].replies["plain/greedy"][0].error == "RuntimeError: CUDA error badly"
    rows = {(r.method, r.decoding, r.k): r.metrics for r in grid(records) if r.parser == "exact"}
    assert (rows["plain", "greedy", 0].n, rows["plain", "greedy", 0].errors) == (11, 1)  # 2's original did answer
    assert (rows["plain", "greedy", 2].n, rows["plain", "greedy", 2].errors) == (10, 2)
    right = [outcome for outcome in map(Headline().right, records) if outcome is not None]
    assert (len(right), notes[-1]) == (10, f"{10 * sum(right):.2f} % right (greedy), 2 errors")
    again = Fake()
    records = answer(job_of(tmp_path, model=again))
    assert again.asked == ["2", "4"]
    assert not any(r.failed for r in records)


def test_a_dead_model_is_not_asked_three_thousand_times(tmp_path: Path) -> None:
    fails = {str(n): RuntimeError("no") for n in range(2, 99)}
    model = Fake(fails)
    with pytest.raises(OnesdaugError, match=f"{GIVE_UP} questions in a row got no answer"):
        answer(job_of(tmp_path, model=model))
    assert len(model.asked) == 1 + GIVE_UP


def test_a_refused_key_stops_the_run_and_keeps_the_rest(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="refuses the key"):
        answer(job_of(tmp_path, model=Fake({"3": ConfigError("refuses the key")})))
    assert len(Transcript(tmp_path / "out").records) == 2


def test_an_image_that_cannot_be_read_costs_only_its_questions(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    job = job_of(tmp_path)
    (tmp_path / "pictures" / "p1.png").write_bytes(b"no image at all")
    model = Fake()
    caplog.set_level("INFO", "onesdaug")
    records = answer(replace(job, load_model=lambda: model))
    assert [r.question.image for r in records if r.failed] == ["p1.png"] * 3
    assert len(model.asked) == 9
    assert "text file" in str(records[3].replies["plain/greedy"][0].error)
    assert any("no views" in line and "p1.png" in line for line in caplog.messages)


def test_without_views_of_an_image_its_original_is_still_asked(tmp_path: Path) -> None:
    job = job_of(tmp_path)
    store = tmp_path / "out" / "views"
    store.mkdir(parents=True)
    (store / "p2_view1.png").write_bytes(b"somebody else's")
    records = answer(job)
    assert (store / "p2_view1.png").read_bytes() == b"somebody else's"
    for record in records:
        errors = [reply.error is not None for reply in record.replies["plain/greedy"]]
        assert errors == ([False, True, True] if record.question.image == "p2.png" else [False] * 3)


def test_views_may_be_shared_by_runs(tmp_path: Path) -> None:
    store = tmp_path / "store"
    answer(job_of(tmp_path, "a", store=store))
    stamps = {file: file.stat().st_mtime_ns for file in store.glob("*.png")}
    answer(job_of(tmp_path, "b", store=store))
    assert {file: file.stat().st_mtime_ns for file in store.glob("*.png")} == stamps
    assert rows_of(tmp_path / "a") == rows_of(tmp_path / "b")
    with pytest.raises(ConfigError, match="cannot share the folder"):
        answer(job_of(tmp_path, "c", store=tmp_path / "c"))


def test_damage_inside_the_file_costs_those_lines(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    answer(job_of(tmp_path))
    file = tmp_path / "out" / NAME
    lines = file.read_bytes().splitlines(keepends=True)
    lines[4] = b"\x00\x00garbage\n"
    file.write_bytes(b"".join(lines))
    model = Fake()
    caplog.set_level("INFO", "onesdaug")
    assert len(answer(job_of(tmp_path, model=model))) == 12
    assert model.asked == ["4"]
    assert any("1 damaged lines" in line for line in caplog.messages)
    file.write_text("hello\n")
    with pytest.raises(DataError, match="was not written by this version"):
        answer(job_of(tmp_path))


def test_a_full_disk_says_so_and_keeps_what_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, count = os.fsync, 0

    def full(handle: int) -> None:
        nonlocal count
        count += 1
        if count == 4:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(handle)

    job = job_of(tmp_path, k=0)
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(OnesdaugError, match=r"No space left.*finished answers are kept"):
            answer(job)
    assert len(answer(job_of(tmp_path, k=0))) == 12


def test_two_runs_do_not_share_a_folder(tmp_path: Path) -> None:
    job = job_of(tmp_path, k=0)
    with locked(job.out), pytest.raises(ConfigError, match="another onesdaug job"):
        answer(job)


def test_the_grid_of_results(tmp_path: Path) -> None:
    job = job_of(tmp_path, k=3)
    records = answer(job)
    summary = results(job, records, commit="abc", machine={"device": "cpu"}, started=0.0)
    votes = {(r.parser, r.method, r.decoding, r.k) for r in summary.rows if r.combine == "vote"}
    assert votes == {
        (parser, method, decoding, k)
        for parser in ("official", "vcd", "exact")
        for method, decoding, first in (("plain", "greedy", 0), ("plain", "sample", 0), ("repeat", "sample", 1))
        for k in range(first, 4)
    }
    margin = [(r.method, r.decoding, r.parser, r.k) for r in summary.rows if r.combine == "margin"]
    assert margin == [("plain", "logits", None, k) for k in range(4)]
    for row in summary.rows:
        assert (row.gain is None) == (row.method == "plain" and row.k == 0)
        assert (row.gain_over_repeat is not None) == (row.method == "plain" and row.decoding == "sample" and row.k > 0)
    (row,) = summary.pick(method="plain", decoding="greedy", parser="exact", k=0, combine="vote")
    labels = parsed(records, "plain/greedy", "exact")[:, 0], [r.question.label == "yes" for r in records]
    resamples = Resamples([r.question.image for r in records], seed=1234)
    assert row.metrics == measure(labels[0], np.array(labels[1]), resamples)
    loaded = load_summary(tmp_path / "out")
    assert loaded == summary
    assert loaded.questions["fingerprint"] == job.questions.fingerprint
    assert loaded.settings["views"]["weights"] == "shape"
    assert loaded.cost["view_seconds_per_image"]["mean"] > 0
    names = sorted(file.name for file in (tmp_path / "out").glob("*.txt"))
    assert names == [f"aug_views_{k}_split_questions_shapetweak_{k > 0}_num12.txt" for k in range(4)]
    text = (tmp_path / "out" / names[3]).read_text()
    assert "[plain, greedy decoding]" in text and "[repeat, sample decoding]" in text
    assert "against asking the original again" in text
    with pytest.raises(DataError, match="is not a summary"):
        load_summary(tmp_path / "questions.json")


def test_no_margins_no_margin_rows() -> None:
    record = Record(Question(1, "a.jpg", "Is there?", "yes"), {"plain/greedy": [Reply("Yes"), Reply("No")]})
    assert {row.combine for row in grid([record])} == {"vote"}
    assert grid([]) == []
