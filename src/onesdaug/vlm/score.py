"""From answers to the table: every method, decoding, parser, rule and number of views, without asking again.

And the paper's text file for each number of views.
"""

from __future__ import annotations

import hashlib
import json
import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import TypeAdapter

from onesdaug.common.files import write_text
from onesdaug.errors import DataError
from onesdaug.vlm.answers import CODES, ERROR, PARSERS, Codes, Floats, check_weights, mean_margin, vote
from onesdaug.vlm.metrics import METRICS, Estimate, Gain, Metrics, Resamples, compare, measure
from onesdaug.vlm.model import Reply
from onesdaug.vlm.transcript import Record

SUMMARY = "summary.json"
LOGITS = "logits"  # the decoding of margins: read off the logits, before any token is chosen


@dataclass(frozen=True)
class Score:
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
class PopeResults:
    """What `onesdaug pope` writes as JSON: the rows, and everything needed to run it again."""

    rows: list[Score]
    command: list[str] = field(default_factory=list)
    commit: str = ""
    machine: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    questions: dict[str, Any] = field(default_factory=dict)
    images_fingerprint: str = ""
    weights: dict[str, float] = field(default_factory=dict)
    cost: dict[str, Any] = field(default_factory=dict)

    def pick(self, **wanted: Any) -> list[Score]:
        """The rows whose fields have these values, e.g. pick(method="plain", decoding="greedy", parser="official")."""
        return [row for row in self.rows if all(getattr(row, name) == value for name, value in wanted.items())]

    def save(self, path: Path) -> None:
        write_text(path, json.dumps(asdict(self), indent=1) + "\n")


def load_summary(path: str | Path) -> PopeResults:
    """What `PopeResults.save` wrote; a folder stands for its summary.json."""
    file = Path(path) / SUMMARY if Path(path).is_dir() else Path(path)
    try:
        return TypeAdapter(PopeResults).validate_json(file.read_bytes())
    except (OSError, ValueError) as error:
        reason = " ".join(str(error).split())[:200]
        raise DataError(f"{file} is not a summary of `onesdaug pope`: {reason}") from error


def grid(
    records: Sequence[Record], *, original_weight: float = 1.0, view_weight: float = 1.0, seed: int = 0
) -> list[Score]:
    """All rows for k = 0 … K, in every parser and by both rules, from one run's answers."""
    check_weights(original_weight, view_weight)
    if not records:
        return []
    labels = np.array([record.question.label == "yes" for record in records])
    resamples = Resamples([record.question.image for record in records], seed)
    decided = _decisions(records, original_weight, view_weight)

    def against(predictions: Codes, baseline: Codes | None) -> Gain | None:
        return None if baseline is None else compare(predictions, baseline, labels, resamples)

    rows = []
    for (method, decoding, parser, combine, k), predictions in decided.items():
        base = decided.get(("plain", decoding, parser, combine, 0)) if (method, k) != ("plain", 0) else None
        again = decided.get(("repeat", decoding, parser, combine, k)) if method == "plain" else None
        metrics = measure(predictions, labels, resamples)
        gains = against(predictions, base), against(predictions, again)
        rows.append(Score(method, decoding, parser, combine, k, metrics, *gains))
    return rows


def _decisions(records: Sequence[Record], *weights: float) -> dict[tuple[str, str, str | None, str, int], Codes]:
    """The decision on every question, by the first five fields of its Score."""
    decided: dict[tuple[str, str, str | None, str, int], Codes] = {}
    first: dict[str, str] = {}  # of each method's modes
    for parser in PARSERS:
        for mode in records[0].replies:
            method, decoding = mode.split("/")
            first.setdefault(method, mode)
            answers = parsed(records, mode, parser)
            # asking once more and not voting is what `plain` already is
            for k in range(1 if method == "repeat" else 0, answers.shape[1]):
                decided[method, decoding, parser, "vote", k] = vote(answers[:, : k + 1], *weights)
    # margins do not depend on how a token is then chosen: those of a method's first decoding stand for all
    for method, mode in first.items():
        values, answers = margins(records, mode), parsed(records, mode, "exact")
        if method == "repeat" or np.isnan(values).all():  # an endpoint without log probabilities
            continue
        for k in range(values.shape[1]):
            decided[method, LOGITS, None, "margin", k] = mean_margin(values[:, : k + 1], answers[:, : k + 1], *weights)
    return decided


def parsed(records: Sequence[Record], mode: str, parser: str) -> Codes:
    """(n, 1+K) answers of one mode; a reply that is not there is an error like one that failed."""

    def code(reply: Reply, label: str) -> int:
        return ERROR if reply.text is None else CODES[PARSERS[parser](reply.text, label)]

    return _array(records, mode, code, ERROR).astype(np.int8)


def margins(records: Sequence[Record], mode: str) -> Floats:
    """(n, 1+K) margins of one mode; NaN where there is none."""
    return _array(records, mode, lambda reply, _: np.nan if reply.margin is None else reply.margin, np.nan)


