"""What a study says about its classifiers, read off the heads and cards that are really used."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from onesdaug.fewshot.heads import Head
from onesdaug.studies.spec import Classifier

METRICS = {"euclidean": "Euclidean distance", "cosine": "cosine similarity"}
PAPER_SHOTS = (1,)  # "we adopt 5-way-1-shot FSL models for the 5-way-5-shot evaluation"


def describe(classifier: Classifier, data: str, head: Head, card: Mapping[str, Any] | None) -> str:
    """How it was trained, how it is scored, and where either is not as in the paper; `card` is the checkpoint's."""
    scored = str(getattr(head, "metric", "cosine"))
    parts = ["not trained here" if card is None else _training(card, scored), f"scored by {METRICS[scored]}"]
    paper = classifier.paper_metric.get(data)
    differs = [METRICS[paper]] if paper is not None and paper != scored else []
    if card is not None and (shots := _shots(card)) and shots != PAPER_SHOTS:
        differs.append(f"trained on {_counts(PAPER_SHOTS)} episodes")
    return ", ".join(parts) + (f" (the paper: {', '.join(differs)})" if differs else "")


def _training(card: Mapping[str, Any], scored: str) -> str:
    head = card.get("head") or {}
    metric = head.get("trained_with", head.get("settings", {})).get("metric", scored)
    shots = _shots(card)
    return f"trained with {METRICS[metric]}" + (f" on {_counts(shots)} episodes" if shots else "")


def _shots(card: Mapping[str, Any]) -> tuple[int, ...]:
    given = card.get("arguments", {}).get("shot") or ()
    return (given,) if isinstance(given, int) else tuple(given)


def _counts(shots: tuple[int, ...]) -> str:
    """`1-shot`, `1- and 5-shot`."""
    *others, last = map(str, shots)
    return "".join(f"{n}- and " for n in others) + f"{last}-shot"
