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
from benchmarks.readme_table import sources  # noqa: E402
from onesdaug.report.result import StudyResult, read_result  # noqa: E402
from onesdaug.report.strings import accuracy, data_name, points  # noqa: E402

NETWORKS = {"mini-vit-small": "ViT-Small, ours", "mini-swin-tiny": "Swin-Tiny, ours"}  # checkpoints and classifiers
STORED = ROOT / "benchmarks" / "results"
RESULT, DOCS = ROOT / "results" / "transformers.json", ROOT / "docs" / "fewshot.md"
TRAINED, MEASURED = "transformers", "transformers-gains"
GENERATORS = ("pocket", "pocket-imagenet", "photo-128")
SHOTS = (1, 5)


def card(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((STORED / f"{name}.json").read_text())
    return found


def training() -> str:
    """A line for each network."""
    head = ["network", "parameters, M", "epochs (kept), minutes", "commit, device", "validation 1-shot", "5-shot"]
    lines = [head, ["---"] * len(head)]
    for name in NETWORKS:
        told = card(name)
        scores = [f"{told['validation'][f'cosine_{shot}shot']:.2f}" for shot in SHOTS]
        epoch = told["data"]["train"]["images"] // told["arguments"]["batch"]
        run, kept = (at["step"] / epoch for at in (told["history"][-1], told["validation"]))
        took = f"{run:.0f} ({kept:.0f}), {told['seconds'] / 60:.1f}"
        made = f"{told['commit']}, {told['machine']['device']}"
        lines.append([f"`{name}`", f"{told['parameters']['encoder'] / 1e6:.1f}", took, made, *scores])
    return _table(lines)


def gains(result: StudyResult) -> str:
    """A line for each network, benchmark and task: no views, and the gain of each generator's tuned row."""
    head = ["network", "data", "task", "no views, %", *(f"tuned `{name}`, points" for name in GENERATORS)]
    lines = [head, ["---"] * len(head)]
    for name, classifier in NETWORKS.items():
        for data in ("miniimagenet", "cub"):
            for shot in SHOTS:
                cells = {
                    (cell.row, cell.generator): cell
                    for cell in result.cells
                    if (cell.data, cell.classifier, cell.shot) == (data, classifier, shot)
                }
                tuned = [cells.get(("tuned", generator)) for generator in GENERATORS]
                gained = [points(cell.gain) if cell and cell.gain else "–" for cell in tuned]
                task = [f"`{name}`", data_name(data), f"{shot}-shot"]
                lines.append([*task, accuracy(cells["none", ""].accuracy), *gained])
    return f"{_table(lines)}\n\n{sources(result)}"


def _table(lines: list[list[str]]) -> str:
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def written(document: str) -> str:
    return with_tables(document, {TRAINED: f"\n{training()}\n", MEASURED: f"\n{gains(read_result(RESULT))}\n"})


if __name__ == "__main__":
    DOCS.write_text(written(DOCS.read_text(encoding="utf-8")), encoding="utf-8")
