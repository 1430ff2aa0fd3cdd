"""Write the measured parts of docs/speed.md from what was stored: python benchmarks/speed_report.py

`onesdaug bench` on a CPU left speed-cpu.json; benchmarks/h200_bench.py the other speed-*.json, one for each job; and
`onesdaug study run` cheaper-validation.json; benchmarks/operations.py operations.json. What has no file yet is called
so. Runs of the same job on other lent machines have their commit in the name: speed-main-COMMIT.json.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.markers import with_tables  # noqa: E402

DOCS, RESULTS = ROOT / "docs" / "speed.md", ROOT / "benchmarks" / "results"
PLOT = ROOT / "docs" / "speed-growth-h200.svg"
NOT_YET = "not measured yet"
TARGET_LIMIT = 690e12 / 14.88e12  # views/s: what matrix products allowed where the targets were set
Record = dict[str, Any]


def load(name: str) -> Record | None:
    """A stored run, or None."""
    file = RESULTS / f"{name}.json"
    record = json.loads(file.read_text()) if file.is_file() else None
    return record and record.get("details", record)


def cpu() -> str:
    """The paragraph and table of a run on a CPU."""
    record = load("speed-cpu")
    assert record is not None
    one, many = record["batches"][0], record["batches"][-1]
    stages, growth = record["stages"], record["growth"]
    parts = ", ".join(f"{name} {stages[name]:.2f} s" for name in ("denoise", "host", "tokens", "decode", "encode"))
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

{_growth(growth, "The process's peak memory")} ([speed-growth.svg](speed-growth.svg))
"""


def _growth(growth: Record, memory: str) -> str:
    """How cost grows, in two sentences."""
    first, last = growth["over_images"][0], growth["over_images"][-1]
    times = last["images"] // first["images"]
    k, images = growth["over_k_linearity"], growth["over_images_linearity"]
    return (
        f"Cost over the number of views and of images: {times} times the views take {k:.2f} of {times} times the "
        f"seconds, {times} times the images {images:.2f}. {memory} goes from {first['peak_memory_mb']:.0f} to "
        f"{last['peak_memory_mb']:.0f} MB."
    )


def gpu() -> str:
    """What was wanted and what was measured, line by line, and where each number comes from."""
    main, latency, cold = load("speed-main"), load("speed-latency"), load("speed-cold")
    cheap, tiny = load("speed-cheap-384px"), load("speed-cheap-384px-tiny-decoder")
    pocket, photo = load("speed-pocket-max"), load("speed-photo-max")

    def line(what: str, wanted: str, record: Record | None, show: Callable[[Record], str]) -> str:
        return f"| {what} | {wanted} | {NOT_YET if record is None else show(record)} |"

    def views(record: Record) -> str:
        return f"{record['batches'][0]['views_per_second']:,.1f}"

    def whole(record: Record) -> str:
        return f"{record['batches'][0]['views_per_second']:,.0f}"

    def share(record: Record) -> str:
        shown = record["shown"]
        return (
            f"{shown['share_of_limit']:.2f}; of products that last for seconds "
            f"{shown['share_of_sustained_limit']:.2f}; of the {TARGET_LIMIT:.1f} views/s with which the target was "
            f"set {shown['views_per_second'] / TARGET_LIMIT:.2f}"
        )

    def first_view(record: Record) -> str:
        empty, filled = (record["seconds"][f"{cache} cache"]["first view"] for cache in ("empty", "filled"))
        return f"{empty:.1f} s ({filled:.1f} s once the compiler's cache is filled)"

    lines = [
        "| figure | wanted | measured |",
        "|---|---|---|",
        line("SD 1.5 shapes, 512 px, dpm++ 10, guidance 9, own reference per row, views/s", "32", main,
             lambda r: f"{views(r)}{_elsewhere()}"),
        line("the same against the limit (the best matrix product seen / operations)", "0.69", main, share),
        line("… against diffusers, compiled as far as it goes, in the same process", "1.35 ×", main, _times),
        line("… against the paper's fast settings in the same process", "18 ×", main,
             lambda r: f"{r['shown']['times_paper_fast']:.1f} ×"),
        line("one image at a time after warm-up", "0.15 s", latency,
             lambda r: f"{r['batches'][0]['latency_seconds']:.3f} s"),
        line("`paper-cheap` at 384 px, views/s", "60", cheap, views),
        line("… with a tiny decoder", "–", tiny, views),
        line("`pocket`, 96 px, its preset, views/s", "3,000", pocket, whole),
        line("`photo`, 256 px, its preset, views/s", "800", photo, whole),
        line("folder of 1,000 images against the rate in memory", "0.9", main,
             lambda r: f"{r['folder']['share_of_in_memory']:.2f}"),
        line("first view of a cold process, `--compile regional`", "25 s", cold, first_view),
    ]  # fmt: skip
    text = "\n".join(lines) + "\n\n" + _sources() + "\n"
    if main is not None:
        text += "\n" + _beside(main) + "\n" + _stages(main) + "\n" + _machines()
    for name, record in (("pocket", pocket), ("photo", photo)):
        if record is not None:
            off = load(f"speed-{name}-off")
            plain = f" (not compiled: {whole(off)})" if off else ""
            text += f"\n`{name}` in batches of {record['batches'][0]['batch']}: {whole(record)} views/s{plain}. "
            text += _growth(record["growth"], "The device's peak memory")
            text += f" ([{PLOT.name}]({PLOT.name}))\n" if name == "pocket" else "\n"
    return text


