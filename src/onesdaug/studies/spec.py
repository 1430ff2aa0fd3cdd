"""A study is data: every `NAME.toml` beside this file is one table or figure of the paper.

The models here are the grammar that kinds of studies share; what only one kind knows stands in its module (`kinds/`).
"""

from __future__ import annotations

import tomllib
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from onesdaug.common.registry import VIEWS
from onesdaug.errors import ConfigError
from onesdaug.report.result import ORDER

DEMO = "demo"  # the only study of ours that is not in the paper
BASELINE = "none"
VALIDATION = "val"  # the split that rows are tuned on
BY_GENERATOR = ("generated", "round-trip")  # one bank for each generator of the run
SAME_FOR_ALL_SEEDS = ("oracle", "round-trip")
TUNED = "tuned"  # of each generator, classifier and number of shots what was best on validation classes


class SpecModel(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Classifier(SpecModel):
    """A frozen encoder and a head.

    `encoder` names, for each benchmark, a released checkpoint, which brings its own head, or anything that
    `load_encoder` takes, with the head named here. With both `head` and `needs` it is a checkpoint that was trained as
    a plain classifier and has no head.
    """

    name: str
    of_paper: str = ""  # the classifier of the paper whose values stand beside it, where that is not its own name
    encoder: dict[str, str]
    head: str | None = None
    metric: dict[str, str] = {}  # per benchmark; else the head's own
    paper_metric: dict[str, str] = {}  # what the paper scores with, per benchmark
    needs: str = ""  # how to get it, where it cannot come with the repository

    @property
    def trained_here(self) -> bool:
        """Whether it is a checkpoint in the folder of checkpoints."""
        return self.head is None or bool(self.needs)


class Loading(SpecModel):
    """How a generator is loaded where that is not as released: other networks behind the same name, other views."""

    side: int | None = Field(None, gt=0)  # of its square, in pixels
    decoder: str | None = None  # folder or hub id of a tiny decoder; a relative path starts where the study is run

    def options(self) -> dict[str, Any]:
        return self.model_dump(exclude_none=True)


class ViewRow(SpecModel):
    """One way of making views: a source of views by name, `shape`, `oracle`, or one of three that go by generator.

    `generated` stands for every generator of the run, each with its own preset; `round-trip` is what the generator's
    autoencoder alone makes of an image. `tuned` draws nothing of its own: of the rows it names, the one and the use of
    its views that is best on validation classes, or no views.
    """

    id: str
    label: str
    views: str
    config: dict[str, Any] = {}  # settings of the operator that differ from the preset
    generator: Loading = Loading()
    original_weight: float = Field(0.5, ge=0, le=1)
    uses: tuple[tuple[int, int], ...] | None = None  # (support, query) views; else the study's
    among: tuple[str, ...] = ()  # of a tuned row: the generated rows it chooses from
    sparing: bool = False  # of a tuned row: a query's views only until its answer is settled

    @field_validator("views")
    @classmethod
    def _known(cls, value: str) -> str:
        if value not in ("oracle", "shape", TUNED, *BY_GENERATOR):
            VIEWS.check(value)
        return value

    @model_validator(mode="after")
    def _loads_what_it_has(self) -> ViewRow:
        if self.generator.options() and self.views != "generated":
            raise ValueError(f"row {self.id} has views {self.views}, which no generator makes: leave out `generator`")
        if (self.views == TUNED) != bool(self.among):
            raise ValueError(f'row {self.id}: `views = "tuned"` and `among`, the rows to choose from, go together')
        return self


class Study(SpecModel):
    """What every study has; each kind adds keys of its own."""

    name: str
    kind: str
    title: str
    paper: str = "none"  # the table or figure it repeats
    about: str = ""
    data: tuple[str, ...] = ()
    generators: tuple[str, ...] = ("pocket", "pocket-imagenet", "sd15")
    classifiers: tuple[Classifier, ...] = ()


class FeatureStudy(Study):
    """A study on stored features: classifiers × data × rows of views."""

    shots: tuple[int, ...] = (1,)
    uses: tuple[tuple[int, int], ...] = ()
    episodes: int = 3000
    seeds: int = Field(1, ge=1)  # views are drawn so many times over, and the interval covers that too
    rows: tuple[ViewRow, ...] = ()
    reference: str = ""  # the row that all others are compared with, beside no views at all
    # benchmark -> generator -> what differs from its preset there, chosen on that benchmark's validation classes
    settings: dict[str, dict[str, dict[str, Any]]] = {}

    @model_validator(mode="after")
    def _chooses_from_rows(self) -> FeatureStudy:
        drawn = {row.id for row in self.rows if row.views == "generated"}
        if unknown := sorted({name for row in self.rows for name in row.among} - drawn):
            raise ValueError(f"tuned rows choose among generated rows, which {', '.join(unknown)} is not")
        return self

    def row_on(self, row: ViewRow, data: str, generator: str) -> ViewRow:
        """The row as it is run on a benchmark with a generator: the row's own settings have the last word."""
        chosen = self.settings.get(data, {}).get(Path(generator).name, {})
        return row.model_copy(update={"config": {**chosen, **row.config}}) if chosen else row


def names() -> tuple[str, ...]:
    """The studies that come with the package, in the order of the paper."""
    return ORDER


def read_study(name: str) -> dict[str, Any]:
    """The keys of a study by name, or of a user's own file (`mine.toml`), as they stand there."""
    built_in = files("onesdaug.studies").joinpath(f"{name}.toml")
    if Path(name).name == name and built_in.is_file():
        text, shown = built_in.read_text(encoding="utf-8"), f"{name}.toml"
    elif name.endswith(".toml"):
        if not Path(name).is_file():
            raise ConfigError(f"there is no study file {name}")
        text, shown = Path(name).read_text(encoding="utf-8"), name
    else:
        raise ConfigError(
            f"there is no study {name!r}; studies are {', '.join((*ORDER, DEMO))}, or a file NAME.toml of your own"
        )
    try:
        return {"name": Path(shown).stem, **tomllib.loads(text)}
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{shown} is not TOML: {error}") from error


@cache
def load_study(name: str) -> Any:
    """What its kind makes of a study (a subclass of `Study`)."""
    from onesdaug.studies.kind import kind_named

    given = read_study(name)
    try:
        return kind_named(str(given.get("kind", "fewshot"))).spec(**given)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        shown = name if name.endswith(".toml") else f"{name}.toml"
        raise ConfigError(f"{shown}: {place + ': ' if place else ''}{first['msg']}") from error
