"""Transformers trained here, as a table in docs/fewshot.md: from their cards and from the study of Table 3.

python benchmarks/transformers_report.py
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.markers import with_tables  # noqa: E402
from benchmarks.readme_table import source_line  # noqa: E402
from onesdaug.report.records import Cell  # noqa: E402
from onesdaug.report.result import StudyResult, read_result  # noqa: E402
from onesdaug.report.strings import accuracy, data_name, points  # noqa: E402

NETWORKS = {"mini-vit-small": "ViT-Small, ours", "mini-swin-tiny": "Swin-Tiny, ours"}  # checkpoints and classifiers
RESULT, DOCS, TABLE = ROOT / "results" / "transformers.json", ROOT / "docs" / "fewshot.md", "transformers"
GENERATOR = "photo-128"
SHOTS = (1, 5)


def card(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((ROOT / "benchmarks" / "results" / f"{name}.json").read_text())
    return found


def build(result: StudyResult) -> str:
    """A line for each network and benchmark."""
    head = ["network", "parameters, M", "epochs, minutes", "validation 1 / 5", "data", "test 1-shot", "test 5-shot"]
    head += [f"tuned `{GENERATOR}`, points, 1-shot", "5-shot"]
    lines = [head, ["---"] * len(head)]
    for name, classifier in NETWORKS.items():
        told = card(name)
        scores = " / ".join(f"{told['validation'][f'cosine_{shot}shot']:.2f}" for shot in SHOTS)
        facts = [f"{told['parameters']['encoder'] / 1e6:.1f}"]
        epochs = told["history"][-1]["step"] / (told["data"]["train"]["images"] // told["arguments"]["batch"])
        facts += [f"{epochs:.0f}, {told['seconds'] / 60:.0f}", scores]
        for data in ("miniimagenet", "cub"):
            plain = [_cell(result, data, classifier, shot, "none", "") for shot in SHOTS]
            tuned = [_cell(result, data, classifier, shot, "tuned", GENERATOR) for shot in SHOTS]
            cells = [*(accuracy(cell.accuracy) for cell in plain), *(points(cell.gain) for cell in tuned if cell.gain)]
            lines.append([f"`{name}`", *facts, data_name(data), *cells])
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + f"\n\n*{source_line(result, result.made)}*"


def _cell(result: StudyResult, data: str, classifier: str, shot: int, row: str, generator: str) -> Cell:
    wanted = (data, classifier, shot, row, generator)
    return next(c for c in result.cells if (c.data, c.classifier, c.shot, c.row, c.generator) == wanted)


def written(document: str) -> str:
    return with_tables(document, {TABLE: f"\n{build(read_result(RESULT))}\n"})


if __name__ == "__main__":
    DOCS.write_text(written(DOCS.read_text(encoding="utf-8")), encoding="utf-8")
