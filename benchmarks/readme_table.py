"""README's table, from results/headline.json: python benchmarks/readme_table.py"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT)]

from benchmarks.pocket_report import with_tables  # noqa: E402
from onesdaug.report.tables_fewshot import glance  # noqa: E402
from onesdaug.report.tabular import to_markdown  # noqa: E402
from onesdaug.studies.result import read_result  # noqa: E402

README, HEADLINE = ROOT / "README.md", ROOT / "results" / "headline.json"


def written(text: str) -> str:
    """README with the table as the stored run has it."""
    result = read_result(HEADLINE)
    table = glance(result)
    assert table is not None
    made = result.made
    source = (
        f"`{made.command}`, commit {made.commit}, {made.machine['device']}; data: {'; '.join(made.data.values())}."
    )
    shown = to_markdown(table).removeprefix("**At a glance**\n\n")
    return with_tables(text, {"headline": f"{shown}\n\n*{source}*"})


if __name__ == "__main__":
    README.write_text(written(README.read_text()))
