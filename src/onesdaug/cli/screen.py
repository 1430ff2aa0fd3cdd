"""What a command shows besides its progress: errors on stderr, results on stdout."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from onesdaug.common.progress import console, printable

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["console", "printable", "results", "show_error"]


def results(width: int = 120) -> Console:
    """Rich on stdout; a pipe or a file gets whole lines, only a terminal narrows a table."""
    from rich.console import Console

    return Console(highlight=False) if sys.stdout.isatty() else Console(width=width, highlight=False)


def show_error(text: str) -> None:
    """One red line (or one per field) on stderr."""
    console().print(f"error: {printable(text)}", style="red", markup=False)
