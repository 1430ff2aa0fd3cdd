"""The parsers' oddities, one by one: they are published behaviour, so they are kept and held."""

from __future__ import annotations

import pytest

from onesdaug.vlm.answers import PARSERS, exact, official, vcd


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("Yes", "yes"),
        ("No", "no"),
        ("no", "no"),
        ("", "yes"),  # nothing at all
        ("maybe", "yes"),  # no answer
        ("NO", "yes"),  # capitals
        ("No!", "yes"),  # any mark but full stop and comma sticks to the word
        ("Nope", "yes"),
        ("cannot", "yes"),  # "not" must stand alone
        ("There isn't one", "yes"),
        ("No, there is none", "no"),  # the comma goes
        ("No.", "no"),  # the full stop ends the sentence
        (". No", "yes"),  # and what comes before it is empty
        ("Yes. No", "yes"),  # only the first sentence counts
        ("Yes, there is no doubt", "no"),  # a no anywhere in it wins
        ("It is not", "no"),
        ("No\nYes", "yes"),  # a line break parts no words
        ("a\tno", "yes"),  # nor does a tab
        ("1.5 dogs, no cats", "yes"),  # a decimal point is a full stop
    ],
)
def test_official(text: str, answer: str) -> None:
    assert official(text) == answer


@pytest.mark.parametrize(
    ("text", "label", "answer"),
    [
        ("Yes", "yes", "yes"),
        ("No", "no", "no"),
        ("No", "yes", "no"),
        ("Yes", "no", "yes"),
        ("Yes, a snowboard", "no", "no"),  # s-no-wboard: right by accident
        ("Yes, a snowboard", "yes", "yes"),  # and right the other way round
        ("I cannot know", "no", "no"),
        ("eyes", "yes", "yes"),  # inside a word
        ("YES", "yes", "yes"),  # case does not matter
        ("", "yes", "no"),  # nothing is always wrong
        ("", "no", "yes"),
        ("maybe", "yes", "no"),
        ("maybe", "no", "yes"),
        ("No, but yes", "yes", "yes"),  # both is always right
        ("No, but yes", "no", "no"),
    ],
)
def test_vcd(text: str, label: str, answer: str) -> None:
    assert vcd(text, label) == answer


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("yes", "yes"),
        (" NO \n", "no"),
        ("Yes.", "unknown"),
        ("yes it is", "unknown"),
        ("", "unknown"),
        ("maybe", "unknown"),
    ],
)
def test_exact(text: str, answer: str) -> None:
    assert exact(text) == answer


def test_they_agree_where_it_is_clear() -> None:
    for parse in PARSERS.values():
        for text in ("Yes", "No"):
            for label in ("yes", "no"):
                assert parse(text, label) == text.lower()
