"""What classifiers gain from a generator's views on validation classes, by the weight of the original.

    ONESDAUG_DATA=… python benchmarks/view_banks.py BANKS --split val --per-class 40 --source pocket --dtype float32
    python benchmarks/view_weights.py BANKS --source pocket

Writes `benchmarks/results/SOURCE-weights.json`, from which `benchmarks/pocket_report.py` fills docs/generators.md.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT)]

import torch  # noqa: E402

from benchmarks.view_banks import CLASSIFIERS  # noqa: E402
from onesdaug.common.provenance import describe_machine  # noqa: E402
from onesdaug.fewshot.bank import FeatureBank  # noqa: E402
from onesdaug.fewshot.evaluate import Task, ViewUse, evaluate  # noqa: E402
from onesdaug.fewshot.heads import ProtoNet, load_head  # noqa: E402

WEIGHTS, EPISODES = (0.3, 0.5, 0.6, 0.7, 0.8, 0.9), 2000


def gains(bank: FeatureBank, name: str) -> list[dict[str, Any]]:
    """One entry for each weight: points and percent, by shots."""
    head = load_head(ROOT / "artifacts" / "fewshot" / name) or ProtoNet("cosine")
    found: list[dict[str, Any]] = [{} for _ in WEIGHTS]
    for shot in (1, 5):
        uses = [ViewUse(bank.k, bank.k, original_weight=weight) for weight in WEIGHTS]
        for place, result in zip(found, evaluate(bank, head, [Task(5, shot, 15, EPISODES)], uses)[1:], strict=True):
            gain = result.gain
            assert gain is not None
            place[f"{name.removeprefix('mini-')} {shot}shot"] = {
                "difference": round(100 * gain.difference, 2), "ci95": round(100 * gain.ci95, 2),
                "relative": round(100 * gain.relative_gain, 2),
            }  # fmt: skip
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("banks", type=Path)
    parser.add_argument("--source", default="pocket")
    args = parser.parse_args()
    banks = {name: FeatureBank.load(args.banks / f"{name}-{args.source}.safetensors") for name in CLASSIFIERS}
    first = next(iter(banks.values()))
    entries = [gains(bank, name) for name, bank in banks.items()]
    per_class = int(first.labels.bincount().max())
    record = {
        "what": "gain over no views on miniImageNet's validation classes by the original's weight; points and %",
        "commands": [
            f"python benchmarks/view_banks.py BANKS --split val --per-class {per_class} --source {args.source} "
            f"--dtype {first.info.views['dtype']}",
            f"python benchmarks/view_weights.py BANKS --source {args.source}",
        ],
        "commit": first.info.commit, "machine": describe_machine(torch.device("cpu")),
        "data": f"{first.info.data}[{per_class} of each, seed 0]", "weights": first.info.views["generator"],
        "k": first.k, "episodes": EPISODES,
        "rows": [
            {"original_weight": weight, "gains": {key: value for one in entries for key, value in one[i].items()}}
            for i, weight in enumerate(WEIGHTS)
        ],
    }  # fmt: skip
    path = ROOT / "benchmarks" / "results" / f"{args.source}-weights.json"
    path.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
