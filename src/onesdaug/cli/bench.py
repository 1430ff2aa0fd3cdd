"""`onesdaug bench`: what a view costs on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from onesdaug.cli.screen import results as results_screen
from onesdaug.common.files import write_text
from onesdaug.common.provenance import command
from onesdaug.errors import ConfigError

_MODEL, _TIME = "Model and machine", "What is measured"


def bench(
    model: Annotated[
        str, typer.Option(rich_help_panel=_MODEL, help="pocket, pocket-imagenet, sd15, a hub id or a folder.")
    ] = "pocket",
    random_weights: Annotated[
        str | None,
        typer.Option(rich_help_panel=_MODEL, help="Instead of a model: sd15, its shapes with random weights."),
    ] = None,
    preset: Annotated[
        str | None, typer.Option(rich_help_panel=_MODEL, help="Settings by name (else the model's own).")
    ] = None,
    compile: Annotated[
        str, typer.Option(rich_help_panel=_MODEL, help="off, regional (starts in seconds) or max (minutes).")
    ] = "off",
    side: Annotated[
        int | None, typer.Option(rich_help_panel=_MODEL, help="Draw at another size than the model's own.")
    ] = None,
    decoder: Annotated[
        str | None,
        typer.Option(
            rich_help_panel=_MODEL,
            help="Tiny decoder (augment --help); with --random-weights any word: its shapes.",
        ),
    ] = None,
    device: Annotated[str, typer.Option(rich_help_panel=_MODEL, help="auto, cpu, cuda, cuda:1 or mps.")] = "auto",
    dtype: Annotated[str, typer.Option(rich_help_panel=_MODEL, help="auto, float32, float16 or bfloat16.")] = "auto",
    batch_sizes: Annotated[
        str | None, typer.Option(rich_help_panel=_TIME, help="e.g. 1,16,64 (else 1 and what the model takes).")
    ] = None,
    only: Annotated[
        str | None,
        typer.Option(
            rich_help_panel=_TIME,
            help="Some of limit,batches,stages,efficiency,growth,folder,peer (else the first five).",
        ),
    ] = None,
    peer: Annotated[
        bool, typer.Option("--peer", rich_help_panel=_TIME, help="Also diffusers' own pipeline, in this process.")
    ] = False,
    folder_images: Annotated[
        int, typer.Option(min=0, rich_help_panel=_TIME, help="Also a folder job over so many pictures.")
    ] = 0,
    seconds: Annotated[
        float, typer.Option(min=0.0, rich_help_panel=_TIME, help="For each stage, warm-up and compiling apart.")
    ] = 10.0,
    output: Annotated[Path | None, typer.Option("--output", "-o", metavar="FILE", help="All numbers as JSON.")] = None,
    plot: Annotated[Path | None, typer.Option(metavar="FILE", help="Cost over K and images as SVG.")] = None,
) -> None:
    """Measure this machine: rates, time per stage, the paper's efficiency table, and the share of its limit."""
    from onesdaug.augment.config import preset as settings_of
    from onesdaug.augment.operator import default_preset
    from onesdaug.bench.run import Bench, Plan
    from onesdaug.bench.subject import Wanted
    from onesdaug.report.terminal import print_parts
    from onesdaug.studies.kind import shown_by

    name = preset or ("paper-fast" if random_weights else default_preset(model))
    stages = tuple(only.split(",")) if only else Plan().only
    stages += ("folder",) * (folder_images > 0) + ("peer",) * peer
    plan = Plan(stages, _numbers(batch_sizes), seconds, folder_images or 100)
    wanted = Wanted(model, random_weights, device, dtype, compile, side, decoder)  # type: ignore[arg-type]
    made = Bench(wanted, settings_of(name), output, command())
    result = made.run(plan)
    print_parts(shown_by(made.as_result()), results_screen(140))
    if plot is not None:
        from onesdaug.bench.plot import growth_plot

        if "growth" not in result:
            raise ConfigError("--plot draws the stage growth, which was not run")
        write_text(plot, growth_plot(result["growth"]))
    if result.get("failed"):
        raise typer.Exit(1)


def _numbers(text: str | None) -> tuple[int, ...]:
    if text is None:
        return ()
    try:
        found = tuple(int(part) for part in text.split(","))
    except ValueError:
        found = (0,)
    if min(found) < 1:
        raise ConfigError(f"--batch-sizes are positive numbers with commas between, got {text!r}")
    return found
