"""What a kind of study is: the grammar of its files, its runner, and what is shown of its results.

A new kind is one file with a subclass of `StudyKind`, named `file.py:Class` in the study's TOML, or offered by a
package as an entry point. The package's own lie in `kinds/`, each a class `Kind` in a file of its name.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

from onesdaug.common.registry import STUDIES
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
    """Base of all kinds; only `run` has to be written (or `show` alone, for what a command of its own has run)."""

    spec: type[S]  # the grammar: a subclass of Study with this kind's keys, all others are refused
    complete: ClassVar[bool] = False  # whether anything missing makes the run a failure

    def banks(self, study: S, context: StudyContext) -> list[BankRequest]:
        """The feature banks it looks at; those of all studies of a run are made together, views drawn once."""
        return []

    def run(self, study: S, context: StudyContext, output: Path) -> Findings:
        """The result's fields that this kind fills; pictures go into the folder `output`."""
        raise ConfigError("studies of this kind are only shown; the command that makes them runs them")

    def facts(self, study: S, context: StudyContext) -> Facts:
        """Data, classifiers and generators behind the numbers."""
        return facts_of(study, context)

    def show(self, result: StudyResult) -> Iterable[Part]:
        """Tables, plots and sentences, in order: for the page, the document and the terminal."""
        return result.tables


for _module in pkgutil.iter_modules([str(Path(__file__).with_name("kinds"))]):
    STUDIES.register(_module.name)(f"onesdaug.studies.kinds.{_module.name}:Kind")


def kind_named(name: str) -> StudyKind[Any]:
    """By its name, or as `package.module:Class`."""
    found = STUDIES.get(name)
    if not (isinstance(found, type) and issubclass(found, StudyKind)):
        raise ConfigError(f"kind of study {name!r} is no subclass of onesdaug.studies.kind.StudyKind")
    made: StudyKind[Any] = found()
    return made


def shown_by(result: StudyResult) -> Iterable[Part]:
    """What the result's kind shows of it; where that kind is not installed, the tables that were stored."""
    try:
        kind = kind_named(result.kind)
    except ConfigError:
        return result.tables
    return kind.show(result)
