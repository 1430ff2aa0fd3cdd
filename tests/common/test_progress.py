"""What is told of a long loop: nothing by a library, a bar on a terminal, lines elsewhere."""

from __future__ import annotations

import io
import sys
import threading
import time

import pytest

from onesdaug.common import progress as channel
from onesdaug.common.progress import Progress, log, partly, printable, progress, shown, track, watched


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channel, "EVERY", 0.05)


def wait_for(text: str, told: io.StringIO) -> str:
    end = time.monotonic() + 10
    while text not in told.getvalue() and time.monotonic() < end:
        time.sleep(0.01)
    return told.getvalue()


def test_a_library_is_silent(quick: None, capsys: pytest.CaptureFixture[str]) -> None:
    with progress(3, "images") as bar:
        log.info("nobody hears this")
        bar.advance(2, skipped=1)
        time.sleep(0.15)
    assert (bar.done, bar.worked) == (3, 2)
    assert capsys.readouterr() == ("", "")


def test_lines_without_a_terminal(quick: None, monkeypatch: pytest.MonkeyPatch) -> None:
    told = io.StringIO()
    monkeypatch.setattr(sys, "stderr", told)
    with shown():
        assert wait_for("still working\n", told).startswith("still working\n")  # before the loop begins
        told_in_a_loop(told)
    after = told.getvalue()
    time.sleep(0.15)
    assert told.getvalue() == after


def told_in_a_loop(told: io.StringIO) -> None:
    with progress(1000, "images", "embedding") as bar:
        assert "embedding: 0 of 1,000 images, none done yet\n" in wait_for("none", told)  # before the first is
        bar.note = "90 % right"
        bar.advance(10, skipped=500)
        line = wait_for("right", told).splitlines()[-1]
        assert line.startswith("embedding: 510 of 1,000 images, 90 % right, ") and " images/s, about" in line
        with progress(5, "steps"):  # of two loops the inner one speaks
            wait_for("0 of 5 steps", told)
            before = told.getvalue().count("images")
            time.sleep(0.2)
            assert told.getvalue().count("images") <= before + 1


def test_messages_are_shown_with_seconds_where_wanted(capsys: pytest.CaptureFixture[str]) -> None:
    with shown(timed=True):
        log.info("a %s of [red]paths[/red] \udc80", "message")
        log.warning("a worry")
        log.debug("a detail")
    log.warning("after the command")
    out, err = capsys.readouterr()
    first, second = err.splitlines()[:2]
    assert out == "" and first.endswith("s] a message of [red]paths[/red] ?") and first.startswith("[")
    assert second.endswith("s] warning: a worry") and "detail" not in err


def test_bars_on_a_terminal_leave_messages_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    told = io.StringIO()
    monkeypatch.setattr(sys, "stderr", told)
    monkeypatch.setattr(told, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    with shown(), progress(4, "studies") as outer:
        for _ in range(4):
            with progress(10, "images") as inner:
                inner.advance(10)
                log.info("a line between the bars")
            outer.advance()
    shown_at_the_end = told.getvalue()
    assert shown_at_the_end.count("a line between the bars") == 4 and "4/4" in shown_at_the_end


def test_messages_hold_only_characters(caplog: pytest.LogCaptureFixture) -> None:
    log.warning("cannot read %s", "name-\udc80.png")
    assert caplog.messages == ["cannot read name-?.png"]


@pytest.mark.parametrize(
    ("name", "shown_as"),
    [
        ("\x1b]0;mine\x07.png", "\\x1b]0;mine\\x07.png"),
        ("a\rb\x9bc\u202egnp", "a\\rb\\x9bc\\u202egnp"),
        ("größer →\tb\n", "größer →\tb\n"),
        ("\udcff", "?"),
    ],
)
def test_names_cannot_command_the_terminal(name: str, shown_as: str) -> None:
    assert printable(name) == shown_as


def test_the_rate_is_known_before_the_first_is_done(quick: None, monkeypatch: pytest.MonkeyPatch) -> None:
    told = io.StringIO()
    monkeypatch.setattr(sys, "stderr", told)
    with shown(), progress(10, "images", "embedding", parts=4) as bar:
        partly(2)
        line = wait_for("left", told).splitlines()[-1]
        assert line.startswith("embedding: 0 of 10 images, ") and " images/s, about" in line
        assert (bar.done, bar.begun) == (0, 0.5)
        with progress(3, "steps"):  # a loop that did not ask for parts is told none
            partly(1)
        bar.advance()
        assert (bar.done, bar.begun) == (1, 0.0)
        partly(100)  # more parts than were expected: no less than nothing is left
        assert (bar.done, bar.begun) == (1, 9.0)
    partly(1)  # nobody listens: nothing happens


def test_each_item_is_named_while_it_is_at_work(quick: None, monkeypatch: pytest.MonkeyPatch) -> None:
    told = io.StringIO()
    monkeypatch.setattr(sys, "stderr", told)
    with shown():
        for name in track(["main", "grid"], "studies", lambda name: f"study {name}"):
            wait_for(f"study {name}: ", told)
    assert "study main: 0 of 2 studies, none done yet" in told.getvalue() and "study grid: 1 of 2" in told.getvalue()


def test_what_came_before_the_work_is_not_in_the_rate() -> None:
    with progress(10, "steps") as bar:
        time.sleep(0.2)
        bar.advance(0, skipped=5)
        bar.advance()
        assert bar.rate > 1 / 0.2


def test_a_service_does_not_say_that_it_still_works(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(channel, "EVERY", 0.01)
    with shown(talking=False):
        time.sleep(0.1)
    assert capsys.readouterr().err == ""


def test_who_watches_is_told_of_their_own_loops_and_may_end_them(capsys: pytest.CaptureFixture[str]) -> None:
    told: dict[str, list[float]] = {"a": [], "b": []}
    both = threading.Barrier(2)

    def work(name: str, total: int) -> None:
        def tell(loop: Progress) -> None:
            told[name].append((loop.done + loop.begun) / loop.total)

        with watched(tell), progress(total, "views", parts=1) as bar:
            both.wait()
            for _ in range(total):
                partly(0.5)
                bar.advance()
                both.wait()

    with shown(talking=False):
        threads = [threading.Thread(target=work, args=pair) for pair in (("a", 2), ("b", 2))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert told == {"a": [0.25, 0.5, 0.75, 1.0], "b": [0.25, 0.5, 0.75, 1.0]}
    assert capsys.readouterr().err == ""

    def enough(loop: Progress) -> None:
        if loop.done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), watched(enough):
        for place in track([0, 1, 2, 3], "things"):
            assert place < 2
    with progress(1, "things") as bar:  # afterwards nobody is told
        bar.advance()
