"""The command line: one file per command, thin. Nothing heavy is imported before a command runs."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from onesdaug import __version__
from onesdaug.cli.augment import augment
from onesdaug.cli.bench import bench
from onesdaug.cli.doctor import doctor
from onesdaug.cli.fewshot import app as fewshot
from onesdaug.cli.generator import app as generator
from onesdaug.cli.pope import pope
from onesdaug.cli.report import report
from onesdaug.cli.screen import show_error
from onesdaug.cli.study import app as study
from onesdaug.common.progress import shown
from onesdaug.errors import OnesdaugError

app = typer.Typer(
    name="onesdaug",
    help="One-shot test-time generative data augmentation: one image in, K views out.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    # the paper's spelling --ip_scale is the same as --ip-scale
    context_settings={
        "help_option_names": ["-h", "--help"],
        "token_normalize_func": lambda token: token.replace("_", "-"),
    },
)
app.command()(augment)
app.command()(bench)
app.command()(doctor)
app.command()(pope)
app.command()(report)
app.add_typer(fewshot, name="fewshot")
app.add_typer(generator, name="generator")
app.add_typer(study, name="study")


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"onesdaug {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    timed = context.invoked_subcommand in ("bench", "fewshot", "generator", "study")
    context.with_resource(shown(timed))


def main() -> None:
    """Run the command line; errors meant for people are one line, without a traceback."""
    try:
        app()
    except OnesdaugError as error:
        show_error(str(error))
        sys.exit(2)
    except KeyboardInterrupt:
        show_error("interrupted")
        sys.exit(130)
