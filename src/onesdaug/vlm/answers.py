"""From what a model said about an image and its K views to one decision.

Three parsers in use read an answer, with their oddities kept and named: they disagree, so a number without its parser
says little. Texts come without surrounding white space, as the published scripts strip them too.

Answers are combined as (n, 1+K) arrays, column 0 the original, of YES, NO, UNKNOWN or ERROR. An unknown answer casts
no vote. An error is no answer at all: a decision that would need it is an error too, and a rerun asks again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from onesdaug.errors import ConfigError

YES, NO, UNKNOWN, ERROR = 1, 0, -1, -2
CODES = {"yes": YES, "no": NO, "unknown": UNKNOWN}
COMBINE = ("vote", "margin")
# Tallies that differ by less are equal: ten votes of 0.1 are not exactly one of 1.0
_TIE = 1e-9
Codes = npt.NDArray[np.int8]
Floats = npt.NDArray[np.float64]
Answer = Literal["yes", "no", "unknown"]


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


# each reads a text; only VCD's looks at the label
PARSERS: dict[str, Callable[[str, str], Answer]] = {"official": official, "vcd": vcd, "exact": exact}


def vote(answers: Codes, original_weight: float = 1.0, view_weight: float = 1.0) -> Codes:
    """The weighted majority of yes and no; a tie is the original's to decide, also where it does not know."""
    weights = _weights(answers.shape[1], original_weight, view_weight)
    lead = (answers == YES) @ weights - (answers == NO) @ weights
    return _decide(lead, _TIE, answers[:, 0], (answers == ERROR).any(1))


def mean_margin(margins: Floats, answers: Codes, original_weight: float = 1.0, view_weight: float = 1.0) -> Codes:
    """The sign of the weighted mean of the margins log p(yes) − log p(no); NaN is a margin that is not known.

    Exactly zero is a tie and goes by the original's own margin; if that is zero too, the decision is unknown.
    `answers` only tells which replies are errors.
    """
    weights = _weights(margins.shape[1], original_weight, view_weight)
    known = ~np.isnan(margins)
    lead = np.where(known, margins, 0.0) @ weights
    own = np.where(known[:, 0], np.sign(margins[:, 0]), 0.0)
    original = np.select([own > 0, own < 0], [YES, NO], UNKNOWN).astype(np.int8)
    return _decide(lead, 0.0, original, (answers == ERROR).any(1))


def check_weights(original_weight: float, view_weight: float) -> None:
    if not (original_weight >= 0 and view_weight >= 0 and 0 < original_weight + view_weight < np.inf):
        raise ConfigError(
            f"the weights of the original ({original_weight:g}) and of a view ({view_weight:g}) must not be negative, "
            "and not both zero"
        )


def _weights(columns: int, original_weight: float, view_weight: float) -> Floats:
    if columns == 1:  # no views: whatever it weighs, the original decides
        return np.ones(1)
    return np.array([original_weight] + [view_weight] * (columns - 1))


def _decide(lead: Floats, tie: float, original: Codes, lost: npt.NDArray[Any]) -> Codes:
    decided = np.select([lead > tie, lead < -tie], [YES, NO], original)
    return np.asarray(np.where(lost, ERROR, decided), dtype=np.int8)
