"""What a command shows: errors, lines and progress, all on stderr so that stdout stays for results."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING

from onesdaug.views.watch import Watch

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, TaskID

_EVERY = 5.0  # seconds between lines when nobody watches


def printable(text: str) -> str:
    """Text that any terminal takes: file names may hold bytes that are no characters."""
    return text.encode("utf-8", "replace").decode()


def console() -> Console:
    """Rich on stderr; long lines are left to the terminal, because a wrapped path cannot be copied."""
    from rich.console import Console

    return Console(stderr=True, soft_wrap=True, highlight=False)


def results(width: int = 120) -> Console:
    """Rich on stdout; a pipe or a file gets whole lines, only a terminal narrows a table."""
    from rich.console import Console

    return Console(highlight=False) if sys.stdout.isatty() else Console(width=width, highlight=False)


def show_error(text: str) -> None:
    """One red line (or one per field) on stderr."""
    console().print(f"error: {printable(text)}", style="red", markup=False)


class ProgressWatch(Watch):
    """A bar with views/s and the time left on a terminal; elsewhere a line every few seconds."""

    def __init__(self, views: int, k: int) -> None:
        self.views, self.k = views, max(1, k)
        self.made = self.done = 0
        self.console = console()
        self.bar: Progress | None = None
        self.task: TaskID | None = None
        self.started = self.told = time.monotonic()

    def __enter__(self) -> ProgressWatch:
        if self.console.is_terminal:
            from rich import progress as p

            self.bar = p.Progress(
                p.TextColumn("views"),
                p.BarColumn(),
                p.MofNCompleteColumn(),
                p.TextColumn("{task.fields[speed]}"),
                p.TimeRemainingColumn(),
                console=self.console,
            )
            self.task = self.bar.add_task("views", total=self.views, speed="")
            self.bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.bar is not None:
            self.bar.stop()

    def advance(self, made: int = 0, skipped: int = 0, failed: int = 0) -> None:
        self.made += made
        self.done += made + skipped + failed
        now = time.monotonic()
        rate = self.made / max(now - self.started, 1e-9)
        speed = f"{rate:.2f} views/s ({rate / self.k:.2f} images/s)" if self.made else ""
        if self.bar is not None and self.task is not None:
            self.bar.update(self.task, completed=self.done, speed=speed)
        elif now - self.told > _EVERY and self.done < self.views:
            self.told = now
            left = f", about {(self.views - self.done) / rate:.0f} s left" if rate else ""
            self.say(f"{self.done} of {self.views} views, {speed or 'none made yet'}{left}")

    def say(self, text: str) -> None:
        self.console.print(printable(text), markup=False)
        sys.stderr.flush()
