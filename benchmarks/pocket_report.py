"""The tables of docs/generators.md, and README's of the generators, from cards and stored runs.

    python benchmarks/pocket_report.py

Nothing is measured here. `pocket-1-validation.json` holds every setting that was tried on validation classes with the
pocket before and with pocket-imagenet. What is said of all generators side by side comes from `generators_table.py`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT)]

from benchmarks import generators_table  # noqa: E402
from benchmarks.markers import with_tables  # noqa: E402
from benchmarks.speed_report import load  # noqa: E402

RAW = ROOT / "benchmarks" / "results"
DOCS, README = ROOT / "docs" / "generators.md", ROOT / "README.md"
TITLES = {
    "mini-protonet-convnet": "ProtoNet-ConvNet",
    "mini-protonet-res12": "ProtoNet-Res12",
    "mini-feat-res12": "FEAT-Res12",
}


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


def speed_table(cpu: dict[str, Any]) -> str:
    threads = cpu["machine"]["threads"]
    lines = ["| where | what | |", "|---|---|---|"]
    for row in cpu["warm"]:
        what = f"`{row['model']}`, preset `{row['preset']}`, K = 4, warm"
        lines.append(f"| CPU, {threads} threads, float32 | {what} | {row['seconds_per_view']:.2f} s per view |")
    lines.append(f"| CPU | loading the weights | {cpu['load_seconds']:.2f} s |")
    lines.append(f"| CPU | `onesdaug augment photo.png`, cold, to the first view | {cpu['cold_seconds']:.1f} s |")
    for name, preset in (("pocket", "pocket-accuracy"), ("photo", "photo")):
        for mode, how in (("off", "as it is"), ("max", "compiled (`--compile max`)")):
            if run := load(f"speed-{name}-{mode}"):
                best, device = run["batches"][0], "{device}, torch {torch}, {dtype}".format(**run["machine"])
                what = f"`{name}`, preset `{preset}`, {best['batch']} at once, {how}"
                lines.append(f"| {device} | {what} | {best['views_per_second']:,.0f} views per second |")
    return "\n".join(lines)


def build() -> dict[str, str]:
    validation = json.loads((RAW / "pocket-1-validation.json").read_text())
    cpu = json.loads((RAW / "pocket-speed.json").read_text())
    return {
        "validation": validation_table(validation),
        "speed": speed_table(cpu),
        **generators_table.tables(),
    }


def readme(text: str) -> str:
    """README with what it says of the generators."""
    return with_tables(text, generators_table.for_readme())


def main() -> None:
    DOCS.write_text(with_tables(DOCS.read_text(), build()))
    README.write_text(readme(README.read_text()))


if __name__ == "__main__":
    main()
