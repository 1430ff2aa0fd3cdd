"""Settings for birds, chosen on CUB's validation classes, written into the studies that draw them.

    python benchmarks/photo_choose.py benchmarks/results/photo-validation-cub.json src/onesdaug/studies/headline.toml …

The sweep is one of `h200_photo.py run --sweep`; of its rows drawn with 128 pixels the one counts that gives most on
average over classifiers and shots. An earlier choice is replaced.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

SIDE, GENERATOR = 128, "photo-128"
NAMES = ("mode", "noise_level", "guidance", "steps")
WHY = "chosen there as well (benchmarks/photo_choose.py)"
PLACE = "[[classifiers]]"  # of a study's file: settings stand before it


def best(sweep: dict[str, Any]) -> dict[str, Any]:
    """The row that gains most."""
    rows = [row for row in sweep["rows"] if row["side"] == SIDE]
    return max(rows, key=lambda row: sum(row["gains"].values()) / len(row["gains"]))


def written(study: str, row: dict[str, Any]) -> str:
    """A study's text with the row's settings."""
    header = f"# {WHY}\n[settings.cub.{GENERATOR}]\n"
    block = header + "".join(f"{name} = {json.dumps(row[name])}\n" for name in NAMES) + "\n"
    without = re.sub(re.escape(header) + r"(?:\w+ = .*\n)+\n", "", study)
    before, place, after = without.partition(PLACE)
    return before + block + place + after


def main() -> None:
    sweep, *studies = map(Path, sys.argv[1:])
    row = best(json.loads(sweep.read_text()))
    print(row)
    for study in studies:
        study.write_text(written(study.read_text(), row))


if __name__ == "__main__":
    main()
