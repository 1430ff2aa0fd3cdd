"""What a command shows besides its progress: errors on stderr, results on stdout."""

from __future__ import annotations

import codecs
import io
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import typer

from onesdaug.common.progress import console, printable

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["OUT_OF_TIME", "console", "printable", "results", "resumable", "say", "show_error"]
# for terminals that do not know the sign itself
_PLAIN = {"→": "->", "–": "-", "−": "-", "±": "+-", "×": "x", "·": "-", "≥": ">=", "≤": "<=", "…": "..."}
OUT_OF_TIME = 3  # exit code where --max-seconds came first; the same command goes on


def results(width: int = 120) -> Console:
    """Rich on stdout; a pipe or a file gets whole lines, only a terminal narrows a table."""
    from rich.console import Console

    return Console(width=None if sys.stdout.isatty() else width, highlight=False, emoji=False)


def any_terminal() -> None:
    """Signs that a terminal's encoding lacks become plain ones: no command fails for want of an arrow."""

    def plain(error: UnicodeError) -> tuple[str, int]:
        if not isinstance(error, UnicodeEncodeError):
            raise error
        lacking = error.object[error.start : error.end]
        return "".join(_PLAIN.get(sign, "?") for sign in lacking), error.end

    codecs.register_error("onesdaug", plain)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="onesdaug")


def say(text: str) -> None:
    """A line on stdout; names in it cannot command the terminal."""
    typer.echo(printable(text))


def show_error(text: str) -> None:
    """One red line (or one per field) on stderr."""
    console().print(f"error: {printable(text)}", style="red", markup=False)


@contextmanager
def resumable() -> Iterator[None]:
    """A training that stops because --max-seconds are over has an exit code of its own."""
    from onesdaug.training.loop import OutOfTime

    try:
        yield
    except OutOfTime as late:
        typer.echo(f"{late}: run the same command again to go on", err=True)
        raise typer.Exit(OUT_OF_TIME) from late
