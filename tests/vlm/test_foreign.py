"""What lies in OUT and is not this run's: left alone, or passed over, before anything is asked."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from onesdaug.common.files import LOCK
from onesdaug.errors import ConfigError, DataError
from onesdaug.vlm.run import answer
from onesdaug.vlm.transcript import NAME
from tests.vlm.test_run import Fake, job_of


@pytest.mark.parametrize("text", ["my notes", '{"mine": 1', "  ", '{"schema": 2, "settings": {', "{}", "[]\n"])
def test_a_foreign_file_of_answers_is_left_alone(tmp_path: Path, text: str) -> None:
    out, model = tmp_path / "out", Fake()
    out.mkdir()
    (out / NAME).write_text(text)
    with pytest.raises(DataError, match=r"answers\.jsonl was not written by this version"):
        answer(job_of(tmp_path, model=model))
    assert (out / NAME).read_text() == text and not model.asked
    (out / NAME).write_text('{"schema": 1, "settings": {"que')  # our own first line, torn by a kill
    assert len(answer(job_of(tmp_path))) == 12


@pytest.mark.parametrize("name", ["summary.json", "pope-run.json", "aug_views_0_split_questions_mine.txt"])
def test_foreign_results_are_not_replaced(tmp_path: Path, name: str) -> None:
    out, model = tmp_path / "out", Fake()
    out.mkdir()
    for text in ("", '{"rows": 3}', "mine"):
        (out / name).write_text(text)
        with pytest.raises(ConfigError, match=f"{name} is not a file of `onesdaug pope`"):
            answer(job_of(tmp_path, model=model))
        assert (out / name).read_text() == text and not model.asked


@pytest.mark.parametrize("name", [NAME, "summary.json", "pope-run.json", "aug_views_0_x.txt", LOCK])
def test_a_pipe_in_the_place_of_a_file_does_not_hang(tmp_path: Path, name: str) -> None:
    (tmp_path / "out").mkdir()
    os.mkfifo(tmp_path / "out" / name)
    with pytest.raises(DataError, match=f"{name} cannot be read or written: it is a"):
        answer(job_of(tmp_path))


def test_edited_answers_are_damage(tmp_path: Path) -> None:
    answer(job_of(tmp_path, k=0))
    file = tmp_path / "out" / NAME
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    lines[1]["replies"]["plain/greedy"][0]["text"] = 5
    lines[2]["replies"] = {"nonsense": []}
    lines[3]["label"] = "maybe"
    lines[4]["view_seconds"] = "long"
    lines[5]["replies"] = [1]
    text = "".join(json.dumps(line) + "\n" for line in lines[:-1]) + '{"a":' * 100_000 + "\n"
    file.write_text(text)
    model = Fake()
    assert len(answer(job_of(tmp_path, k=0, model=model))) == 12
    assert model.asked == ["1", "2", "3", "4", "5", "12"]
