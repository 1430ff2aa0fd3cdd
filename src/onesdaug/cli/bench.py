"""`onesdaug bench`: what a view costs on this machine."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from onesdaug.augment.config import PresetName
from onesdaug.bench.plan import Plan, Wanted
from onesdaug.cli.options import From, options, spelling
from onesdaug.cli.screen import results as results_screen
from onesdaug.common.files import write_text
from onesdaug.common.provenance import command
from onesdaug.errors import ConfigError

app = typer.Typer(add_completion=False)
_TIME = "What is measured"
WANTED = From(Wanted, panel="Model and machine")
PLAN = From(Plan, {"batches": "batch-sizes"}, panel=_TIME, only=("batches", "only", "seconds"))


@app.command(context_settings=spelling())
@options
def bench(
    *,
    wanted: Annotated[Wanted, WANTED],
    preset: Annotated[PresetName, typer.Option(rich_help_panel=WANTED.panel)] = None,
    plan: Annotated[Plan, PLAN],
    peer: Annotated[
        bool, typer.Option("--peer", rich_help_panel=_TIME, help="Also diffusers' own pipeline, in this process.")
    ] = False,
    folder_images: Annotated[
        int, typer.Option(min=0, rich_help_panel=_TIME, help="Also a folder job over so many pictures.")
    ] = 0,
    output: Annotated[Path | None, typer.Option("--output", "-o", metavar="FILE", help="All numbers as JSON.")] = None,
    plot: Annotated[Path | None, typer.Option(metavar="FILE", help="Cost over K and images as SVG.")] = None,
) -> None:
    """Measure this machine: rates, time per stage, the paper's efficiency table, and the share of its limit."""
    from onesdaug.augment.config import preset as settings_of
    from onesdaug.augment.operator import default_preset
    from onesdaug.bench.run import Bench

    name = preset or ("paper-fast" if wanted.random_weights else default_preset(wanted.model))
    if folder_images:
        plan = replace(plan, only=(*plan.only, "folder"), folder_images=folder_images)
    if peer:
        plan = replace(plan, only=(*plan.only, "peer"))
    made = Bench(wanted, settings_of(name), output, command())
    result = made.run(plan)
    show(result)
    if plot is not None:
        from onesdaug.bench.plot import growth_plot

        if "growth" not in result:
            raise ConfigError("--plot draws the stage growth, which was not run")
        write_text(plot, growth_plot(result["growth"]))
    if result.get("failed"):
        raise typer.Exit(1)


def show(result: dict[str, Any]) -> None:
    """The numbers as tables on stdout."""
    from rich.table import Table

    screen = results_screen(140)
    machine = result["machine"]
    screen.print(f"{machine['device']}, {machine['dtype']}, compile {result['model']['compile']}", markup=False)
    screen.print(result["what"], markup=False, highlight=False)
    if limit := result.get("limit"):
        screen.print(
            f"limit: {limit['flops_per_view'] / 1e9:.4g} GFLOP per view, matrix products at "
            f"{limit['matmul_flops_per_second'] / 1e12:.3g} TFLOP/s: {limit['views_per_second']:.4g} views/s",
            markup=False,
        )
    rates = Table("what", "batch", "views/s", "s per call", "first call, s", "of the limit", "peak MB")
    for row in (*result.get("batches", ()), *result.get("peer", ())):
        share, memory = row.get("share_of_limit"), row.get("peak_memory_mb")
        rates.add_row(
            row.get("what", "onesdaug"), str(row["batch"]), f"{row['views_per_second']:.4g}",
            f"{row['latency_seconds']:.4g}", f"{row['first_seconds']:.3g}",
            "" if share is None else f"{100 * share:.1f} %", "" if memory is None else f"{memory:.0f}",
        )  # fmt: skip
    if rates.rows:
        screen.print(rates)
    if parts := result.get("stages"):
        shares = parts.get("share_of_limit", {})
        table = Table("stage", f"s, batch {parts['batch']}", "of the whole", "of the limit")
        for name in ("encode", "tokens", "denoise", "decode", "host"):
            share = f"{100 * shares[name]:.1f} %" if name in shares else ""
            table.add_row(name, f"{parts[name]:.4g}", f"{100 * parts[name] / parts['whole']:.1f} %", share)
        screen.print(table)
    if timings := result.get("efficiency"):
        table = Table("solver", "noise", "steps run", "s/image", "s/image, many", "paper, s")
        for t in timings:
            paper = "" if t["paper"] is None else f"{t['paper']:.2f}"
            row = (
                f"{t['noise_level']:g}",
                str(t["steps_run"]),
                f"{t['eager']['median']:.4g}",
                f"{t['batch_seconds']:.4g}",
            )
            table.add_row(t["solver"], *row, paper)
        screen.print(table)
    if growth := result.get("growth"):
        screen.print(
            f"cost against proportional: {growth['over_k_linearity']:.3f} over K, "
            f"{growth['over_images_linearity']:.3f} over images; peak memory "
            f"{growth['over_images'][0]['peak_memory_mb']:.0f} → {growth['over_images'][-1]['peak_memory_mb']:.0f} MB",
            markup=False,
        )
    if job := result.get("folder"):
        screen.print(
            f"folder of {job['images']} pictures: {job['views_per_second']:.4g} views/s, "
            f"{100 * job['share_of_in_memory']:.1f} % of the rate in memory",
            markup=False,
        )
    for name, reason in result.get("failed", {}).items():
        screen.print(f"{name} failed: {reason}", markup=False)
