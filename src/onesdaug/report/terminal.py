"""What is shown of a result, on a terminal."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console
from rich.markup import escape as escape_markup
from rich.table import Table as RichTable

from onesdaug.common.progress import printable
from onesdaug.report.parts import Bullets, Note, Part, in_text
from onesdaug.report.table import Entry, Table


def print_parts(parts: Iterable[Part], screen: Console) -> None:
    for part in in_text(parts):
        if isinstance(part, Table):
            screen.print(to_rich(part))
        elif isinstance(part, Note):
            screen.print(printable(part.text), markup=False, highlight=False)
        elif isinstance(part, Bullets):
            for line in part.lines:
                screen.print(f"  {printable(line)}", markup=False)
        else:
            screen.print(printable(part.title), style="bold", markup=False)
            print_parts(part.parts, screen)


def to_rich(table: Table) -> RichTable:
    """For the terminal: remarks stand beneath their number, colours say what the page's colours say."""
    title, note = escape(table.title), escape(table.note)
    shown = RichTable(title=title or None, title_justify="left", caption=note or None)
    shown.caption_justify = "left"
    for place, name in enumerate(table.columns):
        shown.add_column(escape(name), justify="right" if place else "left")
    for line in table.lines:
        if not line.entries:
            shown.add_section()
            shown.add_row(f"[bold]{escape(line.name)}[/bold]")
            continue
        shown.add_row(escape(line.name), *(_rich_entry(entry) for entry in line.entries))
    return shown


def _rich_entry(entry: Entry) -> str:
    value = escape(entry.value)
    colour = {"up": "green", "down": "red"}.get(entry.mark)
    return "\n".join([f"[{colour}]{value}[/{colour}]" if colour else value, *(escape(note) for note in entry.notes)])


def escape(text: str) -> str:
    """Text that is shown as it is: neither rich nor the terminal is commanded by it."""
    return escape_markup(printable(text))
