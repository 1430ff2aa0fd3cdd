"""From answers to the table: every method, decoding, parser, rule and number of views, without asking again."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from onesdaug.common.files import write_text
from onesdaug.errors import DataError
from onesdaug.vlm.answers import PARSERS
from onesdaug.vlm.combine import CODES, ERROR, Codes, Floats, check_weights, mean_margin, vote
from onesdaug.vlm.metrics import Estimate, Gain, Metrics, Resamples, compare, measure
from onesdaug.vlm.transcript import Record

SUMMARY = "summary.json"
LOGITS = "logits"  # the decoding of margins: read off the logits, before any token is chosen


@dataclass(frozen=True)
class Row:
    """One line of the table: who answered, how, and what came of it. `gain` is against `plain` with k = 0."""

    method: str  # plain, vcd, or repeat (the original asked again and again)
    decoding: str  # greedy, sample, or logits where the margins decide
    parser: str | None  # None where the margins decide
    combine: str  # vote or margin
    k: int
    metrics: Metrics
    gain: Gain | None = None
    gain_over_repeat: Gain | None = None  # of sampled votes: what the views add to merely drawing again

    @property
    def baseline(self) -> bool:
        return self.method == "plain" and self.k == 0


@dataclass(frozen=True)
class Summary:
    """What `onesdaug pope` writes as JSON: the rows, and everything needed to run it again."""

    rows: list[Row]
    command: list[str] = field(default_factory=list)
    commit: str = ""
    machine: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    questions: dict[str, Any] = field(default_factory=dict)
    images_fingerprint: str = ""
    weights: dict[str, float] = field(default_factory=dict)
    cost: dict[str, Any] = field(default_factory=dict)

    def pick(self, **wanted: Any) -> list[Row]:
        """The rows whose fields have these values, e.g. pick(method="plain", decoding="greedy", parser="official")."""
        return [row for row in self.rows if all(getattr(row, name) == value for name, value in wanted.items())]

    def save(self, path: Path) -> None:
        write_text(path, json.dumps(asdict(self), indent=1) + "\n")


def load_summary(path: str | Path) -> Summary:
    """What `Summary.save` wrote; a folder stands for its summary.json."""
    file = Path(path) / SUMMARY if Path(path).is_dir() else Path(path)
    try:
        stored = json.loads(file.read_text(encoding="utf-8"))
        return Summary(**{**stored, "rows": [_row(row) for row in stored["rows"]]})
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"{file} is not a summary of `onesdaug pope`: {error}") from error


def grid(
    records: Sequence[Record], *, original_weight: float = 1.0, view_weight: float = 1.0, seed: int = 0
) -> list[Row]:
    """All rows for k = 0 … K, in every parser and by both rules, from one run's answers."""
    check_weights(original_weight, view_weight)
    if not records:
        return []
    weights = original_weight, view_weight
    labels = np.array([record.question.label == "yes" for record in records])
    resamples = Resamples([record.question.image for record in records], seed)
    modes = list(records[0].replies)
    top = len(records[0].replies[modes[0]])
    rows: list[Row] = []
    for parser in PARSERS:
        decided: dict[tuple[str, int], Codes] = {}
        for mode in modes:
            answers = parsed(records, mode, parser)
            method, decoding = mode.split("/")
            # asking once more and not voting is what `plain` already is
            for k in range(1 if method == "repeat" else 0, top):
                decided[mode, k] = vote(answers[:, : k + 1], *weights)
        for (mode, k), predictions in decided.items():
            method, decoding = mode.split("/")
            base = None if (method, k) == ("plain", 0) else decided.get((f"plain/{decoding}", 0))
            again = decided.get((f"repeat/{decoding}", k)) if method == "plain" else None
            rows.append(
                Row(
                    method,
                    decoding,
                    parser,
                    "vote",
                    k,
                    measure(predictions, labels, resamples),
                    None if base is None else compare(predictions, base, labels, resamples),
                    None if again is None else compare(predictions, again, labels, resamples),
                )
            )
    return rows + _margin_rows(records, modes, top, weights, labels, resamples)


def _margin_rows(
    records: Sequence[Record],
    modes: list[str],
    top: int,
    weights: tuple[float, float],
    labels: npt.NDArray[np.bool_],
    resamples: Resamples,
) -> list[Row]:
    """Margins do not depend on how a token is then chosen: one row per method and k."""
    rows: list[Row] = []
    base: Codes | None = None
    for method in ("plain", "vcd"):
        mode = next((name for name in modes if name.startswith(f"{method}/")), None)
        if mode is None:
            continue
        values, answers = margins(records, mode), parsed(records, mode, "exact")
        if np.isnan(values).all():  # an endpoint without log probabilities
            continue
        for k in range(top):
            predictions = mean_margin(values[:, : k + 1], answers[:, : k + 1], *weights)
            base = predictions if base is None else base
            gain = None if (method, k) == ("plain", 0) else compare(predictions, base, labels, resamples)
            rows.append(Row(method, LOGITS, None, "margin", k, measure(predictions, labels, resamples), gain))
    return rows


def parsed(records: Sequence[Record], mode: str, parser: str) -> Codes:
    """(n, 1+K) answers of one mode; a reply that is not there is an error like one that failed."""
    read = PARSERS[parser]
    width = max(len(rows) for record in records for rows in record.replies.values())
    codes = np.full((len(records), width), ERROR, dtype=np.int8)
    for place, record in enumerate(records):
        for k, reply in enumerate(record.replies.get(mode, [])):
            if reply.error is None and reply.text is not None:
                codes[place, k] = CODES[read(reply.text, record.question.label)]
    return codes


def margins(records: Sequence[Record], mode: str) -> Floats:
    """(n, 1+K) margins of one mode; NaN where there is none."""
    width = max(len(rows) for record in records for rows in record.replies.values())
    values = np.full((len(records), width), np.nan)
    for place, record in enumerate(records):
        for k, reply in enumerate(record.replies.get(mode, [])):
            if reply.margin is not None:
                values[place, k] = reply.margin
    return values


def neither(records: Sequence[Record]) -> tuple[int, int]:
    """How many of all texts say neither yes nor no and nothing else, and how many texts there are."""
    texts = [r.text for record in records for rows in record.replies.values() for r in rows if r.text is not None]
    return sum(PARSERS["exact"](text, "") == "unknown" for text in texts), len(texts)


def _row(stored: dict[str, Any]) -> Row:
    def estimates(part: dict[str, Any]) -> dict[str, Any]:
        return {name: Estimate(**value) if isinstance(value, dict) else value for name, value in part.items()}

    made = dict(stored)
    made["metrics"] = Metrics(**estimates(stored["metrics"]))
    for name in ("gain", "gain_over_repeat"):
        made[name] = None if stored[name] is None else Gain(**estimates(stored[name]))
    return Row(**made)
