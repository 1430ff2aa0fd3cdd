"""The one runner: from the names of studies to their JSON files."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from onesdaug.common.progress import track
from onesdaug.common.provenance import describe_machine
from onesdaug.errors import OnesdaugError
from onesdaug.studies.accuracy import generators_of, tables, wants_of
from onesdaug.studies.classifiers import describe
from onesdaug.studies.efficiency import timings
from onesdaug.studies.judge import SPLIT as JUDGED_ON
from onesdaug.studies.pope import answers
from onesdaug.studies.qualitative import sheets
from onesdaug.studies.result import Made, StudyResult
from onesdaug.studies.settings import Settings
from onesdaug.studies.spec import Row, Study, load_study
from onesdaug.studies.theory import simulations, theory
from onesdaug.studies.workshop import Missing, Workshop

ON_FEATURES = ("fewshot", "theory")


@dataclass(frozen=True)
class Outcome:
    """What a run left: results with the file each was written to, and studies that broke."""

    results: tuple[tuple[StudyResult, Path | None], ...]
    failures: tuple[str, ...] = ()


def run(names: Sequence[str], settings: Settings, output: Path, command: str, tag: str = "") -> Outcome:
    """Run the studies and write OUTPUT/NAME.json for each as soon as it is done.

    Feature banks of all studies are planned together, so that views they share are drawn once. A study that breaks
    costs only itself.
    """
    began = time.perf_counter()
    studies = [load_study(name) for name in dict.fromkeys(names)]
    shop = Workshop(settings)
    made: list[tuple[StudyResult, Path | None]] = []
    failures: list[str] = []
    shared = [want for study in studies if study.kind in ON_FEATURES for want in wants_of(study, shop)]
    shop.make_banks(shared)
    common = dict(shop.seconds)  # of all studies of this run together
    for study in track(studies, "studies"):
        shop.seconds.clear()
        try:
            parts = _parts(study, shop, output)
        except OnesdaugError as error:
            failures.append(f"{study.name}: {error}")
            continue
        spent = {**(common if study.kind in ON_FEATURES else {}), **shop.seconds}
        spent["from the start of the run"] = time.perf_counter() - began
        result = StudyResult(
            study=study.name,
            tag=tag,
            title=study.title,
            paper=study.paper,
            about=study.about,
            literature=study.literature,
            made=_made(study, shop, command, spent),
            **parts,
        )
        empty = not any(parts[name] for name in parts if name not in ("missing", "claims"))
        # nothing could be run: said, but never in the place of something that was
        keep = not empty or not (output / result.file).exists()
        made.append((result, result.save(output) if keep else None))
    shop.close()
    return Outcome(tuple(made), tuple(failures))


def _parts(study: Study, shop: Workshop, output: Path) -> dict[str, Any]:
    """The fields of a StudyResult that this kind of study fills."""
    match study.kind:
        case "fewshot":
            cells, claims = tables(study, shop)
            return {"cells": cells, "claims": claims, "missing": missing(study, shop)}
        case "theory":
            found = theory(study, shop)
            return {"theory": found, "simulations": simulations(shop), "missing": missing(study, shop)}
        case "efficiency":
            times, lines = timings(study, shop)
            return {"timings": times, "missing": tuple(lines)}
        case "qualitative":
            pictures, lines = sheets(study, shop, output)
            return {"sheets": pictures, "missing": tuple(lines)}
        case "pope":
            rows, lines = answers(study, shop)
            return {"answers": rows, "missing": tuple(lines)}


def missing(study: Study, shop: Workshop) -> tuple[str, ...]:
    """One line for everything this study could not have, each once."""
    lines: dict[str, None] = {}
    for want in wants_of(study, shop):
        try:
            shop.path(want)
        except Missing as line:
            lines[str(line)] = None
    return tuple(lines)


def _made(study: Study, shop: Workshop, command: str, seconds: dict[str, float]) -> Made:
    settings = shop.settings
    data, encoders, classifiers, generators = {}, {}, {}, {}
    for name in study.data:
        try:
            data[Path(name).name] = shop.data_fact(name, JUDGED_ON if study.kind == "qualitative" else "")
        except Missing:
            continue
        for classifier in study.classifiers:
            if name in classifier.encoder:
                try:
                    encoder, head = shop.classifier(classifier, name)
                except Missing:
                    continue
                key = f"{classifier.name}, {Path(name).name}"
                encoders[key] = encoder.fingerprint
                classifiers[key] = describe(classifier, name, head, shop.card(classifier, name))
    for generator in generators_of(study, shop) if study.kind != "pope" else ():
        try:
            augmenter = shop.augmenter(generator)
        except Missing:
            continue
        name = Path(generator).name
        generators[name] = f"{augmenter.fingerprint} · {_settings(augmenter.config.model_dump())}"
        for row in (row for row in study.rows if row.generator.options()):
            try:
                generators[f"{name}, {row.label}"] = shop.augmenter(generator, loading=row.generator).fingerprint
            except Missing:
                continue
        for place in study.settings:
            if Path(place).name in data and name in study.settings[place]:
                row = study.row_on(Row(id="", label="", views="generated"), place, generator)
                generators[f"{name}, {Path(place).name}"] = _settings(shop.config(row, generator).model_dump())
    first, draws = settings.seed, settings.seeds or study.seeds
    seeds: dict[str, int | list[int]] = {"views": first if draws == 1 else [*range(first, first + draws)]}
    if study.kind in ON_FEATURES:
        seeds["episodes"] = first
    return Made(
        command=command,
        commit=settings.commit,
        date=datetime.now(UTC).date().isoformat(),
        machine=describe_machine(shop.device) | ({} if settings.compile == "off" else {"compile": settings.compile}),
        seconds={stage: round(value, 2) for stage, value in seconds.items()},
        seeds=seeds,
        data=data,
        encoders=encoders,
        classifiers=classifiers,
        generators=generators,
    )


def _settings(config: dict[str, Any]) -> str:
    """The operator's settings in one line; those at rest are left out."""
    flat = {k: v for k, v in config.items() if v not in (None, "", (0.0, 1.0)) and k != "shape"}
    shape = config["shape"]
    tweak = "no tweak" if shape is None else "tweak " + ", ".join(f"{k} {v}" for k, v in shape.items())
    return " · ".join([*(f"{k} {v}" for k, v in flat.items()), tweak])
