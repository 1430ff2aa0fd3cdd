"""The one result: every number a study, the demo, an evaluation or a bench left, and how it came about.

One JSON file each; pages, documents and tables are written from these files alone, never from a run.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pydantic import Field, model_validator
from pydantic_core import from_json

from onesdaug.common.files import write_text
from onesdaug.common.reading import read_bytes, read_json
from onesdaug.errors import DataError
from onesdaug.report.records import (
    Answer,
    Cell,
    Claim,
    Literature,
    Photograph,
    Record,
    Sheet,
    Simulation,
    Theory,
    Timing,
)
from onesdaug.report.table import Table

SCHEMA = 1
# of the paper
ORDER = (
    "headline", "tuned", "main", "fine-grained", "transformers", "pope", "grid", "ablation", "efficiency",
    "qualitative", "theory",
)  # fmt: skip
_KIND_OF_PART = {
    "theory": "theory",
    "simulations": "theory",
    "timings": "efficiency",
    "sheets": "qualitative",
    "answers": "pope",
}


class Made(Record):
    """How the numbers came about."""

    command: str
    commit: str
    date: str  # UTC, day
    machine: dict[str, str]
    seconds: dict[str, float]  # stage -> seconds; what was found in a cache counts as it took to find it
    seeds: dict[str, int | list[int]]
    data: dict[str, str]  # name -> fingerprint and size
    encoders: dict[str, str] = Field(default_factory=dict)
    # name -> how it was trained and is scored, where that is not as in the paper
    classifiers: dict[str, str] = Field(default_factory=dict)
    generators: dict[str, str] = Field(default_factory=dict)  # name -> fingerprint and settings
    also: tuple[Made, ...] = ()  # later runs, whose generators were joined to these


class StudyResult(Record):
    """Everything a page shows of one study; parts a study does not have are empty."""

    study: str
    kind: str = "fewshot"  # who wrote it, and shows it
    tag: str = ""  # tells runs of one study apart, on other machines for instance
    schema_version: int = SCHEMA
    title: str
    paper: str  # "Table 1"
    about: str
    made: Made
    cells: tuple[Cell, ...] = ()
    reference: str = "crop-flip"  # the row that `over_tta` compares with; files that name none meant this one
    literature: tuple[Literature, ...] = ()
    claims: tuple[Claim, ...] = ()
    theory: tuple[Theory, ...] = ()
    simulations: tuple[Simulation, ...] = ()
    timings: tuple[Timing, ...] = ()
    sheets: tuple[Sheet, ...] = ()
    answers: tuple[Answer, ...] = ()
    photographs: tuple[Photograph, ...] = ()
    tables: tuple[Table, ...] = ()  # of a kind that has no records of its own
    details: dict[str, Any] = Field(default_factory=dict)  # further facts of one kind
    notes: tuple[str, ...] = ()  # what to know about the numbers, a sentence each
    missing: tuple[str, ...] = ()  # one line each: what could not be run, and how to get what it needs

    @model_validator(mode="before")
    @classmethod
    def _of_a_kind(cls, stored: Any) -> Any:
        """Older files do not name their kind: it is told by what they hold, or by the study."""
        if not isinstance(stored, dict) or "kind" in stored:
            return stored
        found = [kind for part, kind in _KIND_OF_PART.items() if stored.get(part)]
        named = stored.get("study") if stored.get("study") in _KIND_OF_PART.values() else "fewshot"
        return {**stored, "kind": found[0] if found else named}

    @property
    def empty(self) -> bool:
        """Whether nothing could be run."""
        parts = (self.cells, self.theory, self.simulations, self.timings, self.sheets, self.answers)
        return not any((*parts, self.photographs, self.tables, self.details))

    @property
    def file(self) -> str:
        return f"{self.study}{'-' * bool(self.tag)}{self.tag}.json"

    def save(self, folder: Path) -> Path:
        """FOLDER/STUDY.json, whole or not at all."""
        return write_text(folder / self.file, self.model_dump_json(indent=1) + "\n")


def read_result(path: Path) -> StudyResult:
    return read_json(path, StudyResult, "a study's result of this version", strict=False)


def is_result(path: Path) -> bool:
    """Whether this JSON file claims to be a study's result: other results lie in the same folder."""
    text = read_bytes(path)
    if b'"study":' in text[:200]:
        return True
    try:
        found = from_json(text)
    except ValueError as error:
        raise DataError(f"{path} is damaged: {error}") from error
    return isinstance(found, dict) and "study" in found


def find_results(paths: Iterable[Path]) -> tuple[list[tuple[StudyResult, Path]], list[str]]:
    """All results in these folders and files, each with its folder, in the order of the paper; what cannot be read."""
    found: list[tuple[StudyResult, Path]] = []
    problems: list[str] = []
    for path in paths:
        for file in sorted(path.glob("*.json")) if path.is_dir() else [path]:
            try:
                if file == path or is_result(file):
                    found.append((read_result(file), file.parent))
            except DataError as error:
                problems.append(str(error))
    found.sort(key=lambda one: (_place(one[0].study), one[0].study, one[0].tag))
    return found, problems


def _place(study: str) -> int:
    """In the paper's order; what is called after one of its studies (`pope-detector`) comes behind it."""
    return next((place for place, name in enumerate(ORDER) if f"{study}-".startswith(f"{name}-")), len(ORDER))


def read_results(folder: Path) -> list[StudyResult]:
    """All studies of a folder, in the order of the paper."""
    found, problems = find_results([folder])
    if problems:
        raise DataError(problems[0])
    return [result for result, _ in found]
