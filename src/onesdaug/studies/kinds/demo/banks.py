"""The feature banks that come with the repository: a small part of the test split, scored in seconds.

`benchmarks/demo_bank.py` cuts them from full banks; `card.json` beside them says which bank is what.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from onesdaug.errors import DataError, OnesdaugError
from onesdaug.fewshot.bank import FeatureBank
from onesdaug.fewshot.evaluate import Result, Task, ViewUse, evaluate
from onesdaug.fewshot.heads import build_head
from onesdaug.report.records import CONDITION_ALONE, OPERATOR, Cell
from onesdaug.studies.provenance import Facts

CARD = "card.json"
TASK = Task(way=5, shot=1, query=15, episodes=2000, seed=0)
# sources of views that draw nothing new: classical test-time augmentation
TRADITIONAL = {"crop-flip": "crop + flip", "traditional": "traditional edits", "shape": "shape tweak"}


@dataclass
class DemoBanks:
    """What could be scored, and one line for each bank that could not."""

    cells: list[Cell] = field(default_factory=list)
    spreads: dict[str, list[tuple[str, float]]] = field(default_factory=dict)  # classifier -> source, std of its gain
    problems: list[str] = field(default_factory=list)


def evaluate_folder(folder: Path, task: Task = TASK) -> DemoBanks:
    """Score every method of every classifier on the card; DataError where there is no card at all."""
    card, found = _read_card(folder), DemoBanks()
    first: dict[str, Cell] = {}  # each classifier's baseline
    for entry in card["banks"]:
        classifier, source = entry["classifier"], entry["source"]
        try:
            bank = FeatureBank.load(folder / entry["file"])
            baseline, *others = _cells(bank, card["heads"][classifier], entry, task)
            if first.setdefault(classifier, baseline).accuracy != baseline.accuracy:
                raise DataError(f"{entry['file']} holds other images than the banks before it: not comparable")
        except OnesdaugError as error:
            found.problems.append(f"{classifier}, {source} views left out: {str(error).replace(f'{folder}/', '')}")
            continue
        new = not any(cell.classifier == classifier for cell in found.cells)
        found.cells += [baseline, *others] if new else others
        if entry.get("spread") is not None:
            found.spreads.setdefault(classifier, []).append((source, float(entry["spread"])))
    return found


def _read_card(folder: Path) -> Mapping[str, Any]:
    path = folder / CARD
    if not path.is_file():
        raise DataError(
            f"no feature banks in {folder.name}: they come with the repository (`git checkout -- artifacts/demo`), "
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


def _cells(bank: FeatureBank, head: Mapping[str, Any], entry: Mapping[str, Any], task: Task) -> list[Cell]:
    """The baseline first. Traditional views are shown with all of them; of generated ones every number."""
    scorer = build_head(head["name"], bank.dim, **head["settings"])
    counts = (bank.k,) if entry["source"] in TRADITIONAL else range(1, bank.k + 1)
    results = evaluate(bank, scorer, [task], [ViewUse(n, n) for n in counts])
    level = bank.info.views.get("config", {}).get("noise_level")
    return [_cell(result, entry, level) for result in results]


def _cell(result: Result, entry: Mapping[str, Any], level: float | None) -> Cell:
    """`pocket@0.7` is a further source of the same generator.

    At noise level 1 nothing of the image enters but through the condition: that is not the paper's operator.
    """
    source = entry["source"]
    data = entry.get("data", "unknown data").partition(" (")[0]
    where = {"data": data, "classifier": entry["classifier"], "shot": result.task.shot}
    if result.baseline:
        return Cell(**where, row="none", label="no views", kind="baseline", accuracy=result.accuracy)
    generated = source not in TRADITIONAL
    return Cell(
        **where,
        row=source,
        label=TRADITIONAL.get(source, CONDITION_ALONE if level == 1 else OPERATOR),
        kind="generative" if generated else "traditional",
        generator=source.partition("@")[0] if generated else "",
        support=result.use.support,
        query=result.use.query,
        original_weight=result.use.original_weight,
        noise_level=level if generated else None,
        accuracy=result.accuracy,
        gain=result.gain,
    )


def describe_folder(folder: Path) -> Facts:
    """What made the banks that can be read."""
    card, facts = _read_card(folder), Facts()
    for entry in card["banks"]:
        classifier, head = entry["classifier"], card["heads"][entry["classifier"]]
        try:
            info = FeatureBank.load(folder / entry["file"]).info
        except OnesdaugError:
            continue
        classes, images = len(info.class_names), len(info.ids)
        part = f"{images // classes} images of each of {classes} classes, {images:,} of {entry['of_images']:,}"
        facts.data[classifier] = f"{entry.get('data', 'unknown data')}: {part}"
        settings = ", ".join(f"{name} {value}" for name, value in head["settings"].items())
        facts.classifiers[classifier] = f"{head['name']} ({settings})" if settings else str(head["name"])
        facts.encoders[classifier] = info.encoder
        drawn = [info.views.get("generator", "none"), f"made at commit {info.commit}, seed {info.seed}"]
        facts.generators[f"{entry['source']} views, {classifier}"] = " · ".join([*drawn, *_flat(info.views)])
    return facts


def _flat(value: Any, name: str = "") -> list[str]:
    """A source's own settings, nested ones by their own names."""
    if isinstance(value, Mapping):
        named = [(key, inner) for key, inner in value.items() if key not in ("source", "generator")]
        return [line for key, inner in named for line in _flat(inner, key)]
    return [f"{name} {value}"]
