"""README's table, from results/headline.json: python benchmarks/readme_table.py"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT)]

from benchmarks.markers import with_tables  # noqa: E402
from onesdaug.report.result import read_result  # noqa: E402
from onesdaug.report.table import to_markdown  # noqa: E402
from onesdaug.studies.kinds.fewshot.tables import glance  # noqa: E402

README, RESULTS = ROOT / "README.md", ROOT / "results"
STUDIES = ("headline",) if (RESULTS / "headline.json").is_file() else ("main", "fine-grained")


def written(text: str) -> str:
    """README with the table as the stored runs have it."""
    parts = []
    for name in STUDIES:
        result = read_result(RESULTS / f"{name}.json")
        table = glance(result)
        assert table is not None
        made, seeds = result.made, result.made.seeds["views"]
        source = (
            f"`{made.command}`, commit {made.commit}, {made.machine['device']}; "
            f"data: {'; '.join(made.data.values())}; seeds of the views: {seeds}; "
            f"{result.cells[0].accuracy.n:,} episodes."
        )
        parts.append(f"{to_markdown(table).removeprefix('**At a glance**').strip()}\n\n*{source}*")
    return with_tables(text, {"headline": "\n\n".join(parts)})


if __name__ == "__main__":
    README.write_text(written(README.read_text()))
