"""How the answers for an image and its K views become one: functions of (n, 1+K) arrays, column 0 the original.

An answer is YES, NO, UNKNOWN or ERROR. An unknown answer casts no vote. An error is no answer at all: a decision
that would need it is an error too, and a rerun asks again.
"""

from __future__ import annotations

from typing import Any

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
