"""A plain Python function as a vision-language model."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from onesdaug.errors import ConfigError
from onesdaug.vlm.model import FunctionModel, Reply, find_model
from onesdaug.vlm.settings import Asking
from tests.conftest import make_image

IMAGES = [make_image(i) for i in range(3)]


def test_margins_and_texts_become_replies() -> None:
    def answer(images: list, questions: list[str]) -> list:
        assert len(images) == len(questions) == 3 and set(questions) == {"A dog?!"}
        return [np.float32(1.5), "No, there is none", False]

    said = FunctionModel(answer, "!").ask(IMAGES, "A dog?", "key")
    assert said == {"plain/greedy": [Reply("yes", 1.5), Reply("No, there is none"), Reply("no")]}
    margins = FunctionModel(lambda images, questions: np.array([-2.0, 0.0, 3.0])).ask(IMAGES, "", "")["plain/greedy"]
    assert [(r.text, r.margin) for r in margins] == [("no", -2.0), ("no", 0.0), ("yes", 3.0)]


def test_what_a_function_may_not_answer() -> None:
    with pytest.raises(ConfigError, match="for each of 3 pictures, got 1"):
        FunctionModel(lambda images, questions: [1.0]).ask(IMAGES, "", "")
    with pytest.raises(ConfigError, match="answered the text 'yes'; want a list"):
        FunctionModel(lambda images, questions: "yes").ask(IMAGES, "", "")
    nan = FunctionModel(lambda images, questions: [float("nan")] * 3).ask(IMAGES, "", "")["plain/greedy"]
    assert nan[0] == Reply(error="the function answered nan; want a text or a number")
    lost = FunctionModel(lambda images, questions: [1.0, None, "yes"]).ask(IMAGES, "", "")["plain/greedy"]
    assert lost[1].error == "the function answered NoneType; want a text or a number" and lost[2].text == "yes"


def test_a_function_is_given_as_many_at_once_as_it_takes() -> None:
    given = []

    def answer(images: list, questions: list[str]) -> list:
        given.append(questions)
        return [float(len(question)) for question in questions]

    said = FunctionModel(answer, "!", 2).ask_pairs(IMAGES, ["a", "bb", "ccc"])
    assert [reply.margin for reply in said] == [2.0, 3.0, 4.0] and given == [["a!", "bb!"], ["ccc!"]]
    FunctionModel(answer).ask_pairs(IMAGES, ["a", "bb", "ccc"])
    assert given[2:] == [["a", "bb", "ccc"]]
    assert FunctionModel(answer).ask([], "a", "") == {"plain/greedy": []} and len(given) == 3


def test_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_vlm.py").write_text(
        "def always(images, questions):\n    return ['yes'] * len(images)\n"
        "class Shy:\n    modes = ('plain/greedy',)\n    def ask(self, images, question, key): return {}\n"
        "number = 3\n"
    )
    monkeypatch.chdir(tmp_path)
    about, load = find_model("my_vlm.py:always", Asking(suffix=""), device="cpu")
    assert about["kind"] == "function" and about["name"] == "my_vlm.py:always"
    assert load().ask(IMAGES, "A dog?", "")["plain/greedy"][2].text == "yes"
    assert find_model("my_vlm:Shy", Asking())[1]().ask(IMAGES, "", "") == {}
    with pytest.raises(ConfigError, match="takes no prompt"):
        find_model("my_vlm:always", Asking(), prompt="llava")
    assert find_model("my_vlm:always", Asking(), batch_size=2)[1]().batch_size == 2
    with pytest.raises(ConfigError, match="object: it takes no batch_size"):
        find_model("my_vlm:Shy", Asking(), batch_size=2)
    with pytest.raises(ConfigError, match="is int; want a function"):
        find_model("my_vlm:number", Asking())
