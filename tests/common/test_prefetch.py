"""Items that are made one ahead, in a thread."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from onesdaug.common.prefetch import prefetched


def test_items_come_in_order_whatever_they_are() -> None:
    assert list(prefetched([3, None, 1, 2])) == [3, None, 1, 2]
    assert list(prefetched([])) == []


def test_the_next_item_is_made_meanwhile_and_no_other() -> None:
    made: list[int] = []
    events = [threading.Event() for _ in range(6)]

    def items() -> Iterator[int]:
        for i in range(6):
            assert threading.current_thread() is not threading.main_thread()
            made.append(i)
            events[i].set()
            yield i

    for used in prefetched(items()):
        if used < 5:
            assert events[used + 1].wait(10)
        assert made == list(range(min(used + 2, 6)))


def test_errors_are_raised_where_items_are_used_after_those_before_them() -> None:
    def items() -> Iterator[int]:
        yield 1
        raise ValueError("broken")

    coming = prefetched(items())
    assert next(coming) == 1
    with pytest.raises(ValueError, match="broken"):
        next(coming)


def test_whoever_stops_early_leaves_no_thread() -> None:
    coming = prefetched(iter(range(9)))
    assert next(coming) == 0
    coming.close()  # type: ignore[attr-defined]
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("onesdaug-prefetch")]
