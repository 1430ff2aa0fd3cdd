"""A table before it becomes HTML or Markdown: lines of entries, each a number with its interval and remarks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from onesdaug.report.shell import text
from onesdaug.report.strings import accuracy, points
from onesdaug.statistics import Paired, Summary

_DASH = "–"


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


def of_accuracy(summary: Summary, notes: Sequence[str] = (), mark: str = "") -> Entry:
    return Entry(accuracy(summary), tuple(notes), mark)


def of_gain(gain: Paired | None) -> Entry:
    """A paired difference; green or red where its interval leaves out zero."""
    return Entry() if gain is None else Entry(points(gain), mark=direction(gain))


def direction(gain: Paired | None) -> str:
    if gain is None or not abs(gain.difference) > gain.ci95:
        return ""
    return "up" if gain.difference > 0 else "down"


def to_html(table: Table) -> str:
    """With as many columns as there are numbers; on a phone the names stand above them."""
    count = len(table.columns) - 1
    head = "".join(f'<th scope="col">{_breakable(name)}</th>' for name in table.columns)
    body = "\n".join(_html_line(line, count) for line in table.lines)
    caption = f"<caption>{text(table.title)}</caption>" if table.title else ""
    note = f'\n<p class="note">{text(table.note)}</p>' if table.note else ""
    wide = "wide few" if count == 1 else "wide dense" if count > 6 else "wide"
    return (
        f'<div class="scroll"><table class="{wide}" style="--n:{count}">{caption}'
        f"<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody></table></div>{note}"
    )


def _breakable(name: str) -> str:
    """Where a narrow column may break its heading."""
    return text(name).replace("ImageNet", "<wbr>ImageNet").replace("complexity", "com&shy;plexity")


def _html_line(line: Line, count: int) -> str:
    if not line.entries:
        return f'<tr class="group"><th colspan="{count + 1}" scope="colgroup">{text(line.name)}</th></tr>'
    cells = "".join(_html_entry(entry) for entry in line.entries)
    marked = f' class="{text(line.mark)}"' if line.mark else ""
    first, dot, rest = text(line.name).partition(" · ")
    name = f'<span class="name">{first}</span>{dot}{rest}' if dot else first  # 1S-DAug-1 stays whole
    return f'<tr{marked}><th scope="row">{name}</th>{cells}</tr>'


def _html_entry(entry: Entry) -> str:
    value, sign, interval = text(entry.value).partition(" ± ")
    shown = f'{value} <span class="ci">± {interval}</span>' if sign else value
    notes = "".join(f'<span class="sub">{text(note)}</span>' for note in entry.notes)
    return f'<td class="{entry.mark}">{shown}{notes}</td>' if entry.mark else f"<td>{shown}{notes}</td>"


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
