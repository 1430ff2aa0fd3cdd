"""The feature banks that come with the repository: a small part of the test split, scored in seconds.

`benchmarks/demo_bank.py` cuts them from full banks; `card.json` beside them says which bank is what.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onesdaug.errors import DataError, OnesdaugError
from onesdaug.fewshot.bank import FeatureBank
from onesdaug.fewshot.evaluate import Task, ViewUse, evaluate
from onesdaug.fewshot.heads import build_head
from onesdaug.report.table import TRADITIONAL, Block, Origin, Row, to_row

CARD = "card.json"
TASK = Task(way=5, shot=1, query=15, episodes=2000, seed=0)


@dataclass(frozen=True)
class Evaluation:
    """What could be scored, and one line for each bank that could not."""

    blocks: tuple[Block, ...]
    problems: tuple[str, ...] = ()


def evaluate_folder(folder: Path, task: Task = TASK) -> Evaluation:
    """Score every method of every classifier on the card; DataError where there is no card at all."""
    card = _read_card(folder)
    entries: dict[str, list[Mapping[str, Any]]] = {}
    for entry in card["banks"]:
        entries.setdefault(entry["classifier"], []).append(entry)
    blocks, problems = [], []
    for classifier, of_classifier in entries.items():
        block, found = _block(folder, classifier, card["heads"][classifier], of_classifier, task)
        problems += found
        if block is not None:
            blocks.append(block)
    return Evaluation(tuple(blocks), tuple(problems))


def _read_card(folder: Path) -> Mapping[str, Any]:
    path = folder / CARD
    if not path.is_file():
        raise DataError(
            f"no feature banks in {folder}: they come with the repository (`git checkout -- artifacts/demo`), "
            "and `python benchmarks/demo_bank.py` cuts them from full banks"
        )
    try:
        card: Mapping[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        for entry in card["banks"]:
            if any(name not in entry for name in ("file", "classifier", "source", "of_images")):
                raise KeyError("file, classifier, source or of_images")
            _ = card["heads"][entry["classifier"]]["settings"]
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(f"{path} is not a card of demo banks ({error}); `git checkout -- {path}`") from error
    return card


def _block(
    folder: Path, classifier: str, head: Mapping[str, Any], entries: Sequence[Mapping[str, Any]], task: Task
) -> tuple[Block | None, list[str]]:
    """One classifier over all its sources of views. A bank that cannot be used costs only its own rows."""
    rows: list[Row] = []
    origins, problems, data = [], [], ""
    for entry in entries:
        source = entry["source"]
        try:
            bank = FeatureBank.load(folder / entry["file"])
            scorer = build_head(head["name"], bank.dim, **head["settings"])
            # traditional views are shown with all of them; of generated ones every number, as the paper does
            counts = (bank.k,) if source in TRADITIONAL else range(1, bank.k + 1)
            results = evaluate(bank, scorer, [task], [ViewUse(n, n) for n in counts])
            level = bank.info.views.get("config", {}).get("noise_level")
            baseline, *others = (to_row(source, result, level) for result in results)
            if rows and (rows[0].result.episodes, rows[0].result.accuracy) != (
                baseline.result.episodes,
                baseline.result.accuracy,
            ):
                raise DataError(f"{entry['file']} holds other images than the banks before it: not comparable")
        except OnesdaugError as error:
            problems.append(f"{classifier}, {source} views left out: {str(error).replace(f'{folder}/', '')}")
            continue
        rows += others if rows else [baseline, *others]
        spread = entry.get("spread")
        origins.append(Origin(source, bank.info, None if spread is None else float(spread)))
        data = _describe(bank, entry, entry.get("data", "unknown data"))
    if not rows:
        return None, problems
    return Block(classifier, _head_name(head), data, tuple(rows), tuple(origins)), problems


def _describe(bank: FeatureBank, entry: Mapping[str, Any], name: str) -> str:
    classes, images = len(bank.info.class_names), len(bank.info.ids)
    return f"{name}: {images // classes} images of each of {classes} classes, {images:,} of {entry['of_images']:,}"


def _head_name(head: Mapping[str, Any]) -> str:
    settings = ", ".join(f"{name} {value}" for name, value in head["settings"].items())
    return f"{head['name']} ({settings})" if settings else str(head["name"])
