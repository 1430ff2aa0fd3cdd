"""What comes next is made while what came before is used."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


def prefetched(items: Iterable[T]) -> Iterator[T]:
    """The same items in the same order, one ahead, made in a thread; what it raises is raised where they are used."""
    source, end = iter(items), object()
    with ThreadPoolExecutor(1, "onesdaug-prefetch") as thread:
        coming = thread.submit(next, source, end)
        while (item := coming.result()) is not end:
            coming = thread.submit(next, source, end)
            yield item  # type: ignore[misc]
