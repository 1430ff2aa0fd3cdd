"""The tab Results: the report of the last studies, as `onesdaug report` writes it."""

from __future__ import annotations

from functools import lru_cache
from html import escape
from pathlib import Path

from onesdaug.errors import DataError
from onesdaug.report.result import find_results
from onesdaug.studies import page

REPORT = "report.html"


def report(folder: Path) -> str:
    """The page of a folder: the one that lies there, unless results are newer; else made of the results."""
    results = sorted(folder.glob("*.json")) if folder.is_dir() else []
    written = folder / REPORT
    if written.is_file() and all(file.stat().st_mtime <= written.stat().st_mtime for file in results):
        return written.read_text(encoding="utf-8")
    return _made(folder, tuple((file.name, file.stat().st_mtime_ns) for file in results))


@lru_cache(maxsize=2)
def _made(folder: Path, _: tuple[tuple[str, int], ...]) -> str:
    found, problems = find_results([folder]) if folder.is_dir() else ([], [])
    if not found:
        told = "\n".join(problems) or f"There are no results of studies in {folder} yet."
        raise DataError(
            f"{told} `onesdaug study run demo -o {folder}` leaves some; the option --results names a folder."
        )
    return page.render([result for result, _ in found], [place for _, place in found])


def framed(html: str) -> str:
    """The report inside the page: without scripts, and with its own style."""
    return f'<iframe class="report" title="The last study report" sandbox="" srcdoc="{escape(html)}"></iframe>'
