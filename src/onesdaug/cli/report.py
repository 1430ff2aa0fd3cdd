"""`onesdaug report`: the results of studies as one page, and as a document."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from onesdaug.cli.options import examples, spelling

app = typer.Typer(add_completion=False)


@app.command(
    context_settings=spelling(out="output"),
    epilog=examples("report studies -o report.html", "report results --latex tables.tex --csv numbers.csv"),
)
def report(
    results: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[RESULTS]...",
            help="Folders with what `onesdaug study run` left, or JSON files of that or of `fewshot evaluate` "
            "(else results/).",
        ),
    ] = None,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="The page to write.")] = Path(
        "report.html"
    ),
    markdown: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the tables as Markdown too, as in docs/results.md.")
    ] = None,
    csv: Annotated[Path | None, typer.Option(metavar="FILE", help="Every number of every table, one a line.")] = None,
    latex: Annotated[Path | None, typer.Option(metavar="FILE", help="Every table as a tabular (booktabs).")] = None,
) -> None:
    """Write all studies of a folder as one HTML page that needs nothing beside it: no network, no scripts.

    Exit code 0: written; 2: no results there, or one that cannot be read (the others are written all the same).
    """
    from onesdaug.cli.screen import show_error
    from onesdaug.errors import DataError
    from onesdaug.report.result import find_results
    from onesdaug.studies import document, page

    places = results or [Path("results")]
    if missing := [place for place in places if not place.exists()]:
        raise DataError(
            f"there is no folder {missing[0]}, and no file of that name; `onesdaug study run NAME` leaves its results "
            "in results/"
        )
    found, problems = find_results(places)
    if not found:
        named = ", ".join(map(str, places))
        raise DataError(
            "\n".join(problems) or f"{named} holds no results of studies; `onesdaug study run NAME` leaves them there"
        )
    shown = [result for result, _ in found]
    _write(page.render(shown, [folder for _, folder in found]), output)
    for make, path in ((document.markdown, markdown), (document.csv, csv), (document.latex, latex)):
        if path is not None:
            _write(make(shown), path)
    for problem in problems:
        show_error(problem)
    if problems:
        raise typer.Exit(2)


def _write(content: str, path: Path) -> None:
    from onesdaug.cli.screen import say
    from onesdaug.common.files import write_text
    from onesdaug.errors import DataError

    try:
        say(str(write_text(path, content)))
    except OSError as error:
        raise DataError(f"{path} cannot be written: {error.strerror or error}") from error
