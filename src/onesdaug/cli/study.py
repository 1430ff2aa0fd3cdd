"""`onesdaug study list | run | join`: the paper's tables and figures, each by its name."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from onesdaug.cli.options import From, completer, examples, options, spelling
from onesdaug.cli.screen import console, printable
from onesdaug.cli.screen import results as results_screen
from onesdaug.common.provenance import command
from onesdaug.studies.settings import Settings

if TYPE_CHECKING:
    from rich.console import Console

    from onesdaug.report.result import StudyResult

app = typer.Typer(help="The paper's tables and figures, each by its name.", no_args_is_help=True, add_completion=False)
SETTINGS = From(Settings, {"generators": "model"}, without=("work", "commit"))


def _known(incomplete: str) -> list[str]:
    from onesdaug.studies.spec import DEMO, names

    return completer((*names(), DEMO, "all"))(incomplete)


@app.command("list", epilog=examples("study list", "study list | grep Table"))
def list_studies() -> None:
    """Every study with the part of the paper it repeats."""
    from rich.table import Table

    from onesdaug.studies.spec import DEMO, names, read_study

    table = Table("study", "paper", "content")
    for name in (*names(), DEMO):
        study = read_study(name)
        table.add_row(name, study["paper"], study["title"])
    results_screen(140).print(table)
    typer.echo(
        "run some:  onesdaug study run main grid ablation theory -o studies    run all:  onesdaug study run all"
    )


@app.command(
    context_settings=spelling(generator="model"),
    epilog=examples("study run demo", "study run main ablation --per-class 20 --episodes 500 -o quick"),
)
@options
def run(
    names: Annotated[
        list[str],
        typer.Argument(metavar="NAME...", help="Studies, all, or a NAME.toml of your own.", autocompletion=_known),
    ],
    *,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="DIR", help="Where NAME.json and report.html go.")
    ] = Path("studies"),
    work: Annotated[
        Path | None, typer.Option(help="Stored features and scores, taken up by the next run (else OUTPUT/work).")
    ] = None,
    settings: Annotated[Settings, SETTINGS],
    tag: Annotated[str, typer.Option(help="Written into the file names, to keep runs of other machines apart.")] = "",
    report: Annotated[bool, typer.Option("--report/--no-report", help="Write OUTPUT/report.html as well.")] = True,
) -> None:
    """Run studies: from images to JSON, tables and one page. A killed run goes on where it stopped."""
    from onesdaug.common.devices import pick_device
    from onesdaug.common.provenance import commit
    from onesdaug.generators.speed import check_compile
    from onesdaug.studies.run import run as run_studies
    from onesdaug.studies.spec import load_study
    from onesdaug.studies.spec import names as known

    check_compile(settings.compile, pick_device(settings.device))
    chosen = [name for given in names for name in (known() if given == "all" else [given])]
    for name in chosen:
        load_study(name)  # a wrong name is said before minutes are spent
    began, lines = time.perf_counter(), console()
    settings = replace(settings, work=work or output / "work", commit=commit())
    done = run_studies(chosen, settings, output, command(), tag)
    screen = results_screen(140)
    for result, path in done.results:
        _show(result, screen)
        typer.echo(f"{path}\n" if path else f"nothing could be run; {output / result.file} was left as it is\n")
    if report and any(path for _, path in done.results):
        from onesdaug.studies.page import write_report

        typer.echo(f"page: {write_report(output, output / 'report.html')}")
    count = f"{len(done.results)} studies" if len(done.results) != 1 else "1 study"
    typer.echo(f"{count} in {time.perf_counter() - began:.1f} s")
    for line in done.failures:
        lines.print(f"error: {printable(line)}", style="red", markup=False)
    if done.failures or all(path is None for _, path in done.results):
        raise typer.Exit(1)


@app.command(
    epilog=examples(
        "study join results/main.json mine/main.json -o joined", "study join old/tuned.json new/tuned.json -o new"
    )
)
def join(
    first: Annotated[Path, typer.Argument(help="A result of `study run`.")],
    later: Annotated[Path, typer.Argument(help="Another run of the same study, with other generators or newer ones.")],
    *,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="DIR", help="Where the joined NAME.json goes.")],
) -> None:
    """Put a generator that was run later beside the others, in the place of its own earlier rows."""
    from onesdaug.common.files import whole_file
    from onesdaug.common.reading import read_bytes
    from onesdaug.report.join import joined
    from onesdaug.report.result import read_result

    before, after = read_result(first), read_result(later)
    result = joined(before, after)
    folders = {sheet.file: file.parent for file, run in ((first, before), (later, after)) for sheet in run.sheets}
    for sheet in result.sheets:
        picture = read_bytes(folders[sheet.file] / sheet.file)
        with whole_file(output / sheet.file) as temporary:
            temporary.write_bytes(picture)
    _show(result, results_screen(140))
    typer.echo(f"{result.save(output)}")


def _show(result: StudyResult, screen: Console) -> None:
    """A study's tables and sentences, then the claims, then what is missing."""
    from onesdaug.report.terminal import print_parts
    from onesdaug.studies.kind import shown_by

    place = "" if result.paper == "none" else f" ({result.paper})"
    screen.print(f"{result.study}{place}: {result.title}", style="bold", markup=False)
    print_parts(shown_by(result), screen)
    for line in (*result.notes, *(f"{claim.verdict}: {claim.says}" for claim in result.claims)):
        screen.print(line, markup=False)
    for line in result.missing:
        screen.print(f"not run: {printable(line)}", markup=False)
