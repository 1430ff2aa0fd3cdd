"""What a study leaves: one JSON file with every number, how it was made, and what could not be run.

Pages and documents are written from these files alone, never from a run.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, ValidationError

from onesdaug.common.files import write_text
from onesdaug.errors import DataError
from onesdaug.statistics import Paired, Summary

SCHEMA = 1
OPERATOR = "1S-DAug"  # the label of rows that run the paper's operator
CONDITION_ALONE = "condition alone"  # and of those where nothing of the image enters but through the condition
Kind = Literal["baseline", "traditional", "generative", "oracle"]
Verdict = Literal["agrees", "differs", "no clear difference"]


class _Model(BaseModel):
    # a relative gain over a baseline of 0 is not a number, and JSON has no word for that
    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="constants")


class Paper(_Model):
    """A value of the paper, in percent as printed there."""

    value: float
    ci95: float | None = None


class Cell(_Model):
    """One accuracy of a few-shot study, in [0, 1]; cells of one data, classifier and shot share episodes."""

    data: str
    classifier: str
    shot: int
    row: str  # the row's name in the study's file
    label: str  # the same for people
    kind: Kind
    generator: str = ""  # for generative rows
    support: int = 0  # views behind each support image
    query: int = 0  # and behind each query
    original_weight: float = 0.5
    noise_level: float | None = None  # of generative rows; at 1 they are drawn from the condition alone
    accuracy: Summary
    gain: Paired | None = None  # over no views
    over_tta: Paired | None = None  # over crop + flip with as many views
    paper: Paper | None = None


class Literature(_Model):
    """A row that others reported, as the paper quotes it; nothing of it was run here."""

    method: str
    values: dict[str, Paper]  # "miniimagenet 1-shot" -> value


class Instance(_Model):
    """One comparison that a claim was tested on."""

    where: str  # "miniimagenet, FEAT-Res12, 1-shot"
    generator: str = ""  # whose views, where the comparison has any
    row: str = ""  # which row stood on the better side, where each of several has to win: the one that came closest
    difference: Paired
    verdict: Verdict


class Claim(_Model):
    """A statement of the paper and what came out here."""

    says: str
    verdict: Literal["agrees", "differs", "mixed", "no clear difference", "not tested here"]
    margin: float = 0.0  # percentage points by which the better side may lose and still be "no worse"
    instances: tuple[Instance, ...]


class Histogram(_Model):
    """Counts over equal bins between `low` and `high`."""

    low: float
    high: float
    before: tuple[int, ...]
    after: tuple[int, ...]


class Gain(_Model):
    """A named gain: of a class, or of the images above or below the mean of a quantity."""

    name: str
    mean: float
    ci95: float


class Gaps(_Model):
    """The generalisation gap and the proposition's two bounds on it, before and after averaging."""

    before: float
    after: float
    complexity_before: float
    complexity_after: float
    radius_before: float
    radius_after: float


class Theory(_Model):
    """Section 4 on the stored features of one classifier and one generator."""

    data: str
    classifier: str
    generator: str
    label: str  # of the row whose views these are
    noise_level: float
    shot: int
    k: int
    gain: Paired
    lines: tuple[str, ...]  # the explanation in sentences
    original_accuracy: float  # of an original alone, as a voter
    view_accuracy: float  # of one view alone
    disagreement: float
    accuracy_gap: Summary  # accuracy_gap + diversity = risk_difference, exactly
    diversity: Summary
    risk_difference: Summary
    residual: float  # by how much the identity is missed: rounding
    radius_before: float
    radius_after: float
    classes_shrunk: float  # share of classes whose largest norm fell
    images_shrunk: float
    complexity_before: float
    complexity_after: float
    bound_before: float
    bound_after: float
    gap: Gaps | None = None  # E sup (true - empirical risk), the other half of the third proposition
    cosine: Summary  # of a view to its original
    agreement: Summary  # share of views nearest to their own class
    original_agreement: Summary
    view_diversity: Summary | None
    classes: tuple[Gain, ...]
    splits: tuple[Gain, ...]
    norms: Histogram


