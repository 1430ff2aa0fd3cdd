"""README's tables, from results/headline.json and results/tuned.json: python benchmarks/readme_table.py

Generators that were run later belong into these files first: `onesdaug study join`.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT)]

from benchmarks.markers import with_tables  # noqa: E402
from onesdaug.report.facts import drawn_by  # noqa: E402
from onesdaug.report.result import Made, StudyResult, read_result  # noqa: E402
from onesdaug.report.table import to_markdown  # noqa: E402
from onesdaug.studies.kinds.fewshot.tables import glance  # noqa: E402

README, RESULTS = ROOT / "README.md", ROOT / "results"
TUNED = ("none", "crop-flip", "generated", "tuned")  # rows that fit a page


def written(text: str) -> str:
    """README with the tables as the stored runs have them."""
    headline, tuned = (read_result(RESULTS / f"{study}.json") for study in ("headline", "tuned"))
    known = {cell.classifier for cell in headline.cells}
    cells = tuple(cell for cell in tuned.cells if cell.row in TUNED and cell.classifier in known)
    short = tuned.model_copy(update={"cells": cells})
    return with_tables(text, {"headline": _table(headline), "tuned": f"{_table(short)}\n\n{_spared(tuned)}"})


def _table(result: StudyResult) -> str:
    table = glance(result)
    assert table is not None
    return f"{to_markdown(table).removeprefix('**At a glance**').strip()}\n\n{sources(result)}"


def sources(result: StudyResult) -> str:
    """A line for the run, and one for each that was joined to it."""
    joined = [f"*{drawn_by(run)}: {source_line(result, run)}*" for run in result.made.also]
    return "\n\n".join([f"*{source_line(result, result.made)}*", *joined])


def source_line(result: StudyResult, made: Made) -> str:
    """Where the numbers of a run come from."""
    return (
        f"`{made.command}`, commit {made.commit}, {made.machine['device']}; "
        f"data: {'; '.join(made.data.values())}; seeds of the views: {made.seeds['views']}; "
        f"{result.cells[0].accuracy.n:,} episodes."
    )


def _spared(result: StudyResult) -> str:
    """What making views only until the answer is settled saves and costs, over all rows that use any."""
    gains = {(c.data, c.classifier, c.shot, c.generator, c.row): c.gain for c in result.cells}
    shares, losses = [], []
    for cell in (cell for cell in result.cells if cell.row == "tuned-sparing"):
        key = cell.data, cell.classifier, cell.shot, cell.generator
        (views,) = [one["views"] for one in result.details["tuned"] if _key(one) == key and one["row"] == cell.label]
        whole, mine = gains[*key, "tuned"], gains[*key, cell.row]
        if views and whole is not None and mine is not None:
            shares.append(views / cell.query)
            losses.append(100 * (whole.difference - mine.difference))
    return (
        f"Made one at a time until a query's answer is settled, {100 * min(shares):.0f} to {100 * max(shares):.0f} % "
        f"of the views are needed, and the gain changes by {-max(losses):+.2f} to {-min(losses):+.2f} points."
    )


def _key(one: dict[str, Any]) -> tuple[str, str, int, str]:
    return one["data"], one["classifier"], one["shot"], one["generator"]


if __name__ == "__main__":
    README.write_text(written(README.read_text()))
