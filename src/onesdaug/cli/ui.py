"""`onesdaug ui`: a web page to look at views, try them and tune them."""

from __future__ import annotations

from typing import Annotated

import typer

from onesdaug.cli.options import From, examples, options, spelling
from onesdaug.ui.settings import UiSettings

app = typer.Typer(add_completion=False)


@app.command(context_settings=spelling(), epilog=examples("ui", "ui --model pocket-imagenet --results studies"))
@options
def ui(*, settings: Annotated[UiSettings, From(UiSettings)]) -> None:
    """Open a page in the browser: draw views, explore noise, try few-shot tasks, tune, read results.

    It is served on 127.0.0.1 alone, and fetches nothing. Ctrl-C ends it.
    """
    from onesdaug.ui.app import serve

    serve(settings)
