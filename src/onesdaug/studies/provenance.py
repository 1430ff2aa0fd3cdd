"""What stands behind a study's numbers, read off the data, heads, cards and generators that are really used."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from onesdaug.augment.config import preset
from onesdaug.common.own import is_own
from onesdaug.common.provenance import describe_machine
from onesdaug.fewshot.heads.base import FunctionHead, Head
from onesdaug.report.result import Made
from onesdaug.studies.context import Missing, StudyContext
from onesdaug.studies.spec import VALIDATION, Classifier, FeatureStudy, Study, ViewRow

METRICS = {"euclidean": "Euclidean distance", "cosine": "cosine similarity"}
PAPER_SHOTS = (1,)  # "we adopt 5-way-1-shot FSL models for the 5-way-5-shot evaluation"


@dataclass
class Facts:
    """Of what there is: data by name, encoders and classifiers by name and data, generators by name."""

    data: dict[str, str] = field(default_factory=dict)
    encoders: dict[str, str] = field(default_factory=dict)
    classifiers: dict[str, str] = field(default_factory=dict)
    generators: dict[str, str] = field(default_factory=dict)
    seeds: dict[str, int | list[int]] = field(default_factory=dict)  # where they are not the run's


def facts_of(
    study: Study, context: StudyContext, split: str = "", preset_of: Callable[[str], str] | None = None
) -> Facts:
    """`split`: of the data, where it is not the run's; `preset_of`: a generator's, where it is not for accuracy."""
    found = Facts()
    for name in study.data:
        try:
            found.data[Path(name).name] = context.data_fact(name, split)
        except Missing:
            continue
        found.data |= _chosen_on(study, context, name)
        for classifier in study.classifiers:
            if name in classifier.encoder:
                try:
                    encoder, head = context.classifier(classifier, name)
                except Missing:
                    continue
                key = f"{classifier.name}, {Path(name).name}"
                found.encoders[key] = encoder.fingerprint
                found.classifiers[key] = describe(classifier, name, head, context.card(classifier, name))
    for generator in context.generators_of(study):
        try:
            augmenter = context.augmenter(generator, preset(preset_of(generator)) if preset_of else None)
        except Missing:
            continue
        name = Path(generator).name
        found.generators[name] = f"{augmenter.fingerprint} · {settings_line(augmenter.config.model_dump())}"
        if isinstance(study, FeatureStudy):
            found.generators |= _of_rows(study, context, generator, found.data)
    return found


def _chosen_on(study: Study, context: StudyContext, data: str) -> dict[str, str]:
    """The validation classes behind tuned rows."""
    if not isinstance(study, FeatureStudy) or not any(row.among for row in study.rows):
        return {}
    try:
        return {f"{Path(data).name}, {VALIDATION}": context.data_fact(data, VALIDATION)}
    except Missing:
        return {}


def _of_rows(study: FeatureStudy, context: StudyContext, generator: str, data: Mapping[str, str]) -> dict[str, str]:
    """Where a row loads the generator in another way, or a benchmark has settings of its own."""
    found, name = {}, Path(generator).name
    for row in (row for row in study.rows if row.generator.options()):
        try:
            found[f"{name}, {row.label}"] = context.augmenter(generator, loading=row.generator).fingerprint
        except Missing:
            continue
    for place in study.settings if context.tuned is None else ():
        if Path(place).name in data and name in study.settings[place]:
            row = study.row_on(ViewRow(id="", label="", views="generated"), place, generator)
            found[f"{name}, {Path(place).name}"] = settings_line(context.config(row, generator).model_dump())
    return found


def settings_line(config: Mapping[str, Any]) -> str:
    """The operator's settings in one line; those at rest are left out."""
    flat = {k: v for k, v in config.items() if v not in (None, "", (0.0, 1.0)) and k != "shape"}
    shape = config["shape"]
    tweak = "no tweak" if shape is None else "tweak " + ", ".join(f"{k} {v}" for k, v in shape.items())
    return " · ".join([*(f"{k} {v}" for k, v in flat.items()), tweak])


def made_now(
    command: str, commit: str, machine: Mapping[str, Any], seconds: Mapping[str, float], seed: int, **facts: Any
) -> Made:
    return Made(
        command=command,
        commit=commit,
        date=datetime.now(UTC).date().isoformat(),
        machine={name: str(value) for name, value in machine.items()},
        seconds={stage: round(value, 2) for stage, value in seconds.items()},
        **{"seeds": {"views": seed}, "data": {}, **facts},
    )


def made_by(study: Study, context: StudyContext, facts: Facts, command: str, seconds: Mapping[str, float]) -> Made:
    settings, on_features = context.settings, isinstance(study, FeatureStudy)
    first, draws = settings.seed, settings.seeds or (study.seeds if isinstance(study, FeatureStudy) else 1)
    seeds: dict[str, int | list[int]] = {"views": first if draws == 1 else [*range(first, first + draws)]}
    compiled = {} if settings.compile == "off" else {"compile": settings.compile}
    seeds |= {"episodes": first} if on_features else {}
    machine = describe_machine(context.device) | compiled
    known = {**vars(facts), "seeds": facts.seeds or seeds}
    return made_now(command, settings.commit, machine, seconds, first, **known)


def describe(classifier: Classifier, data: str, head: Head, card: Mapping[str, Any] | None) -> str:
    """How it was trained, how it is scored, and where either is not as in the paper; `card` is the checkpoint's."""
    own = classifier.head if is_own(head) or isinstance(head, FunctionHead) else ""
    scored = str(getattr(head, "metric", "cosine"))
    told = f"scored by {own or METRICS[scored]}"
    parts = ["not trained here" if card is None else _training(card, scored), told]
    paper = classifier.paper_metric.get(data)
    differs = [METRICS[paper]] if paper is not None and paper != scored else []
    if card is not None and (shots := _shots(card)) and shots != PAPER_SHOTS:
        differs.append(f"trained on {_counts(PAPER_SHOTS)} episodes")
    return ", ".join(parts) + (f" (the paper: {', '.join(differs)})" if differs else "")


def _training(card: Mapping[str, Any], scored: str) -> str:
    if card.get("kind") == "pretrain":
        seen = card["data"]["train"]
        return f"trained here as a classifier of {seen['classes']} classes, {seen['images']:,} images"
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
