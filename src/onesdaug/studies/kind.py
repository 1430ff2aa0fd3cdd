"""What a kind of study is: the grammar of its files, its runner, and what is shown of its results.

A new kind is one file with a subclass of `StudyKind`. The package's own lie in `kinds/`, each a class `Kind` in a file
of its name; anyone else's is named `package.module:Class` in the study's TOML, or comes with a package that has an
entry point in the group `onesdaug.studies`.
"""

from __future__ import annotations

import importlib
import pkgutil
import sys
from collections.abc import Iterable
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

from onesdaug.errors import ConfigError
from onesdaug.report.parts import Part
from onesdaug.report.result import StudyResult
from onesdaug.studies.banks import BankRequest
from onesdaug.studies.context import StudyContext
from onesdaug.studies.provenance import Facts, facts_of
from onesdaug.studies.spec import Study

S = TypeVar("S", bound=Study)
Findings = dict[str, Any]  # fields of a StudyResult


class StudyKind(Generic[S]):
    """Base of all kinds; only `run` has to be written."""

    spec: type[S]  # the grammar: a subclass of Study with this kind's keys, all others are refused
    complete: ClassVar[bool] = False  # whether anything missing makes the run a failure

    def banks(self, study: S, context: StudyContext) -> list[BankRequest]:
        """The feature banks it looks at; those of all studies of a run are made together, views drawn once."""
        return []

    def run(self, study: S, context: StudyContext, output: Path) -> Findings:
        """The result's fields that this kind fills; pictures go into the folder `output`."""
        raise NotImplementedError

    def facts(self, study: S, context: StudyContext) -> Facts:
        """Data, classifiers and generators behind the numbers."""
        return facts_of(study, context)

    def show(self, result: StudyResult) -> Iterable[Part]:
        """Tables, plots and sentences, in order: for the page, the document and the terminal."""
        return result.tables


def kind_names() -> tuple[str, ...]:
    """Ours, and those of installed packages."""
    own = (module.name for module in pkgutil.iter_modules([str(Path(__file__).with_name("kinds"))]))
    return tuple(dict.fromkeys((*own, *(point.name for point in entry_points(group="onesdaug.studies")))))


def kind_named(name: str) -> StudyKind[Any]:
    """By its name, or as `package.module:Class`."""
    if ":" not in name and name not in kind_names():
        known = ", ".join(kind_names())
        raise ConfigError(f"there is no kind of study {name!r}; kinds are {known}, or package.module:Class")
    others = {point.name: point.value for point in entry_points(group="onesdaug.studies")}
    place = name if ":" in name else others.get(name, f"onesdaug.studies.kinds.{name}:Kind")
    if (here := str(Path.cwd())) not in sys.path:  # a script's own folder counts, as with `python -m`
        sys.path.insert(0, here)
    module, _, attribute = place.partition(":")
    try:
        made: StudyKind[Any] = getattr(importlib.import_module(module), attribute)()
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"kind of study {place!r} cannot be loaded: {error}") from error
    return made


def shown_by(result: StudyResult) -> Iterable[Part]:
    """What the result's kind shows of it; where that kind is not installed, the tables that were stored."""
    try:
        kind = kind_named(result.kind)
    except ConfigError:
        return result.tables
    return kind.show(result)
