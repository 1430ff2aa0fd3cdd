"""Messages of a script on a lent machine, the package's and its own: on stdout, and in a file that comes back."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable
from pathlib import Path

from onesdaug.common.progress import log


def start_log(file: Path) -> Callable[[str], None]:
    """Begin; the function that is returned adds a line. Milliseconds since the start stand before each."""
    file.parent.mkdir(parents=True, exist_ok=True)
    log.setLevel(logging.INFO)
    for handler in (logging.StreamHandler(sys.stdout), logging.FileHandler(file)):
        handler.setFormatter(logging.Formatter("[{relativeCreated:8.0f}] {message}", style="{"))
        log.addHandler(handler)
    return log.info


def follow(work: Path, limit: float, pause: float = 5.0, seen: int = 0) -> int:
    """Print what a detached run logs (WORK/train.txt) until it leaves WORK/ended, or so many seconds; from character
    `seen` on, and returns the next."""
    end, log = time.monotonic() + limit, work / "train.txt"
    while True:
        text = log.read_text() if log.is_file() else ""
        print(text[seen:], end="", flush=True)
        seen = len(text)
        if (work / "ended").is_file() or time.monotonic() > end:
            return seen
        time.sleep(pause)
