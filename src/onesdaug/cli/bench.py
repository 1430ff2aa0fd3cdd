"""`onesdaug bench`: what a view costs on this machine."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from onesdaug.augment.presets import PresetName
from onesdaug.bench.plan import Plan, Wanted
from onesdaug.cli.options import From, examples, options, spelling
from onesdaug.cli.screen import results as results_screen
from onesdaug.common.files import write_text
from onesdaug.common.provenance import command
from onesdaug.errors import ConfigError

app = typer.Typer(add_completion=False)
_TIME = "What is measured"
WANTED = From(Wanted, panel="Model and machine")
PLAN = From(Plan, {"batches": "batch-sizes"}, panel=_TIME, only=("batches", "only", "seconds"))


@app.command(
    context_settings=spelling(),
    epilog=examples("bench --seconds 5", "bench --model sd15 --compile max --batch-sizes 1,64 -o bench.json"),
)
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
    from onesdaug.report.terminal import print_parts
    from onesdaug.studies.kind import shown_by

    name = preset or ("paper-fast" if wanted.random_weights else default_preset(wanted.model))
    if folder_images:
        plan = replace(plan, only=(*plan.only, "folder"), folder_images=folder_images)
    if peer:
        plan = replace(plan, only=(*plan.only, "peer"))
    made = Bench(wanted, settings_of(name), output, command())
    result = made.run(plan)
    print_parts(shown_by(made.as_result()), results_screen(140))
    if plot is not None:
        from onesdaug.studies.kinds.bench import growth_plot

        if "growth" not in result:
            raise ConfigError("--plot draws the stage growth, which was not run")
        write_text(plot, growth_plot(result["growth"]))
    if result.get("failed"):
        raise typer.Exit(1)
