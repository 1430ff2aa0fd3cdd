"""results/pocket.json and the tables of docs/generators.md, from what the runs on the lent GPU brought back.

    python benchmarks/pocket_report.py

`benchmarks/results/pocket-test.npz` holds the accuracy of every test episode (`h200_pocket.py run --job test:…`, once
per released generator), `pocket-validation.json` every setting that was tried on validation classes. Nothing is
measured here: means, intervals and paired differences are computed from those episodes. What is said of all
generators side by side, there and in README, comes from `generators_table.py`.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT)]

import numpy as np  # noqa: E402

from benchmarks import generators_table  # noqa: E402
from benchmarks.markers import with_tables  # noqa: E402
from onesdaug.augment.config import preset  # noqa: E402
from onesdaug.encoders.checkpoint import load_checkpoint  # noqa: E402
from onesdaug.statistics import mean_ci, paired  # noqa: E402

RAW = ROOT / "benchmarks" / "results"
RESULTS, DOCS, README = ROOT / "results" / "pocket.json", ROOT / "docs" / "generators.md", ROOT / "README.md"
TITLES = {
    "mini-protonet-convnet": "ProtoNet-ConvNet",
    "mini-protonet-res12": "ProtoNet-Res12",
    "mini-feat-res12": "FEAT-Res12",
}
WANTED = {  # relative 1-shot gains the issue asks for, K = 3
    "pocket": {"mini-protonet-convnet": 12.0, "mini-protonet-res12": 3.0, "mini-feat-res12": 3.0},
    "pocket-imagenet": {"mini-protonet-convnet": 15.0, "mini-protonet-res12": 8.22, "mini-feat-res12": 9.38},
}
TRADITIONAL = ("crop-flip", "shape")


def test_rows(episodes: dict[str, np.ndarray]) -> list[dict[str, Any]]:
    """Accuracy, difference to the baseline and to both traditional sources with the same K, on the same episodes."""
    rows = []
    for key, mine in episodes.items():
        classifier, shot, *rest = key.split("|")
        if rest == ["base"]:
            rows.append({"classifier": classifier, "source": None, "k": 0, "accuracy": asdict(mean_ci(mine))})
            continue
        source, k = rest[0], int(rest[1].removeprefix("k"))
        row: dict[str, Any] = {"classifier": classifier, "source": source, "k": k, "accuracy": asdict(mean_ci(mine))}
        row["gain"] = asdict(paired(mine, episodes[f"{classifier}|{shot}|base"]))
        if source not in TRADITIONAL:
            row["against"] = {
                other: asdict(paired(mine, episodes[f"{classifier}|{shot}|{other}|k{k}"])) for other in TRADITIONAL
            }
        rows.append(row)
    return rows


def points(entry: dict[str, float]) -> str:
    return f"{100 * entry['difference']:+.2f} ± {100 * entry['ci95']:.2f}"


def test_table(rows: list[dict[str, Any]]) -> str:
    lines = [
        "| classifier | views | accuracy, % | gain, points | relative | aim | against crop + flip | against shape |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in sorted(rows, key=lambda r: (list(TITLES).index(r["classifier"]), r["source"] or "", r["k"])):
        name = "none" if row["source"] is None else f"{row['source']}{_alone(row['source'])}, K = {row['k']}"
        accuracy = f"{100 * row['accuracy']['mean']:.2f} ± {100 * row['accuracy']['ci95']:.2f}"
        cells = [TITLES[row["classifier"]], name, accuracy, "", "", "", "", ""]
        if "gain" in row:
            cells[3], cells[4] = points(row["gain"]), f"{100 * row['gain']['relative_gain']:+.1f} %"
        if "against" in row:
            cells[6:8] = [points(row["against"][other]) for other in TRADITIONAL]
            if row["k"] == 3:
                cells[5] = f"≥ +{WANTED[row['source']][row['classifier']]:g} %"
        if row["source"] in TRADITIONAL and row["k"] < 3:
            continue
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _alone(source: str) -> str:
    return " (condition alone)" if source in WANTED and preset(source).from_condition_alone else ""


def validation_table(found: dict[str, Any]) -> str:
    lines = [
        "| generator | weights | mode | eta | guidance | steps | " + " | ".join(TITLES.values()) + " |",
        "|---|---|---|---|---|---|---|---|---|",
        "| none | | | | | | " + " | ".join(f"{found['baseline'][name]:.2f}" for name in TITLES) + " |",
    ]
    for row in found["rows"]:
        values = [f"{row['accuracy'][n]:.2f}" if n in row["accuracy"] else "" for n in TITLES]
        tweak = {None: "", "paper": "", "none": ", no tweak"}.get(
            row["shape"] if isinstance(row["shape"], str | None) else "", ", zoom"
        )
        cells = [row["model"] + tweak, row["stage"] or "", row["mode"] or ""]
        cells += ["" if row[key] is None else f"{row[key]:g}" for key in ("noise_level", "guidance", "steps")]
        lines.append("| " + " | ".join(cells + values) + " |")
    return "\n".join(lines)


def speed_table(cpu: dict[str, Any], gpu: list[dict[str, Any]], device: str) -> str:
    threads = cpu["machine"]["threads"]
    lines = ["| where | what | |", "|---|---|---|"]
    for row in cpu["warm"]:
        what = f"`{row['model']}`, preset `{row['preset']}`, K = 4, warm"
        lines.append(f"| CPU, {threads} threads, float32 | {what} | {row['seconds_per_view']:.2f} s per view |")
    lines.append(f"| CPU | loading the weights | {cpu['load_seconds']:.2f} s |")
    lines.append(f"| CPU | `onesdaug augment photo.png`, cold, to the first view | {cpu['cold_seconds']:.1f} s |")
    for row in gpu:
        best = max(row["views_per_second"].items(), key=lambda item: item[1])
        name = f"`{row['preset']}`: " if row["preset"] else ""
        lines.append(f"| {device} | {name}{row['what']}, {best[0]} | {best[1]:,} views per second |")
    return "\n".join(lines)


def build() -> tuple[dict[str, Any], dict[str, str]]:
    validation = json.loads((RAW / "pocket-validation.json").read_text())
    with np.load(RAW / "pocket-test.npz") as stored:
        rows = test_rows({key: stored[key].astype(np.float64) for key in stored.files})
    settings = {name: preset(name).model_dump(mode="json") for name in WANTED}
    weights = {name: load_checkpoint(generators_table.folder(name))[1]["weights"] for name in WANTED}
    result = {
        "what": "5-way 1-shot accuracy on miniImageNet test classes, 15 queries, original weight 0.5",
        "command": "python benchmarks/h200_pocket.py run --job test:benchmarks/plans/pocket-test.json; "
        "python benchmarks/pocket_report.py",
        "commit": validation["commit"],
        "device": validation["device"],
        "data": "miniImageNet test df321420a19a99f6, all 12,000 images",
        "episodes": 10_000,
        "seed": 0,
        "generators": weights,
        "presets": settings,
        "asked_for": WANTED,
        "rows": rows,
    }
    cpu = json.loads((RAW / "pocket-speed.json").read_text())
    return result, {
        "test": test_table(rows),
        "validation": validation_table(validation),
        "speed": speed_table(cpu, validation["speed"], validation["device"]),
        **generators_table.tables(),
    }


def readme(text: str) -> str:
    """README with what it says of the generators."""
    return with_tables(text, generators_table.for_readme())


def main() -> None:
    result, tables = build()
    RESULTS.write_text(json.dumps(result, indent=1) + "\n")
    DOCS.write_text(with_tables(DOCS.read_text(), tables))
    README.write_text(readme(README.read_text()))
    print(tables["test"])


if __name__ == "__main__":
    main()
