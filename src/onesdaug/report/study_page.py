"""The studies as one HTML page that needs nothing beside it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from onesdaug.common.files import write_text
from onesdaug.report import provenance
from onesdaug.report.claims import SIGN, VERDICTS, by_verdict, came_out, tally
from onesdaug.report.shell import document, prose, text
from onesdaug.report.study_section import anchor, section
from onesdaug.studies.result import StudyResult, read_results

TITLE = "1S-DAug: the paper's tables and figures, run again"
LEAD = (
    "Every table and figure of “Can One-Shot Test-Time Data Augmentation Help with Generalization?” as it came out "
    "here, the paper's value beside it. The 1S-DAug operator makes K views of a single image; a frozen classifier "
    "averages over them."
)
IN_SHORT = "In short: what agrees with the paper and what differs"
DETAILS = "± is the half-width of a 95 % interval. A paired difference compares two methods episode by episode."


def render(results: Sequence[StudyResult], folder: Path) -> str:
    """The whole page; `folder` holds the pictures of the sheets."""
    parts = [
        f"<h1>{text(TITLE)}</h1>",
        f'<p class="lead">{text(LEAD)}</p>',
        f'<p class="lead">{text(drawn_by(results))}</p>',
    ]
    if not results:
        parts.append('<p class="quiet">No results.</p>')
    else:
        parts += [_contents(results), _in_short(results), *(section(result, folder) for result in results)]
    parts.append(f"<footer><p>{text(DETAILS)}</p></footer>")
    return document(TITLE, "\n".join(parts))


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
    told = f"The views behind the accuracies were drawn by {_and(names)}."
    if "sd15" not in names:
        told += " The paper's were drawn by Stable Diffusion 1.5 with IP-Adapter: a difference may be the generator's."
    return told


def _and(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _contents(results: Sequence[StudyResult]) -> str:
    items = "".join(f'<li><a href="#{anchor(r)}">{text(provenance.heading(r))}</a></li>' for r in results)
    return f'<nav aria-label="Contents"><ul><li><a href="#in-short">{IN_SHORT}</a></li>{items}</ul></nav>'


def _in_short(results: Sequence[StudyResult]) -> str:
    parts = [f'<section id="in-short"><h2>{IN_SHORT}</h2>', f"<p>{text(tally(results))}</p>"]
    found = by_verdict(results)
    if found:
        parts.append(f'<p class="note">{text(SIGN)}</p>')
    for verdict, claims in found.items():
        items = "".join(
            f'<li>{prose(claim.says)} <a href="#{anchor(result)}">{text(result.paper)}</a>'
            f'<span class="here">{text(came_out(claim))}</span></li>'
            for result, claim in claims
        )
        head = f'<h3 class="{verdict.split()[0]}">{text(VERDICTS[verdict])}</h3>'
        parts.append(f'<div class="card claims">{head}<ul>{items}</ul></div>')
    return "\n".join([*parts, "</section>"])
