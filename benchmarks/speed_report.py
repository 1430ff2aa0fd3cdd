"""Write the measured part of docs/speed.md from what `onesdaug bench` left: python benchmarks/speed_report.py"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
DOCS, CPU = ROOT / "docs" / "speed.md", ROOT / "benchmarks" / "results" / "speed-cpu.json"
START, END = "<!-- measured: cpu -->\n", "<!-- end of measured -->"


def cpu(record: dict[str, Any]) -> str:
    """The paragraph and table of a run on a CPU."""
    one, many = record["batches"][0], record["batches"][-1]
    stages, growth = record["stages"], record["growth"]
    parts = ", ".join(f"{name} {stages[name]:.2f} s" for name in ("denoise", "host", "tokens", "decode", "encode"))
    first, last = growth["over_images"][0], growth["over_images"][-1]
    times = last["images"] // first["images"]
    share = f"{100 * many['share_of_limit']:.0f} % of what this machine's matrix products allow"
    machine, model = record["machine"], record["model"]["model"]
    return f"""{machine["threads"]} CPU cores, {machine["dtype"]}, `{model}` with its preset, \
{record["limit"]["flops_per_view"] / 1e9:.1f} GFLOP per view (`{record["command"]}`, commit {record["commit"]}, \
`benchmarks/results/speed-cpu.json`; a shared, noisy machine):

| | |
|---|---|
| one image, one view | {one["latency_seconds"]:.2f} s |
| {many["batch"]} at once, per view | {1 / many["views_per_second"]:.2f} s ({share}) |
| of one batch of {stages["batch"]} | {parts} |
| peak memory of the process | {many["peak_memory_mb"]:.0f} MB |

Cost over the number of views and of images ([speed-growth.svg](speed-growth.svg)): {times} times the views take \
{growth["over_k_linearity"]:.2f} of {times} times the seconds, {times} times the images \
{growth["over_images_linearity"]:.2f}. The process's peak memory goes from {first["peak_memory_mb"]:.0f} to \
{last["peak_memory_mb"]:.0f} MB.
"""


def written(text: str, record: dict[str, Any]) -> str:
    """The document with its measured part from this record."""
    before, rest = text.split(START, 1)
    return before + START + cpu(record) + END + rest.split(END, 1)[1]


if __name__ == "__main__":
    DOCS.write_text(written(DOCS.read_text(), json.loads(CPU.read_text())))
