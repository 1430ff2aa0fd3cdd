"""The one table: lines of entries, each a number with its interval and remarks, for every kind of output.

Pages (templates/parts.html), Markdown, LaTeX, CSV and the terminal show the same strings.
"""

from __future__ import annotations

import csv
import io
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain

_DASH = "–"
_KNOWN = ("pocket", "pocket-imagenet", "sd15", "photo", "photo-128")  # each has one colour on every page
_COLOURS = 6  # of style.css; what is not known shares those that are left


@dataclass(frozen=True)
class Entry:
    """One cell: a number (with its interval after ±), and lines in small print beneath."""

    value: str = _DASH
    notes: tuple[str, ...] = ()
    mark: str = ""  # up, down: an interval that leaves out zero


@dataclass(frozen=True)
class Line:
    """A row; without entries, a heading over the rows that follow."""

    name: str
    entries: tuple[Entry, ...] = ()
    mark: str = ""  # the class that gives the row its colour, here and in the plots


@dataclass(frozen=True)
class Table:
    title: str
    columns: tuple[str, ...]  # the first stands over the names
    lines: tuple[Line, ...]
    note: str = ""

    def without_empty_columns(self) -> Table:
        """Columns that hold nothing but dashes say nothing."""
        rows = [line.entries for line in self.lines if line.entries]
        kept = [i for i in range(len(self.columns) - 1) if any(row[i].value != _DASH for row in rows)]
        lines = tuple(
            Line(line.name, tuple(line.entries[i] for i in kept if line.entries), line.mark) for line in self.lines
        )
        return Table(self.title, (self.columns[0], *(self.columns[i + 1] for i in kept)), lines, self.note)

    def with_note(self, note: str) -> Table:
        return replace(self, note=note)

    @classmethod
    def of_text(cls, title: str, columns: Sequence[str], rows: Iterable[Sequence[str]], note: str = "") -> Table:
        """From plain strings; what is empty is a dash."""
        lines = (Line(name, tuple(Entry(value or _DASH) for value in values)) for name, *values in rows)
        return cls(title, tuple(columns), tuple(lines), note)


def generator_mark(generator: str) -> str:
    """The class that colours a generator's rows, lines and dots: the same on every page."""
    place = (
        _KNOWN.index(generator)
        if generator in _KNOWN
        else len(_KNOWN) + zlib.crc32(generator.encode("utf-8", "replace")) % (_COLOURS - len(_KNOWN))
    )
    return f"g{place}"


def to_markdown(table: Table) -> str:
    count = len(table.columns) - 1
    lines = [f"**{plain(table.title)}**", ""] if table.title else []
    lines.append("| " + " | ".join(plain(name) for name in table.columns) + " |")
    lines.append("|---" + "|--:" * count + "|")
    for line in table.lines:
        name = plain(line.name) if line.entries else f"**{plain(line.name)}**"
        entries = [_markdown_entry(entry) for entry in line.entries] or [""] * count
        lines.append("| " + " | ".join([name, *entries]) + " |")
    if table.note:
        lines += ["", f"*{plain(table.note)}*"]
    return "\n".join(lines)


def _markdown_entry(entry: Entry) -> str:
    return "<br>".join([plain(entry.value), *(plain(note) for note in entry.notes)])


def plain(value: object) -> str:
    """Text that Markdown leaves alone, on one line; backticks keep their meaning."""
    shown = " ".join(str(value).encode("utf-8", "replace").decode().split())
    return shown.replace("&", "&amp;").replace("<", "&lt;").replace("|", "\\|").replace("*", "\\*")


def to_csv(tables: Iterable[tuple[str, Table]]) -> str:
    """All tables as one list of numbers: where each is from, its row and column, its interval and its remarks."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(("source", "table", "row", "column", "value", "ci95", "remarks"))
    for source, table in tables:
        writer.writerows((source, table.title, *cells) for cells in _long(table))
    return file.getvalue()


def _long(table: Table) -> Iterator[tuple[str, str, str, str, str]]:
    group = ""
    for line in table.lines:
        if not line.entries:
            group = f"{line.name}: "
        for column, entry in zip(table.columns[1:], line.entries, strict=bool(line.entries)):
            if entry != Entry():
                value, _, interval = entry.value.partition(" ± ")
                yield f"{group}{line.name}", column, value, interval, "; ".join(entry.notes)


def to_latex(table: Table) -> str:
    """A `tabular` with booktabs' rules; remarks stand in brackets."""
    width = len(table.columns)
    head = " & ".join(latex(name) for name in table.columns)
    body = []
    for line in table.lines:
        if line.entries:
            cells = (latex(" ".join([e.value, *(f"({note})" for note in e.notes)])) for e in line.entries)
            body.append(" & ".join(chain([latex(line.name)], cells)) + r" \\")
        else:
            body.append(rf"\multicolumn{{{width}}}{{l}}{{\textbf{{{latex(line.name)}}}}} \\")
    return "\n".join(
        [
            rf"\begin{{tabular}}{{l{'r' * (width - 1)}}}",
            rf"\toprule {head} \\ \midrule",
            *body,
            r"\bottomrule",
            r"\end{tabular}",
            *([rf"\par\smallskip\noindent {latex(table.note)}"] if table.note else []),
        ]
    )


_LATEX = {
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
    "→": r"$\to$",
    "×": r"$\times$",
    "·": r"$\cdot$",
    "√": r"$\surd$",
    "½": r"$\frac{1}{2}$",
    "–": "--",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
}


def latex(value: str) -> str:
    """Text that LaTeX prints as it is."""
    return "".join(_LATEX.get(sign, sign) for sign in " ".join(value.encode("utf-8", "replace").decode().split()))
