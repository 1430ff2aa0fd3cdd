"""Results for people: the paper's text file for each number of views."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from onesdaug.common.files import write_text
from onesdaug.vlm.metrics import Estimate, Gain
from onesdaug.vlm.score import PopeResults, Score

_METRICS = ("accuracy", "precision", "recall", "f1", "yes_ratio")


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
    lines += [f"{name} {bracketed(getattr(m, name))}" for name in _METRICS]
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
