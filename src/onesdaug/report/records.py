"""The numbers that results hold: accuracies, comparisons, the theory's quantities, times, pictures, answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
from pydantic import BaseModel, ConfigDict

from onesdaug.statistics import Paired, Summary

OPERATOR = "1S-DAug"  # the label of rows that run the paper's operator
CONDITION_ALONE = "condition alone"  # and of those where nothing of the image enters but through the condition
CellKind = Literal["baseline", "traditional", "generative", "oracle"]
Verdict = Literal["agrees", "differs", "no clear difference"]


class Record(BaseModel):
    # a relative gain over a baseline of 0 is not a number, and JSON has no word for that
    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="constants")


class Paper(Record):
    """A value of the paper, in percent as printed there."""

    value: float
    ci95: float | None = None


class Cell(Record):
    """One accuracy of a few-shot study, in [0, 1]; cells of one data, classifier and shot share episodes."""

    data: str
    classifier: str
    shot: int
    row: str  # the row's name in the study's file
    label: str  # the same for people
    kind: CellKind
    generator: str = ""  # for generative rows
    support: int = 0  # views behind each support image
    query: int = 0  # and behind each query
    original_weight: float = 0.5
    noise_level: float | None = None  # of generative rows; at 1 they are drawn from the condition alone
    accuracy: Summary
    gain: Paired | None = None  # over no views
    over_tta: Paired | None = None  # over the study's reference row with as many views
    paper: Paper | None = None


class Literature(Record):
    """A row that others reported, as the paper quotes it; nothing of it was run here."""

    method: str
    values: dict[str, Paper]  # "miniimagenet 1-shot" -> value


class Instance(Record):
    """One comparison that a claim was tested on."""

    where: str  # "miniimagenet, FEAT-Res12, 1-shot"
    generator: str = ""  # whose views, where the comparison has any
    row: str = ""  # which row stood on the better side, where each of several has to win: the one that came closest
    difference: Paired
    verdict: Verdict


class Claim(Record):
    """A statement of the paper and what came out here."""

    says: str
    # "other model": it came out so, but with models or data that are not the paper's, so that it is not judged
    verdict: Literal["agrees", "differs", "mixed", "no clear difference", "other model", "not tested here"]
    margin: float = 0.0  # percentage points by which the better side may lose and still be "no worse"
    instances: tuple[Instance, ...]


def overall(
    instances: Sequence[Instance],
) -> Literal["agrees", "differs", "mixed", "no clear difference", "not tested here"]:
    """What all comparisons say together."""
    kinds = {instance.verdict for instance in instances}
    return "not tested here" if not kinds else kinds.pop() if len(kinds) == 1 else "mixed"


class Histogram(Record):
    """Counts over equal bins between `low` and `high`."""

    low: float
    high: float
    before: tuple[int, ...]
    after: tuple[int, ...]


class Gain(Record):
    """A named gain: of a class, or of the images above or below the mean of a quantity."""

    name: str
    mean: float
    ci95: float


class Gaps(Record):
    """The generalisation gap and the proposition's two bounds on it, before and after averaging."""

    before: float
    after: float
    complexity_before: float
    complexity_after: float
    radius_before: float
    radius_after: float


class Theory(Record):
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


class Simulation(Record):
    """P(r̂ < r) under one distribution."""

    distribution: str
    assumption: str
    note: str
    views: int
    probability: float
    ci95: float
    trials: int


class Spread(Record):
    """Seconds of many calls: the median and the quartiles."""

    median: float
    low: float
    high: float
    calls: int

    @classmethod
    def of(cls, seconds: Sequence[float]) -> Spread:
        low, median, high = np.quantile(seconds, (0.25, 0.5, 0.75)).tolist()
        return cls(median=median, low=low, high=high, calls=len(seconds))


class Timing(Record):
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


class Sheet(Record):
    """A picture that lies beside the JSON file."""

    title: str
    caption: str
    file: str
    generator: str = ""


class Photograph(Record):
    """A picture with its views, as small files that lie beside the JSON file."""

    name: str
    credit: str = ""
    note: str = ""
    pictures: tuple[tuple[str, str], ...]  # caption, file


class Answer(Record):
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
    errors: int = 0
    gain: Paired | None = None
    paper_accuracy: Paper | None = None
    paper_f1: Paper | None = None
    # of a study with several splits and sources of views
    split: str = ""
    row: str = ""
    generator: str = ""
    rule: str = ""  # vote or margin
