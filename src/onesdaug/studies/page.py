"""The studies as one HTML page that needs nothing beside it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from onesdaug.common.files import write_text
from onesdaug.report import claims, facts
from onesdaug.report.html import render as render_template
from onesdaug.report.pictures import embed
from onesdaug.report.result import StudyResult, read_results
from onesdaug.studies.kind import shown_by

TITLE = "1S-DAug: the paper's tables and figures, run again"
LEAD = (
    "Every table and figure of “Can One-Shot Test-Time Data Augmentation Help with Generalization?” as it came out "
    "here, the paper's value beside it. The 1S-DAug operator makes K views of a single image; a frozen classifier "
    "averages over them."
)
IN_SHORT = "In short: what agrees with the paper and what differs"
DETAILS = "± is the half-width of a 95 % interval. A paired difference compares two methods episode by episode."


def render(results: Sequence[StudyResult], folder: Path | Sequence[Path]) -> str:
    """The whole page; `folder`, or one for each result, holds the pictures.

    The templates ask `facts`, `claims` and each kind what to show.
    """
    folders = [folder] * len(results) if isinstance(folder, Path) else folder
    beside = {id(result): partial(embed, place) for result, place in zip(results, folders, strict=True)}
    title, *lead = heading(results)
    return render_template(
        "studies.html",
        title=title,
        lead=lead,
        in_short="" if is_own(results) else IN_SHORT,
        results=results,
        footer=[DETAILS],
        facts=facts,
        claims=claims,
        anchor=anchor,
        shown_by=shown_by,
        pictures_of=lambda result: beside[id(result)],
    )


def is_own(results: Sequence[StudyResult]) -> bool:
    """Whether nothing here is the paper's."""
    return bool(results) and all(result.paper == "none" for result in results)


def heading(results: Sequence[StudyResult]) -> list[str]:
    """The title of page and document, and what comes beneath it: those of the studies, where none is the paper's."""
    if is_own(results):
        return [" · ".join(dict.fromkeys(result.title for result in results))]
    return [TITLE, LEAD, drawn_by(results)]


def write(results: Sequence[StudyResult], folder: Path, path: Path) -> Path:
    """Write the page whole or not at all."""
    return write_text(path, render(results, folder))


def write_report(folder: Path, path: Path) -> Path:
    """The page of all results in a folder."""
    return write(read_results(folder), folder, path)


def drawn_by(results: Sequence[StudyResult]) -> str:
    """Which generators drew the views: without it no number means anything."""
    cells = [cell.generator for result in results for cell in result.cells if cell.generator]
    names = list(dict.fromkeys([*cells, *(entry.generator for result in results for entry in result.theory)]))
    if not names:
        return ""
    *others, last = names
    told = f"The views behind the accuracies were drawn by {', '.join(others) + ' and ' * bool(others) + last}."
    if "sd15" not in names:
        told += " The paper's were drawn by Stable Diffusion 1.5 with IP-Adapter: a difference may be the generator's."
    return told


def anchor(result: StudyResult) -> str:
    """The name that links within the page use."""
    return "study-" + re.sub(r"[^a-z0-9]+", "-", result.file.removesuffix(".json").lower())
