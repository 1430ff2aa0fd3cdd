"""The command line: one file per command, imported only when that command or its help is asked for."""

from __future__ import annotations

import importlib
import os
import sys
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from onesdaug import __version__
from onesdaug.common.progress import shown
from onesdaug.errors import OnesdaugError

# what `onesdaug --help` says of each command: the first line of its own help
COMMANDS = {
    "augment": "Make K views of every image in IN... and write them to OUT with a manifest.",
    "bench": "Measure this machine: rates, time per stage, the paper's efficiency table, and the share of its limit.",
    "doctor": "Say what data, weights, packages and devices are here; what is missing; how to get it.",
    "plan": "Say what a large job or a service will take: device hours, nodes, days, storage; replicas, p50 and p99.",
    "pope": "Ask a frozen vision-language model about images and K views of each, and combine the answers.",
    "report": "Write all studies of a folder as one HTML page that needs nothing beside it: no network, no scripts.",
    "serve": "Serve views and few-shot answers over HTTP: /v1/views, /v1/tasks, /healthz, /metrics, /docs.",
    "fewshot": "Few-shot learning: train a backbone and a head, embed images with their views, evaluate on episodes.",
    "generator": "The pocket generators, small networks that draw views: train one, or see what one is.",
    "study": "The paper's tables and figures, each by its name.",
    "tune": "Find out on your data whether views help, which, how many, and what the original should weigh.",
    "ui": "Open a page in the browser: draw views, explore noise, try few-shot tasks, tune, read results.",
}


class _Commands(TyperGroup):
    """Knows its commands by name and line; the one that is called is then loaded."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name, known, rest = super().resolve_command(ctx, args)
        if known is None:  # a shell that completes words asks about ones that are no command
            return name, known, rest
        loaded = typer.main.get_command(importlib.import_module(f"onesdaug.cli.{name}").app)
        loaded.name = name
        return name, loaded, rest


app = typer.Typer(
    name="onesdaug",
    cls=_Commands,
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


def _named() -> None:
    """Stands for a command until that is called."""


for _name, _line in COMMANDS.items():
    app.command(_name, help=_line)(_named)


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
    timed = context.invoked_subcommand in ("bench", "fewshot", "generator", "study", "tune")
    talking = context.invoked_subcommand not in ("serve", "ui")  # these have no end to wait for
    context.with_resource(shown(timed, talking))


def main() -> None:
    """Run the command line; errors meant for people are one line, without a traceback."""
    from onesdaug.cli.screen import any_terminal, show_error

    any_terminal()
    try:
        app()
    except OnesdaugError as error:
        if os.environ.get("ONESDAUG_DEBUG"):
            raise  # with the traceback, also of one's own code behind it
        show_error(str(error))
        sys.exit(2)
    except OSError as error:
        if error.filename is None:
            raise
        show_error(f"{str(error.filename)[:300]}: {error.strerror}")  # too long a name, no permission, a full disk
        sys.exit(2)
    except KeyboardInterrupt:
        show_error("interrupted")
        sys.exit(130)