class Simulation(_Model):
    """P(r̂ < r) under one distribution."""

    distribution: str
    assumption: str
    note: str
    views: int
    probability: float
    ci95: float
    trials: int


class Spread(_Model):
    """Seconds of many calls: the median and the quartiles."""

    median: float
    low: float
    high: float
    calls: int

    @classmethod
    def of(cls, seconds: Sequence[float]) -> Spread:
        low, median, high = np.quantile(seconds, (0.25, 0.5, 0.75)).tolist()
        return cls(median=median, low=low, high=high, calls=len(seconds))


class Timing(_Model):
    """The cost of one view at one noise level."""

    generator: str
    solver: str
    steps: int
    noise_level: float
    steps_run: int
    eager: Spread  # per image, one at a time, after warm-up
    graphs: Spread | None = None  # the same replayed from CUDA graphs, where there are any
    batch: int
    batch_seconds: float  # per image, `batch` at a time
    peak_memory_mb: float
    paper: float | None = None

    @property
    def seconds(self) -> float:
        """Of one view of one image."""
        return self.eager.median


class Sheet(_Model):
    """A picture that lies beside the JSON file."""

    title: str
    caption: str
    file: str


class Answer(_Model):
    """One row of the POPE table, in [0, 1]."""

    method: str
    decoding: str
    k: int
    accuracy: Summary
    f1: float
    precision: float
    recall: float
    yes_ratio: float
    unknown: int
    gain: Paired | None = None
    paper_accuracy: Paper | None = None
    paper_f1: Paper | None = None


class Made(_Model):
    """How the numbers came about."""

    command: str
    commit: str
    date: str  # UTC, day
    machine: dict[str, str]
    seconds: dict[str, float]  # stage -> seconds; what was found in a cache counts as it took to find it
    seeds: dict[str, int | list[int]]
    data: dict[str, str]  # name -> fingerprint and size
    encoders: dict[str, str] = {}
    classifiers: dict[str, str] = {}  # name -> how it was trained and is scored, where that is not as in the paper
    generators: dict[str, str] = {}  # name -> fingerprint and settings


class StudyResult(_Model):
    """Everything a page shows of one study; parts a study does not have are empty."""

    study: str
    tag: str = ""  # tells runs of one study apart, on other machines for instance
    schema_version: int = SCHEMA
    title: str
    paper: str  # "Table 1"
    about: str
    made: Made
    cells: tuple[Cell, ...] = ()
    literature: tuple[Literature, ...] = ()
    claims: tuple[Claim, ...] = ()
    theory: tuple[Theory, ...] = ()
    simulations: tuple[Simulation, ...] = ()
    timings: tuple[Timing, ...] = ()
    sheets: tuple[Sheet, ...] = ()
    answers: tuple[Answer, ...] = ()
    missing: tuple[str, ...] = ()  # one line each: what could not be run, and how to get what it needs

    @property
    def file(self) -> str:
        return f"{self.study}{'-' * bool(self.tag)}{self.tag}.json"

    def save(self, folder: Path) -> Path:
        """FOLDER/STUDY.json, whole or not at all."""
        return write_text(folder / self.file, self.model_dump_json(indent=1) + "\n")


def read_result(path: Path) -> StudyResult:
    try:
        return StudyResult.model_validate_json(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}") from error
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        raise DataError(f"{path} is not a study's result of this version ({place}: {first['msg']})") from error


def is_result(path: Path) -> bool:
    """Whether this JSON file claims to be a study's result: other results lie in the same folder."""
    try:
        return '"study":' in path.read_text(encoding="utf-8")[:200]
    except (OSError, UnicodeDecodeError):
        return False


def read_results(folder: Path) -> list[StudyResult]:
    """All studies of a folder, in the order of the paper."""
    from onesdaug.studies.spec import names

    order = {name: place for place, name in enumerate(names())}
    found = [read_result(path) for path in sorted(folder.glob("*.json")) if is_result(path)]
    return sorted(found, key=lambda result: (order.get(result.study, len(order)), result.study, result.tag))
