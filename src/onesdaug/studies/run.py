"""The one runner: from the names of studies to their JSON files."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from onesdaug.common.progress import track
from onesdaug.errors import ConfigError, OnesdaugError
from onesdaug.report.result import StudyResult
from onesdaug.studies.banks import BankRequest
from onesdaug.studies.context import StudyContext
from onesdaug.studies.kind import kind_named
from onesdaug.studies.provenance import made_by
from onesdaug.studies.settings import Settings
from onesdaug.studies.spec import FeatureStudy, load_study


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
    studies = [(study, kind_named(study.kind)) for study in map(load_study, dict.fromkeys(names))]
    context = StudyContext(settings)
    if others := [study.name for study, _ in studies if context.tuned and not isinstance(study, FeatureStudy)]:
        raise ConfigError(f"--preset is for studies of accuracy; {', '.join(others)} has settings of its own")
    made: list[tuple[StudyResult, Path | None]] = []
    failures: list[str] = []
    wanted: dict[str, list[BankRequest]] = {}
    for study, kind in studies:
        try:
            wanted[study.name] = kind.banks(study, context)
        except OnesdaugError as error:
            failures.append(f"{study.name}: {error}")
    context.banks.make([request for requests in wanted.values() for request in requests])
    common = dict(context.seconds)  # of all studies of this run together
    possible = [(study, kind) for study, kind in studies if study.name in wanted]
    for study, kind in track(possible, "studies", lambda one: f"study {one[0].name}"):
        context.seconds.clear()
        try:
            findings = kind.run(study, context, output)
        except OnesdaugError as error:
            failures.append(f"{study.name}: {error}")
            continue
        spent = {**(common if isinstance(study, FeatureStudy) else {}), **context.seconds}
        spent["from the start of the run"] = time.perf_counter() - began
        about = study.model_dump(include={"title", "paper", "about", "kind"})
        provenance = made_by(study, context, kind.facts(study, context), command, spent)
        result = StudyResult(study=study.name, tag=tag, made=provenance, **about, **findings)
        # nothing could be run: said, but never in the place of something that was
        keep = not result.empty or not (output / result.file).exists()
        made.append((result, result.save(output) if keep else None))
        if kind.complete:
            failures += [f"{study.name}: {line}" for line in result.missing]
    context.close()
    return Outcome(tuple(made), tuple(failures))
