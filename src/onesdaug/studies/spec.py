"""A study is data: which classifiers on which images, with which views, and what the paper says came out.

Every `NAME.toml` beside this file is one table or figure of the paper; the models here are its grammar.
"""

from __future__ import annotations

import tomllib
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from onesdaug.errors import ConfigError
from onesdaug.studies.result import Literature, Paper

ORDER = (
    "headline", "main", "fine-grained", "transformers", "pope", "grid", "ablation", "efficiency", "qualitative",
    "theory",
)  # fmt: skip
Views = Literal["crop-flip", "traditional", "shape", "oracle", "round-trip", "generated"]
BASELINE, TRADITIONAL = "none", "crop-flip"
BY_GENERATOR = ("generated", "round-trip")  # one bank for each generator of the run
SAME_FOR_ALL_SEEDS = ("oracle", "round-trip")


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Classifier(_Model):
    """A frozen encoder and a head.

    `encoder` names, for each benchmark, a released checkpoint, which brings its own head, or anything that
    `load_encoder` takes, with the head named here.
    """

    name: str
    of_paper: str = ""  # the classifier of the paper whose values stand beside it, where that is not its own name
    encoder: dict[str, str]
    head: str | None = None
    metric: dict[str, str] = {}  # per benchmark; else the head's own
    paper_metric: dict[str, str] = {}  # what the paper scores with, per benchmark
    needs: str = ""  # how to get it, where it cannot come with the repository


class Loading(_Model):
    """How a generator is loaded where that is not as released: other networks behind the same name, other views."""

    side: int | None = Field(None, gt=0)  # of its square, in pixels
    decoder: str | None = None  # folder or hub id of a tiny decoder; a relative path starts where the study is run

    def options(self) -> dict[str, Any]:
        return self.model_dump(exclude_none=True)


class Row(_Model):
    """One way of making views. `generated` stands for every generator of the run, each with its own preset.

    `round-trip` is what the generator's autoencoder alone makes of an image.
    """

    id: str
    label: str
    views: Views
    config: dict[str, Any] = {}  # settings of the operator that differ from the preset
    generator: Loading = Loading()
    original_weight: float = Field(0.5, ge=0, le=1)
    uses: tuple[tuple[int, int], ...] | None = None  # (support, query) views; else the study's

    @model_validator(mode="after")
    def _loads_what_it_has(self) -> Row:
        if self.generator.options() and self.views != "generated":
            raise ValueError(f"row {self.id} has views {self.views}, which no generator makes: leave out `generator`")
        return self


class Ref(_Model):
    """A row with a number of views, as a side of a comparison."""

    row: str
    support: int = 0
    query: int = 0


class ClaimSpec(_Model):
    """The paper says that one side beats the other; it is tested wherever both were run.

    Of several on the better side each has to win. With a margin the sentence is "no worse": the difference may be
    negative, but the whole interval has to lie above minus the margin.
    """

    says: str
    better: tuple[Ref, ...]
    than: Ref
    shots: tuple[int, ...] = (1,)
    margin: float = Field(0.0, ge=0)  # percentage points
    classifiers: tuple[str, ...] = ()  # the paper's, where a study has others beside them; empty: all are

    @field_validator("better", mode="before")
    @classmethod
    def _one_or_more(cls, value: Any) -> Any:
        return [value] if isinstance(value, dict | Ref) else value


class PaperValue(_Model):
    data: str
    classifier: str
    shot: int = 1
    row: str = "generated"
    support: int = 0
    query: int = 0
    value: float
    ci95: float | None = None


class Speed(_Model):
    """The timing grid: every solver at every noise level."""

    solvers: tuple[tuple[str, int], ...]  # name, steps
    noise_levels: tuple[float, ...]
    repeats: int = Field(25, ge=20)  # fewer make a median that is mostly noise
    paper: dict[str, float] = {}  # "ddpm 0.25" -> seconds


class Figure(_Model):
    """A contact sheet: one line of settings per row, one noise level per column."""

    title: str
    shows: str  # what is across and down; what came of it is measured, never written here
    rows: tuple[tuple[str, dict[str, Any]], ...]  # label, settings
    noise_levels: tuple[float, ...]


class PopeRow(_Model):
    method: str
    k: int = 0
    vcd: bool = False
    accuracy: float
    f1: float


class Study(_Model):
    name: str
    kind: Literal["fewshot", "theory", "efficiency", "qualitative", "pope"]
    title: str
    paper: str
    about: str
    data: tuple[str, ...] = ()
    generators: tuple[str, ...] = ("pocket", "pocket-imagenet", "sd15")
    classifiers: tuple[Classifier, ...] = ()
    shots: tuple[int, ...] = (1,)
    uses: tuple[tuple[int, int], ...] = ()
    episodes: int = 3000
    seeds: int = Field(1, ge=1)  # views are drawn so many times over, and the interval covers that too
    rows: tuple[Row, ...] = ()
    # benchmark -> generator -> what differs from its preset there, chosen on that benchmark's validation classes
    settings: dict[str, dict[str, dict[str, Any]]] = {}
    claims: tuple[ClaimSpec, ...] = ()
    paper_values: tuple[PaperValue, ...] = ()
    literature: tuple[Literature, ...] = ()
    speed: Speed | None = None
    presets: dict[str, str] = {}  # generator -> preset, where it is not the generator's own
    figures: tuple[Figure, ...] = ()
    pope: tuple[PopeRow, ...] = ()
    model: str = ""  # the vision-language model
    questions: str = ""  # its file of questions

    @model_validator(mode="after")
    def _refer_to_rows(self) -> Study:
        known = {row.id for row in self.rows} | {BASELINE}
        named = [ref.row for claim in self.claims for ref in (*claim.better, claim.than)]
        named += [value.row for value in self.paper_values]
        if unknown := sorted(set(named) - known):
            raise ValueError(f"no row called {', '.join(unknown)}; rows are {', '.join(sorted(known))}")
        return self

    def row_on(self, row: Row, data: str, generator: str) -> Row:
        """The row as it is run on a benchmark with a generator: the row's own settings have the last word."""
        chosen = self.settings.get(data, {}).get(Path(generator).name, {})
        return row.model_copy(update={"config": {**chosen, **row.config}}) if chosen else row

    def paper_value(self, data: str, classifier: str, shot: int, row: str, support: int, query: int) -> Paper | None:
        named = {c.name: c.of_paper for c in self.classifiers if c.of_paper}
        wanted = (data, named.get(classifier, classifier), shot, row, support, query)
        for v in self.paper_values:
            if (v.data, v.classifier, v.shot, v.row, v.support, v.query) == wanted:
                return Paper(value=v.value, ci95=v.ci95)
        return None


def names() -> tuple[str, ...]:
    """The studies that come with the package, in the order of the paper."""
    return ORDER


@cache
def load_study(name: str) -> Study:
    """A study by name, or a user's own file (`mine.toml`)."""
    if name in ORDER:
        source = files("onesdaug.studies").joinpath(f"{name}.toml")
        text, shown = source.read_text(encoding="utf-8"), f"{name}.toml"
    elif name.endswith(".toml"):
        if not Path(name).is_file():
            raise ConfigError(f"there is no study file {name}")
        text, shown = Path(name).read_text(encoding="utf-8"), name
    else:
        raise ConfigError(
            f"there is no study {name!r}; studies are {', '.join(ORDER)}, or a file NAME.toml of your own"
        )
    try:
        return Study(**{"name": Path(shown).stem, **tomllib.loads(text)})
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{shown} is not TOML: {error}") from error
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        raise ConfigError(f"{shown}: {place + ': ' if place else ''}{first['msg']}") from error
