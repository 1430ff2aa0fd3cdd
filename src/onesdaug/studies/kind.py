"""What a kind of study is: the grammar of its files, its runner, and what is shown of its results.

A new kind is one file: a subclass of `StudyKind` under `@study_kind("name")`. The package's own lie in `kinds/`, where
they are found by the name of their file; anyone else's is named `package.module:Class` in the study's TOML, or comes
with a package that has an entry point in the group `onesdaug.studies`.
"""

from __future__ import annotations

import importlib
import pkgutil
import sys
from collections.abc import Callable, Iterable
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


_REGISTERED: dict[str, type[StudyKind[Any]]] = {}
Kind = TypeVar("Kind", bound=type[StudyKind[Any]])


def study_kind(name: str) -> Callable[[Kind], Kind]:
    """Register a class under the name that `kind = "…"` gives in a study's file."""

    def register(kind: Kind) -> Kind:
        _REGISTERED[name] = kind
        return kind

    return register


def kind_names() -> tuple[str, ...]:
    own = [module.name for module in pkgutil.iter_modules([str(Path(__file__).with_name("kinds"))])]
    return tuple(sorted({*own, *_REGISTERED, *(point.name for point in entry_points(group="onesdaug.studies"))}))


def kind_named(name: str) -> StudyKind[Any]:
    """By its name, or as `package.module:Class`."""
    if name not in _REGISTERED:
        others = {point.name: point.value for point in entry_points(group="onesdaug.studies")}
        _import(name, others.get(name, name))
    return _REGISTERED[name]()


def shown_by(result: StudyResult) -> Iterable[Part]:
    """What the result's kind shows of it; where that kind is not installed, the tables that were stored."""
    try:
        kind = kind_named(result.kind)
    except ConfigError:
        return result.tables
    return kind.show(result)


def _import(name: str, place: str) -> None:
    module, _, attribute = place.partition(":")
    if not attribute:
        if name not in kind_names():
            known = ", ".join(kind_names())
            raise ConfigError(f"there is no kind of study {name!r}; kinds are {known}, or package.module:Class")
        importlib.import_module(f"onesdaug.studies.kinds.{name}")
        return
    if (here := str(Path.cwd())) not in sys.path:  # a script's own folder counts, as with `python -m`
        sys.path.insert(0, here)
    try:
        found = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"cannot load the kind of study {place!r}: {error}") from error
    if not (isinstance(found, type) and issubclass(found, StudyKind)):
        raise ConfigError(f"{place} is no StudyKind")
    _REGISTERED[name] = found
