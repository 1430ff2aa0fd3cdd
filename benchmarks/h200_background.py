"""Runs on a lent machine that live on when the call that began them ends, and calls that look at them."""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

LAST = 600  # characters of a log that one look shows
PAUSE = 20.0  # seconds between two looks


def detach(args: argparse.Namespace, script: Path) -> None:
    """The same call in a session of its own: it says WORK/NAME.log and leaves its files in WORK/out/NAME."""
    place = sys.argv.index("--detach")  # its name may be that of a job, too
    words = sys.argv[1:place] + sys.argv[place + 2 :]
    environment = os.environ | {"OUT": str(args.work / "out" / args.detach), "PYTHONUNBUFFERED": "1"}
    _end(args.work, args.detach).unlink(missing_ok=True)
    with _log(args.work, args.detach).open("a") as log:
        quiet: dict[str, Any] = {"stdout": log, "stderr": log, "stdin": subprocess.DEVNULL}
        again = [sys.executable, str(script.resolve()), *words, "--name", args.detach]
        subprocess.Popen(again, env=environment, start_new_session=True, **quiet)


def told_when_ended(args: argparse.Namespace, run: Callable[[argparse.Namespace], int]) -> int:
    """Its end is a file, for those who watch, whatever happened."""
    status: int | None = None
    try:
        status = run(args)
    finally:
        _end(args.work, args.name).write_text("an error" if status is None else str(status))
    return status


def watch(work: Path, names: Sequence[str], limit: float) -> None:
    """What these runs say, until all of them have ended or the limit; then what they have brought goes to $OUT."""
    seen, end = dict.fromkeys(names, 0), time.monotonic() + limit
    while True:
        for name in names:
            text = _log(work, name).read_text(errors="replace") if _log(work, name).is_file() else ""
            new = text[seen[name] or max(0, len(text) - LAST) :].strip()
            seen[name] = len(text)
            if new:
                print(f"--- {name}\n{new[-LAST:]}", flush=True)
        left = end - time.monotonic()
        if all(_end(work, name).is_file() for name in names) or left <= 0:
            break
        time.sleep(min(PAUSE, left))
    out = Path(os.environ.get("OUT", work / "home"))
    out.mkdir(parents=True, exist_ok=True)
    for name in names:
        for file in sorted((work / "out" / name).glob("*")):
            shutil.copyfile(file, out / f"{name}-{file.name}")
        how = f"ended with {_end(work, name).read_text()}" if _end(work, name).is_file() else "still running"
        print(f"{name}: {how}")


def _log(work: Path, name: str) -> Path:
    return work / f"{name}.log"


def _end(work: Path, name: str) -> Path:
    return work / f"{name}.ended"
