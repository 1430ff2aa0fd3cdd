"""The figure of photographs made worse, from the stored result: docs/pope-worse.svg.

python benchmarks/pope_figure.py
"""

from __future__ import annotations

from pathlib import Path

from onesdaug.report.figures import standalone
from onesdaug.report.result import read_result
from onesdaug.studies.kinds.pope.parts import worse_plot

ROOT = Path(__file__).resolve().parents[1]
RESULT, FIGURE = ROOT / "results" / "pope-detector.json", ROOT / "docs" / "pope-worse.svg"


def drawn(result: Path = RESULT) -> str:
    return standalone(worse_plot(read_result(result).details["worse"]))


if __name__ == "__main__":
    FIGURE.write_text(drawn(), encoding="utf-8")
    print(f"{FIGURE}: show it in docs/vlm.md with ![What views add on photographs made worse]({FIGURE.name})")
