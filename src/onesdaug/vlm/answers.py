"""From what a model said to yes, no or unknown: three parsers in use, with their oddities kept and named.

They disagree, so a number without its parser says little. Texts come without surrounding white space, as the
published scripts strip them too.
"""

from __future__ import annotations

from typing import Literal, Protocol

Answer = Literal["yes", "no", "unknown"]


class Parser(Protocol):
    """Reads an answer; only VCD's looks at the label."""

    def __call__(self, text: str, label: str) -> Answer: ...


def official(text: str, label: str = "") -> Answer:
    """POPE's own: the first sentence, commas removed, split at spaces; `No`, `not` or `no` makes it no, else yes.

    Never unknown. An empty text, "maybe", "NO" and "No!" are yes (the case and the word must match exactly), "Yes,
    there is no doubt" is no, "Yes. No" is yes, and a line break does not part words ("No\\nYes" is yes).
    """
    words = text.split(".")[0].replace(",", "").split(" ")
    return "no" if {"No", "not", "no"} & set(words) else "yes"


def vcd(text: str, label: str) -> Answer:
    """VCD's: is the label's word anywhere inside, in any case? If not, the answer is the other one.

    Never unknown, and it needs the label, so a text that says nothing is always wrong and one that says both always
    right: "Yes, a snowboard" is a correct no ("sNOwboard"), "" is no where yes is right and yes where no is right.
    """
    said = label in text.lower()
    if label == "yes":
        return "yes" if said else "no"
    return "no" if said else "yes"


def exact(text: str, label: str = "") -> Answer:
    """The word alone, in any case; all else is unknown, "Yes." and "yes it is" too."""
    word = text.strip().lower()
    return "yes" if word == "yes" else "no" if word == "no" else "unknown"


PARSERS: dict[str, Parser] = {"official": official, "vcd": vcd, "exact": exact}
