"""Messages of a script on a lent machine, the package's and its own: on stdout, and in a file that comes back."""

from __future__ import annotations

import logging
import sys
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