def _times(main: Record) -> str:
    """Ours against each compiled form of the peer, the one that borrows from us included."""
    ours = main["batches"][0]["views_per_second"]
    ratios = [(ours / line["views_per_second"], line["what"]) for line in main["peer"] if "compiled" in line["what"]]
    return "; ".join(f"{ratio:.2f} × ({what.removeprefix('diffusers, ')})" for ratio, what in ratios)


def plot() -> str:
    """Cost over K and over images on the GPU."""
    from onesdaug.studies.kinds.bench import growth_plot

    record = load("speed-pocket-max")
    assert record is not None
    return growth_plot(record["growth"])


def _sources() -> str:
    """Command, commit and machine of every file, one line for those that share them."""
    made: dict[tuple[str, str, str], list[str]] = {}
    for file in sorted(RESULTS.glob("speed-*.json")):
        record = load(file.stem)
        assert record is not None
        machine = record["machine"]
        if machine["device"] == "cpu":
            continue
        key = record["command"], record["commit"], f"{machine['device']}, torch {machine['torch']}"
        made.setdefault(key, []).append(f"`{file.name}`")
    rows = [f"- {', '.join(files)}: `{command}`, commit {at}, {on}" for (command, at, on), files in made.items()]
    return "From `benchmarks/results/`, each written by one process on a lent machine:\n\n" + "\n".join(rows)


def _beside(main: Record) -> str:
    """diffusers and ours, in one process."""
    limit = main["limit"]
    best, lasting = limit["matmul_flops_per_second"], limit["sustained_matmul_flops_per_second"]
    rows = [(line["what"], line) for line in main["peer"]]
    rows += [("**onesdaug, `--compile max`**", main["batches"][0])]
    body = "\n".join(
        f"| {what} | {line['batch']} | {line['views_per_second']:.2f} | "
        f"{100 * line['views_per_second'] * limit['flops_per_view'] / best:.0f} % |"
        for what, line in rows
    )
    eight = main["at_noise_level_0.75"]["views_per_second"]
    return f"""| {limit["flops_per_view"] / 1e12:.1f} TFLOP per view | batch | views/s | of the limit |
|---|---|---|---|
{body}

The limit: products of 8192² bfloat16 matrices reach {best / 1e12:.0f} TFLOP/s at best and {lasting / 1e12:.0f} over \
seconds, when the card has reached its power limit. A share "of the limit" refers to the best product, wherever the \
text does not say that it is of products that last for seconds. {_switches(main)} At noise level 0.75 (8 steps) ours \
makes {eight:.1f} views/s. \
Memory: at most {main["batches"][0]["peak_memory_mb"] / 1000:.1f} GB, what recorded batches keep included.
"""


def _switches(main: Record) -> str:
    """That both sides ran with the same ones, or that this run is from before that was seen to."""
    ours = main["batches"][0].get("switches")
    if ours is None or any(line.get("switches") != ours for line in main["peer"]):
        return "**In this run diffusers did not have all of torch's switches that ours had: its rates are too low.**"
    return "Both sides ran with " + ", ".join(f"`{name}` {value}" for name, value in ours.items()) + "."


def _runs(job: str) -> list[tuple[str, Record]]:
    """All stored runs of a job, by commit, the one of the table first."""
    names = [f"speed-{job}", *sorted(file.stem for file in RESULTS.glob(f"speed-{job}-*.json"))]
    records = [record for name in names if (record := load(name))]
    return [(record["commit"][:7], record) for record in records]


def _elsewhere() -> str:
    others = [f"{record['batches'][0]['views_per_second']:.1f}" for _, record in _runs("main")[1:]]
    return f"; on other cards {' and '.join(others)}" if others else ""


