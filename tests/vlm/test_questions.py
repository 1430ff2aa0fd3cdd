"""Questions are read strictly: what could be scored wrongly is refused, with its place."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from onesdaug.errors import DataError
from onesdaug.vlm.questions import check_images, present, read_questions, split_name
from tests.real_data import real_root
from tests.vlm.tiny import save_questions

ROW = {"question_id": 1, "image": "a.jpg", "text": "Is there a dog in the image?", "label": "yes"}


def write(folder: Path, *rows: Any, name: str = "q.json") -> Path:
    file = folder / name
    file.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
    return file


def test_json_lines_and_a_json_list_are_the_same(tmp_path: Path) -> None:
    rows = [ROW, {**ROW, "question_id": "two", "label": "No", "image": "b.jpg"}, {**ROW, "question_id": 3}]
    lines = read_questions(write(tmp_path, *rows))
    (tmp_path / "list.json").write_text("\ufeff" + json.dumps(rows, indent=2))
    listed = read_questions(tmp_path / "list.json")
    assert lines.items == listed.items
    assert lines.fingerprint == listed.fingerprint
    assert [q.label for q in lines.items] == ["yes", "no", "yes"]
    assert [q.key for q in lines.by_image] == ["1", "3", "two"]  # an image's questions stand together
    assert lines.images == ["a.jpg", "b.jpg"]


def test_a_limit_keeps_the_files_fingerprint(tmp_path: Path) -> None:
    _, file = save_questions(tmp_path)
    whole, part = read_questions(file), read_questions(file, limit=5)
    assert (len(whole), len(part)) == (12, 5)
    assert whole.fingerprint == part.fingerprint
    assert part.summary()["questions"] == 5


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        ((ROW, {**ROW, "question_id": "1"}), r"question_id 1 is there twice \(line 1 and line 2\)"),
        ((ROW, {**ROW, "question_id": 2, "label": "maybe"}), "line 2: the label is 'maybe'"),
        (({k: v for k, v in ROW.items() if k != "image"},), "line 1 has no image"),
        (("[1]",), "row 1 is not an object"),
        (("{broken",), "line 1 is not valid JSON"),
        (("[{broken",), "is not valid JSON"),
        (({**ROW, "image": "../../etc/passwd"},), "not a file inside the folder"),
        (({**ROW, "image": "/etc/passwd"},), "not a file inside the folder"),
        (({**ROW, "text": " "},), "has no text"),
        (({**ROW, "question_id": None},), "neither a number nor text"),
        ((), "holds no questions"),
        (("[" * 10_000,), "recursion limit exceeded"),
        ((json.dumps(ROW)[:-1] + ', "more": ' + "[" * 5_000 + "]" * 5_000 + "}",), "line 1 is not valid JSON"),
        (("[" * 500 + "]" * 500,), "is not valid JSON"),
        (('{"question_id": ' + "9" * 5_000 + "}",), "line 1 is not valid JSON"),
        ((json.dumps({**ROW, "text": "?"}).replace("?", "\\ud800"),), "line 1 is not valid JSON"),
        (({**ROW, "label": "x" * 5_000},), "the label is 'xxx.*…, it must be"),
        (({**ROW, "question_id": ["x" * 5_000]},), "neither a number nor text"),
        (({**ROW, "question_id": "x" * 5_000}, {**ROW, "question_id": "x" * 5_000}), "x… is there twice"),
        (({**ROW, "image": "../" + "x" * 5_000},), "not a file inside the folder"),
        (({**ROW, "text": ["a"]},), "has no text"),
        (({**ROW, "image": 7},), "not a file inside the folder"),
    ],
)
def test_what_cannot_be_scored_is_refused(tmp_path: Path, rows: tuple[Any, ...], reason: str) -> None:
    with pytest.raises(DataError, match=reason) as error:
        read_questions(write(tmp_path, *rows))
    assert "q.json" in str(error.value) and "\n" not in str(error.value) and len(str(error.value)) < 500


def test_a_line_ends_at_a_line_feed_alone(tmp_path: Path) -> None:
    text = "Is there\u2028a\x85dog\u2029?"
    file = write(tmp_path, json.dumps({**ROW, "text": text}, ensure_ascii=False) + "\r", {**ROW, "question_id": 2})
    assert [question.text for question in read_questions(file).items] == [text, ROW["text"]]


def test_files_that_are_no_text_and_names_that_are_too_long(tmp_path: Path) -> None:
    (tmp_path / "q.json").write_bytes(json.dumps(ROW).replace("dog", "d\xf6g").encode("latin-1"))
    with pytest.raises(DataError, match=r"q\.json, line 1 is not valid JSON: invalid unicode"):
        read_questions(tmp_path / "q.json")
    os.mkfifo(tmp_path / "pipe.json")
    with pytest.raises(DataError, match=r"pipe\.json cannot be read or written: it is a"):
        read_questions(tmp_path / "pipe.json")
    with pytest.raises(DataError, match="cannot be read"):
        read_questions(tmp_path / ("x" * 5000))
    questions = read_questions(write(tmp_path, {**ROW, "image": "x" * 5000}))
    with pytest.raises(DataError, match=r"1 of 1 images are not in .*: x{79}…;"):
        check_images(questions, tmp_path)
    with pytest.raises(DataError, match="does not exist"):
        check_images(questions, tmp_path / ("x" * 5000))
    assert len(split_name(Path("é" * 120 + ".json")).encode()) == 100


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot be read"):
        read_questions(tmp_path / "gone.json")


def test_an_official_name_promises_official_counts(tmp_path: Path) -> None:
    file = write(tmp_path, ROW, name="coco_pope_random.json")
    with pytest.raises(DataError, match=r"has 1 questions, 1 yes, 1 images; an official split has 3000, 1500 and 500"):
        read_questions(file)
    assert len(read_questions(write(tmp_path, ROW, name="mine.json"))) == 1


def test_split_names() -> None:
    names = {
        "coco_pope_adversarial.json": "adversarial",
        "aokvqa_pope_popular.json": "aokvqa_popular",
        "my own/set 1.json": "set-1",
    }
    assert {name: split_name(Path(name)) for name in names} == names


def test_missing_images_are_counted_and_named(tmp_path: Path) -> None:
    pictures, file = save_questions(tmp_path, images=8, per_image=1)
    questions = read_questions(file)
    check_images(questions, pictures)
    (pictures / "p3.png").unlink()
    with pytest.raises(DataError, match=r"1 of 8 images are not in .*: p3\.png; --skip-missing asks about the rest$"):
        check_images(questions, pictures)
    for file in pictures.glob("*.png"):
        file.unlink()
    with pytest.raises(DataError, match=r"8 of 8 images .* and 3 more; is this COCO's val2014 folder\?"):
        check_images(questions, pictures)
    with pytest.raises(DataError, match="does not exist"):
        check_images(questions, tmp_path / "gone")


@pytest.mark.parametrize("split", ["random", "popular", "adversarial"])
def test_the_real_files(split: str) -> None:
    questions = read_questions(real_root("pope") / "pope" / f"coco_pope_{split}.json")
    summary = questions.summary()
    assert (summary["questions"], summary["yes"], summary["images"]) == (3000, 1500, 500)
    assert summary["split"] == split
    assert questions.known
    assert questions.by_image == list(questions.items)  # six of an image in a row
    assert not any("imange" in q.text for q in questions.items)


def test_questions_about_missing_images_are_left_out_on_demand(tmp_path: Path) -> None:
    questions = read_questions(write(tmp_path, ROW, {**ROW, "question_id": 2, "image": "there.jpg"}))
    (tmp_path / "there.jpg").touch()
    with pytest.raises(DataError, match=r"1 of 2 images are not in .*; --skip-missing asks about the rest"):
        check_images(questions, tmp_path)
    rest = present(questions, tmp_path)
    assert [q.image for q in rest.items] == ["there.jpg"] and rest.fingerprint == questions.fingerprint
    (tmp_path / "there.jpg").unlink()
    with pytest.raises(DataError, match="2 of 2 images are not in"):
        present(questions, tmp_path)
