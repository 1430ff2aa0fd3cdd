"""Long work: told while it goes on, ended when asked, and nobody's pictures among another's."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from onesdaug.common.progress import progress
from onesdaug.errors import ImageError
from onesdaug.ui.networks import Turns
from onesdaug.ui.work import Cancelled, Stops, Tick, Work


def done(job: Any, stop: threading.Event | None = None) -> list[Tick[Any]]:
    return list(Work(job, stop or threading.Event()).ticks())


def test_a_bar_then_partial_results_then_the_last_one() -> None:
    def job(work: Work[str]) -> str:
        with progress(4, "views") as bar:
            bar.advance()
            work.show("first")
            time.sleep(0.4)
            bar.advance(3)
        return "all"

    ticks = done(job)
    assert ticks[0].words == "Starting" and not any(tick.ended for tick in ticks[:-1])
    assert "first" in [tick.found for tick in ticks] and ticks[-1].ended and not ticks[-1].problem
    assert [tick.found for tick in ticks if tick.found][-1] == "all"
    told = [tick for tick in ticks if tick.share == 0.25]
    assert told and told[0].words.startswith("Drawing: 1 of 4 views")


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (ImageError("notes.txt is a text file"), "notes.txt is a text file"),
        (ZeroDivisionError("oh"), "ZeroDivisionError: oh"),
    ],
)
def test_what_goes_wrong_is_said(error: Exception, told: str) -> None:
    def job(_: Work[str]) -> str:
        raise error

    (*_, last) = done(job)
    assert last.ended and last.problem.endswith(told)


def test_work_ends_when_it_is_cancelled_and_when_nobody_listens() -> None:
    ended: list[str] = []

    def job(work: Work[int]) -> int:
        try:
            while True:
                work.tell(None, "on and on")
                time.sleep(0.01)
        except Cancelled:
            ended.append("cancelled")
            raise

    stop = threading.Event()
    threading.Timer(0.3, stop.set).start()
    assert done(job, stop)[-1].problem == "Cancelled."
    listening = Work(job, threading.Event()).ticks()
    next(listening)
    listening.close()  # the visitor is gone
    for _ in range(200):
        if len(ended) == 2:
            break
        time.sleep(0.01)
    assert ended == ["cancelled"] * 2


def test_turns_are_taken_in_the_order_they_were_asked_for() -> None:
    turns, order, waited = Turns(), [], []
    first = threading.Event()

    def take(name: int) -> None:
        with turns.turn(lambda: waited.append(name)):
            order.append(name)
            if name == 0:
                first.wait()

    threads = [threading.Thread(target=take, args=(name,)) for name in range(4)]
    for thread in threads:
        thread.start()
        time.sleep(0.05)

    def gives_up() -> None:
        raise Cancelled

    with pytest.raises(Cancelled), turns.turn(gives_up):  # who gives up does not hold up the others
        raise AssertionError("it was not their turn")
    first.set()
    for thread in threads:
        thread.join(5)
    assert order == [0, 1, 2, 3] and 3 in waited


def test_a_visitor_ends_only_their_own_work() -> None:
    stops = Stops()
    mine, other, theirs = stops.begin("a", "views"), stops.begin("a", "tune"), stops.begin("b", "views")
    again = stops.begin("a", "views")
    assert mine.is_set() and not again.is_set()
    stops.end("a", "views")
    assert again.is_set() and not other.is_set()
    stops.end("a")
    assert other.is_set() and not theirs.is_set()