def _array(records: Sequence[Record], mode: str, value: Callable[[Reply, str], float], missing: float) -> Floats:
    width = max(len(rows) for record in records for rows in record.replies.values())
    filled = np.full((len(records), width), missing, dtype=np.float64)
    for place, record in enumerate(records):
        for k, reply in enumerate(record.replies.get(mode, [])):
            filled[place, k] = value(reply, record.question.label)
    return filled


def count_unclear(records: Sequence[Record]) -> tuple[int, int]:
    """How many of all texts say neither yes nor no and nothing else, and how many texts there are."""
    texts = [r.text for record in records for rows in record.replies.values() for r in rows if r.text is not None]
    return sum(PARSERS["exact"](text, "") == "unknown" for text in texts), len(texts)


def images_fingerprint(records: Sequence[Record]) -> str:
    """Name of the images asked about, by their pixels."""
    pairs = sorted({(record.question.image, record.digest or "") for record in records})
    return hashlib.blake2b(repr(pairs).encode(), digest_size=8).hexdigest()


def cost(records: Sequence[Record]) -> dict[str, dict[str, float] | None]:
    """Seconds per image for making views and per question for asking."""
    views = {record.question.image: sum(record.view_seconds) for record in records if record.view_seconds}
    return {
        "view_seconds_per_image": _spread(list(views.values())),
        "ask_seconds_per_question": _spread([record.seconds for record in records]),
    }


def _spread(values: list[float]) -> dict[str, float] | None:
    if not values:
        return None
    made = {"mean": statistics.fmean(values), "median": statistics.median(values), "max": max(values)}
    return {**{name: round(value, 4) for name, value in made.items()}, "total": round(sum(values), 3)}


def headline_rows(rows: Sequence[Score], parser: str, combine: str) -> list[Score]:
    """The rows of one rule: votes read by one parser, or margins, which need none."""
    return [row for row in rows if row.combine == combine and row.parser in (parser, None)]


def text_name(k: int, split: str, shape_tweak: bool, count: int) -> str:
    """The paper's name; without views there is no shape tweak either."""
    return f"aug_views_{k}_split_{split}_shapetweak_{shape_tweak and k > 0}_num{count}.txt"


def write_texts(out: Path, summary: PopeResults, parser: str, combine: str, shape_tweak: bool) -> list[Path]:
    """One file per number of views, 0 to K; other questions or a longer run have files of their own."""
    rows = headline_rows(summary.rows, parser, combine)
    split, count = str(summary.questions["split"]), int(summary.questions["questions"])
    written = []
    for k in sorted({row.k for row in rows}):
        file = out / text_name(k, split, shape_tweak, count)
        blocks = [_block(row) for row in rows if row.k == k]
        written.append(write_text(file, "\n".join([_head(summary, k, parser, combine), *blocks])))
    return written


def _head(summary: PopeResults, k: int, parser: str, combine: str) -> str:
    model, questions = summary.settings["model"], summary.questions
    parser = parser if combine == "vote" else "none"
    seconds = summary.cost.get("view_seconds_per_image") if k else None
    lines = [
        f"POPE {questions['split']}: {questions['questions']} questions, {questions['images']} images",
        f"model {model['name']}, K = {k} views, combined by {combine}, parser {parser}",
        f"weight of the original {summary.weights['original']:g}, of each view {summary.weights['view']:g}",
        f"seed {model['seed']}, questions {questions['fingerprint']}, images {summary.images_fingerprint}",
        f"commit {summary.commit}, device {summary.machine.get('device', '')}",
    ]
    if seconds:
        made = summary.settings["k"]
        lines.append(f"seconds per image to make its {made} views: {seconds['mean']:g} (at most {seconds['max']:g})")
    return "\n".join(lines) + "\n"


def _block(row: Score) -> str:
    m = row.metrics
    lines = [f"[{row.method}, {row.decoding} decoding]"]
    lines += [f"{name} {bracketed(getattr(m, name))}" for name in METRICS]
    lines.append(f"answered {m.n}, unknown {m.unknown}, errors {m.errors}")
    for name, gain in (("K = 0, plain", row.gain), ("asking the original again", row.gain_over_repeat)):
        if gain is not None:
            difference, p = gain_and_p(gain)
            relative = [in_percent(value, sign=True) for value in (gain.relative_accuracy, gain.relative_f1)]
            lines.append(
                f"against {name}: accuracy {difference}, F1 {bracketed(gain.f1, sign=True)}, "
                f"relative {relative[0]} % and {relative[1]} %, "
                f"{gain.fixed} fixed, {gain.broken} broken, McNemar p {p}"
            )
    return "\n".join(lines) + "\n"


def in_percent(value: float | None, sign: bool = False) -> str:
    return "–" if value is None else f"{100 * value:{'+' if sign else ''}.2f}"


def bracketed(estimate: Estimate, sign: bool = False) -> str:
    text = in_percent(estimate.value, sign)
    if estimate.low is None:
        return text
    return f"{text} [{in_percent(estimate.low, sign)}, {in_percent(estimate.high, sign)}]"


def gain_and_p(gain: Gain | None) -> tuple[str, str]:
    if gain is None:
        return "", ""
    p = "< 0.0001" if gain.mcnemar_p < 1e-4 else f"{gain.mcnemar_p:.4f}"
    return bracketed(gain.accuracy, sign=True), p