def _machines() -> str:
    """Every lent machine: how fast its host and its card are, and what was measured there at which commit."""
    main, cold = dict(_runs("main")), dict(_runs("cold"))
    rows = []
    for at in dict.fromkeys((*main, *cold)):
        columns = ["–"] * 6
        if run := main.get(at):
            fair = "" if all("switches" in line for line in run["peer"]) else " †"
            one = f"{run['peer'][0]['views_per_second']:.2f}{fair}"
            best = max(line["views_per_second"] for line in run["peer"] if "compiled" in line["what"])
            compiled = f"{best:.2f}{fair}"
            ours, limit = run["batches"][0], run["limit"]["sustained_matmul_flops_per_second"]
            share = f"{ours['views_per_second']:.1f} ({ours['share_of_sustained_limit']:.2f})"
            columns[:5] = one, compiled, f"{limit / 1e12:.0f}", share, f"{run['folder']['share_of_in_memory']:.2f}"
        if run := cold.get(at):
            seconds = run["seconds"]["empty cache"]
            imports = seconds["diffusers and transformers imported"]
            columns[5] = f"{seconds['first view']:.1f} s, of which imports {imports:.1f} s"
        rows.append(f"| {at} | " + " | ".join(columns) + " |")
    return (
        "Lent machines differ, in the card and in the host. All runs of these two jobs (`speed-main*.json`, "
        "`speed-cold*.json`), one machine each:\n\n"
        "| commit | diffusers, one at a time, views/s | diffusers, compiled, views/s | lasting products, TFLOP/s | "
        "ours, views/s (share of those) | folder's share | first view of a cold process |\n"
        "|---|---|---|---|---|---|---|\n" + "\n".join(rows) + "\n\n"
        "† `cudnn.benchmark` was off for diffusers and on for ours: too low, and no ratio is taken from it.\n"
    )


def _stages(main: Record) -> str:
    stages = main["stages"]
    parts = ", ".join(f"{name} {stages[name]:.2f} s" for name in ("denoise", "decode", "encode", "tokens", "host"))
    return f"One batch of {stages['batch']}: {parts}.\n"


def operations() -> str:
    """What each way of being cheaper saves: operations are counted, not measured."""
    record = load("operations")
    assert record is not None
    rows = "\n".join(
        f"| {view['what']} | {view['steps_run']} | {view['network_rows']} | "
        f"{sum(view['by_stage'].values()) / 1e12:.1f} TFLOP |"
        for view in record["views"]
    )
    full, tiny = record["views"][1], record["views"][5]
    part = {name: value / 1e12 for name, value in full["by_stage"].items()}
    return f"""| option | steps run | UNet rows | operations per view, SD 1.5 |
|---|---|---|---|
{rows}

At 512 px: VAE encode {part["encode"]:.2f} TFLOP, CLIP {part["tokens"]:.2f}, one UNet row \
{part["denoise"] / full["network_rows"]:.2f}, VAE decode {part["decode"]:.2f}; a tiny decoder \
{tiny["by_stage"]["decode"] / 1e12:.2f} (`{record["command"]}`, commit {record["commit"]}, \
`benchmarks/results/operations.json`).
"""


def cheaper() -> str:
    """What each way of being cheaper costs, row by row, on validation classes."""
    record = load("cheaper-validation")
    if record is None:
        return f"**{NOT_YET.capitalize()}.**\n"
    cells = record["cells"]
    labels = list(dict.fromkeys(cell["label"] for cell in cells if cell["kind"] == "generative"))
    columns = list(dict.fromkeys((c["classifier"], c["generator"]) for c in cells if c["kind"] == "generative"))
    found = {(c["label"], c["classifier"], c["generator"]): c for c in cells}
    head = "| | " + " | ".join(f"{classifier}, {generator}" for classifier, generator in columns) + " |"
    body = []
    for label in labels:
        shown = []
        for column in columns:
            cell, released = found.get((label, *column)), found[("as released", *column)]
            if cell is None:
                shown.append("–")
            elif cell is released:
                gain = cell["gain"]
                shown.append(
                    f"{100 * cell['accuracy']['mean']:.2f} ({100 * gain['difference']:+.2f} ± "
                    f"{100 * gain['ci95']:.2f} against no views)"
                )
            else:
                shown.append(f"{100 * (cell['accuracy']['mean'] - released['accuracy']['mean']):+.2f}")
        body.append(f"| {label} | " + " | ".join(shown) + " |")
    made = record["made"]
    missing = "".join(f"\n\nMissing: {line}." for line in record["missing"][:1])
    return (
        f"{head}\n|---|{'---|' * len(columns)}\n" + "\n".join(body) + "\n\n"
        "5-way 1-shot accuracy in points, two views of support and query, 3,000 episodes: the first row whole, the "
        f"others against it. Data: {next(iter(made['data'].values()))}. `{made['command']}`, commit {made['commit']}, "
        f"{made['machine']['device']}, `benchmarks/results/cheaper-validation.json`.{missing}\n"
    )


PARTS: dict[str, Callable[[], str]] = {"operations": operations, "cheaper": cheaper, "cpu": cpu, "gpu": gpu}


def written(text: str) -> str:
    """The document with its measured parts from the stored runs."""
    return with_tables(text, {name: part().removesuffix("\n") for name, part in PARTS.items()})


if __name__ == "__main__":
    DOCS.write_text(written(DOCS.read_text()))
    PLOT.write_text(plot())
