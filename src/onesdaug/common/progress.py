"""One channel for what a long command tells: the messages of the logger `onesdaug`, and how far it is. All on stderr.

Nothing is shown outside `shown()`, which the command line opens: a library does not talk.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress as Bars

Item = TypeVar("Item")
log = logging.getLogger("onesdaug")
EVERY = 4.0  # seconds without a word, after which one is said where there is no terminal
_screen: _Screen | None = None
# what moves a terminal's cursor, colours it or turns the direction of writing; lines and tabs stay
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def printable(text: str) -> str:
    """Text that any terminal takes: file names may hold bytes that are no characters, and commands to the terminal."""
    return _CONTROL.sub(lambda sign: ascii(sign[0])[1:-1], text.encode("utf-8", "replace").decode())


def _only_printable(record: logging.LogRecord) -> bool:
    """Whoever else listens to the logger, a file for instance, may not take such names either."""
    record.msg, record.args = printable(record.getMessage()), ()
    return True


log.addFilter(_only_printable)


def console() -> Console:
    """Rich on stderr; long lines are left to the terminal, because a wrapped path cannot be copied."""
    from rich.console import Console

    return Console(stderr=True, soft_wrap=True, highlight=False, emoji=False)  # my_vlm.py:one: is no picture


@contextmanager
def shown(timed: bool = False, talking: bool = True) -> Iterator[None]:
    """Show messages and progress while this lasts; `timed` writes the seconds since its beginning before each line.

    Without a terminal something is said every few seconds, whatever goes on, if it is to be `talking`.
    """
    global _screen
    before, level, screen = _screen, log.level, _Screen(timed)
    log.addHandler(screen)
    log.setLevel(logging.INFO)
    _screen = screen
    speaking = threading.Thread(target=screen.speak, daemon=True)
    if talking:
        speaking.start()
    try:
        yield
    finally:
        screen.ended.set()
        if talking:
            speaking.join()
        _screen = before
        log.setLevel(level)
        log.removeHandler(screen)


@contextmanager
def progress(total: int, what: str, doing: str = "", parts: int = 0) -> Iterator[Progress]:
    """How far a loop over `total` things (`what`, in the plural) is: a bar on a terminal, else a line now and then.

    Where one thing takes long, `parts` says how many of those that `partly` reports make it up.
    """
    made, shown = Progress(total, what, doing, parts), _watch.get() or _screen
    with nullcontext() if shown is None else shown.showing(made):
        yield made


@contextmanager
def watched(tell: Callable[[Progress], None]) -> Iterator[None]:
    """Tell of every step of the loops inside, and of nothing on the screen; what `tell` raises ends them.

    Loops in other threads are not this one's: several users of a service are told of their own.
    """
    before = _watch.set(_Watch(tell))
    try:
        yield
    finally:
        _watch.reset(before)


def track(items: Sequence[Item], what: str, doing: Callable[[Item], str] = lambda _: "") -> Iterator[Item]:
    """Go through the items and show how far that is; `doing` says what is done with one."""
    with progress(len(items), what) as made:
        for item in items:
            made.doing = doing(item)
            made.changed()
            yield item
            made.advance()


def partly(count: float) -> None:
    """So many parts more of what the innermost loop is at: its rate is known before its first thing is done."""
    shown = _watch.get() or _screen
    if shown is not None and shown.active and (loop := shown.active[-1]).parts:
        loop.begun = min(loop.begun + count / loop.parts, loop.total - loop.done)  # parts are an estimate
        loop.changed()


class Progress:
    """Counts what is done; `note` is shown beside it."""

    def __init__(self, total: int, what: str, doing: str = "", parts: int = 0) -> None:
        self.total, self.what, self.doing, self.parts, self.note = total, what, doing, parts, ""
        self.done = self.worked = 0  # what was there already is done, but no work
        self.begun = 0.0  # parts of what is not done yet
        self.changed: Callable[[], None] = lambda: None
        self.restart()

    def restart(self) -> None:
        """The work begins only now: what was before does not count for the rate."""
        self._started = time.monotonic()

    def advance(self, count: int = 1, skipped: int = 0) -> None:
        """So many more are done; those `skipped` took no time and do not count for the rate."""
        if skipped and not self.worked:
            self.restart()
        self.done += count + skipped
        self.worked += count
        self.begun = 0.0
        self.changed()

    @property
    def rate(self) -> float:
        return (self.worked + self.begun) / max(time.monotonic() - self._started, 1e-9)

    @property
    def speed(self) -> str:
        rate = f"{self.rate:,.{2 if self.rate < 100 else 0}f} {self.what}/s" if self.rate else "none done yet"
        return f"{self.note}, {rate}" if self.note else rate

    def told(self) -> str:
        left = f", about {_span((self.total - self.done - self.begun) / self.rate)} left" if self.rate else ""
        return self.speed + left

    def line(self) -> str:
        return f"{self.doing and f'{self.doing}: '}{self.done:,} of {self.total:,} {self.what}, {self.told()}"


class _Watch:
    def __init__(self, tell: Callable[[Progress], None]) -> None:
        self.tell = tell
        self.active: list[Progress] = []

    @contextmanager
    def showing(self, made: Progress) -> Iterator[None]:
        made.changed = lambda: self.tell(made)
        self.active.append(made)
        try:
            yield
        finally:
            self.active.remove(made)


_watch: ContextVar[_Watch | None] = ContextVar("watch", default=None)


class _Screen(logging.Handler):
    def __init__(self, timed: bool) -> None:
        super().__init__()
        self.timed = timed
        self.began = self.told = time.monotonic()
        self.ended = threading.Event()
        self.bars: Bars | None = None
        self.active: list[Progress] = []

    def emit(self, record: logging.LogRecord) -> None:
        warning = record.levelno >= logging.WARNING
        self.write(f"{'warning: ' * warning}{record.getMessage()}", "yellow" if warning else None)

    def write(self, text: str, style: str | None = None) -> None:
        stamp = f"[{time.monotonic() - self.began:6.1f} s] " if self.timed else ""
        target = self.bars.console if self.bars is not None else console()  # above the bars, not through them
        target.print(stamp + printable(text), style=style, markup=False)
        self.told = time.monotonic()

    def speak(self) -> None:
        """Of loops in one another the innermost tells how far it is."""
        while not self.ended.wait(max(0.0, self.told + EVERY - time.monotonic())):
            if console().is_terminal:
                return
            if time.monotonic() - self.told >= EVERY:
                self.write(self.active[-1].line() if self.active else "still working")

    @contextmanager
    def showing(self, made: Progress) -> Iterator[None]:
        self.active.append(made)
        try:
            with self.bar(made) if console().is_terminal else nullcontext():
                yield
        finally:
            self.active.remove(made)

    @contextmanager
    def bar(self, made: Progress) -> Iterator[None]:
        """One more bar below those there are; only the outermost stays when it is done."""
        from rich import progress as p

        outermost = self.bars is None
        if self.bars is None:
            columns = (p.BarColumn(), p.MofNCompleteColumn(), p.TextColumn("{task.fields[speed]}"))
            self.bars = p.Progress(p.TextColumn("{task.description}"), *columns, console=console())
            self.bars.start()
        bars, task = self.bars, self.bars.add_task(made.doing or made.what, total=made.total, speed="")
        made.changed = lambda: bars.update(
            task, description=made.doing or made.what, completed=made.done, speed=made.told()
        )
        made.changed()
        try:
            yield
        finally:
            if outermost:
                bars.stop()
                self.bars = None
            else:
                bars.remove_task(task)


def _span(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"
