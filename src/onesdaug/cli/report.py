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
        Path, typer.Argument(metavar="[RESULTS]", help="Folder with what `onesdaug study run` left.")
    ] = Path("results"),
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

    Exit code 0: written; 2: no results there, or one that cannot be read.
    """
    from onesdaug.errors import DataError
    from onesdaug.report.result import read_results
    from onesdaug.studies import document, page

    if not results.is_dir():
        raise DataError(f"there is no folder {results}; `onesdaug study run NAME` leaves its results in results/")
    found = read_results(results)
    if not found:
        raise DataError(f"{results} holds no results of studies; `onesdaug study run NAME` leaves them there")
    _write(page.render(found, results), output)
    for make, path in ((document.markdown, markdown), (document.csv, csv), (document.latex, latex)):
        if path is not None:
            _write(make(found), path)


def _write(content: str, path: Path) -> None:
    from onesdaug.common.files import write_text
    from onesdaug.errors import DataError

    try:
        typer.echo(write_text(path, content))
    except OSError as error:
        raise DataError(f"{path} cannot be written: {error.strerror or error}") from error
