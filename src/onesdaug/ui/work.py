"""Long work behind a page: in a thread of its own, with a bar, partial results, and an end that can be asked for."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from onesdaug.common.progress import Progress, log, watched
from onesdaug.errors import OnesdaugError

T = TypeVar("T")
EVERY = 0.25  # seconds between two updates of a page


class Cancelled(BaseException):
    """The visitor asked for an end, or is gone. No `Exception`: what is retried or recorded for images is not this."""


@dataclass(frozen=True)
class Tick(Generic[T]):
    """How far the work is: a share of 1 (None: unknown), words for it, and what was found so far, if it is new."""

    share: float | None = None
    words: str = ""
    found: T | None = None
    problem: str = ""
    ended: bool = False


class Work(Generic[T]):
    """One piece of work of one visitor; `job` is given it, to tell how far it is and to ask whether to go on."""

    def __init__(self, job: Callable[[Work[T]], T], stop: threading.Event) -> None:
        self.job, self.stop = job, stop
        self._ticks: queue.SimpleQueue[Tick[T]] = queue.SimpleQueue()

    def tell(self, share: float | None, words: str) -> None:
        self.check()
        self._ticks.put(Tick(share, words))

    def show(self, found: T) -> None:
        """What is there already."""
        self.check()
        self._ticks.put(Tick(found=found))

    def waiting(self) -> None:
        self.tell(None, "Waiting: someone else's pictures are being drawn")

    def check(self) -> None:
        if self.stop.is_set():
            raise Cancelled

    def progress(self, loop: Progress) -> None:
        """Of the loops of the library: the one that moved last."""
        share = (loop.done + loop.begun) / max(1, loop.total)
        left = (loop.total - loop.done - loop.begun) / loop.rate if loop.rate else 0
        doing = loop.doing[:1].upper() + loop.doing[1:] or "Drawing"
        soon = f", about {left:.0f} s left" if left >= 1 else ""
        self.tell(share, f"{doing}: {loop.done} of {loop.total} {loop.what}{soon}")

    def ticks(self) -> Iterator[Tick[T]]:
        """Do the work, and say now and then how far it is; the last one has `ended`."""
        thread = threading.Thread(target=self._run, daemon=True)
        thread.start()
        try:
            last: Tick[T] = Tick(None, "Starting")
            yield last
            while not last.ended:
                last = self._next(last)
                yield last
        finally:
            self.stop.set()  # whoever listened has gone

    def _next(self, last: Tick[T]) -> Tick[T]:
        """What has come since the last update, as one."""
        until: float = time.monotonic() + EVERY
        found: T | None = None
        share, words = last.share, last.words
        while (left := until - time.monotonic()) > 0:
            if self.stop.is_set():  # the thread ends by itself, at its next step
                return Tick(found=found, problem="Cancelled.", ended=True)
            try:
                tick = self._ticks.get(timeout=left)
            except queue.Empty:
                break
            found = tick.found if tick.found is not None else found
            if tick.ended:
                return replace(tick, found=found)
            share, words = (tick.share, tick.words) if tick.words else (share, words)
        return Tick(share, words, found)

    def _run(self) -> None:
        problem = ""
        try:
            with watched(self.progress):
                self._ticks.put(Tick(found=self.job(self)))
        except Cancelled:
            problem = "Cancelled."
        except OnesdaugError as error:
            problem = str(error)
        except BaseException as error:
            log.exception("unexpected")
            problem = f"Something went wrong: {type(error).__name__}: {error}"
        self._ticks.put(Tick(problem=problem, ended=True))


class Stops:
    """How to end what visitors have under way: by visitor and tab. Nothing else is known of them here."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[tuple[str, str], threading.Event] = {}

    def begin(self, visitor: str, tab: str) -> threading.Event:
        """For a new piece of work; an older one of the same tab ends."""
        with self._lock:
            if (before := self._known.get((visitor, tab))) is not None:
                before.set()
            self._known[visitor, tab] = threading.Event()
            return self._known[visitor, tab]

    def end(self, visitor: str, tab: str | None = None) -> None:
        """Of one tab, or of all when the visitor leaves."""
        with self._lock:
            for key in [key for key in self._known if key[0] == visitor and tab in (None, key[1])]:
                self._known.pop(key).set()
