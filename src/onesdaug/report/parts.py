"""What is shown of a result, in order: tables, plots, sentences and pictures, before they become a page or a text."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias, Union

from onesdaug.report.table import Table


@dataclass(frozen=True)
class Note:
    """A sentence or two in small print."""

    text: str


@dataclass(frozen=True)
class Bullets:
    """Sentences, each a line of its own."""

    lines: tuple[str, ...]


@dataclass(frozen=True)
class Plot:
    """An SVG with a title, drawn when it is looked at; pages only. An empty one is not shown."""

    title: str
    draw: Callable[[], str]

    @cached_property
    def svg(self) -> str:
        return self.draw()


@dataclass(frozen=True)
class SideBySide:
    """Plots beside each other, as many as there is room for."""

    plots: tuple[Plot, ...]


@dataclass(frozen=True)
class Columns:
    """Two columns of a page, one above the other on a phone."""

    left: tuple[Part, ...]
    right: tuple[Part, ...]


@dataclass(frozen=True)
class Folded:
    """Parts behind a line that opens them; under a heading where nothing folds."""

    title: str
    parts: tuple[Part, ...]
    opened: bool = False


@dataclass(frozen=True)
class OnPage:
    """Shown on pages only."""

    part: Part


@dataclass(frozen=True)
class InText:
    """Shown everywhere but on pages: they say it by a plot."""

    part: Part


Part: TypeAlias = Union[Table, Note, Bullets, Plot, SideBySide, Columns, Folded, OnPage, InText]  # noqa: UP007
Shown: TypeAlias = Table | Note | Bullets | Plot | SideBySide | Columns | Folded


def on_page(parts: Iterable[Part]) -> Iterator[Shown]:
    for part in parts:
        if isinstance(part, OnPage):
            yield from on_page([part.part])
        elif not isinstance(part, InText):
            yield part


def in_text(parts: Iterable[Part]) -> Iterator[Table | Note | Bullets | Folded]:
    for part in parts:
        if isinstance(part, InText):
            yield from in_text([part.part])
        elif isinstance(part, Table | Note | Bullets | Folded):
            yield part


def tables(parts: Iterable[Part]) -> Iterator[Table]:
    """Those of a text, folded ones too."""
    for part in in_text(parts):
        if isinstance(part, Table):
            yield part
        elif isinstance(part, Folded):
            yield from tables(part.parts)
