"""`onesdaug tune`: whether views help a model on one's own data, which ones, and how much to trust them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from pydantic import Field

from onesdaug.cli.evaluate import Scorer
from onesdaug.cli.options import CLUSTER, From, WithRay, examples, options, spelling
from onesdaug.cli.screen import results as results_screen
from onesdaug.cli.screen import resumable
from onesdaug.common.files import write_text
from onesdaug.common.options import Device, PerClass, Root
from onesdaug.common.registry import BACKBONES, HEADS, VIEWS
from onesdaug.errors import ConfigError
from onesdaug.scale.start import RayOptions

if TYPE_CHECKING:
    from onesdaug.fewshot.heads import Head

app = typer.Typer(add_completion=False)


@dataclass(frozen=True)
class SearchOptions:
    """How long and how widely to search."""

    way: Annotated[int, Field(ge=2, description="Classes per episode")] = 5
    budget: Annotated[float, Field(ge=0, description="Minutes; then the best so far is judged. 0: no end")] = 10
    candidates: Annotated[int, Field(ge=1, description="Settings to try of each generator")] = 6
    per_class: PerClass = None
    seed: Annotated[int, Field(ge=0, description="Of views, episodes and settings")] = 0


@app.command(
    cls=WithRay,
    context_settings=spelling(out="output"),
    epilog=examples(
        "tune photos --encoder runs/cub --sources pocket,crop-flip --budget 10 -o tuned.json",
        "tune miniimagenet --encoder artifacts/fewshot/mini-protonet-res12 --shots 1,5 -o tuned.json",
    ),
)
@options
def tune(
    data: Annotated[
        str, typer.Argument(help="A benchmark (its validation classes), or your class-per-folder images.")
    ],
    *,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="JSON", help="What was found; a page beside it.")],
    encoder: Annotated[
        str | None, typer.Option(help=f"Few-shot: the features to improve. A checkpoint, or {BACKBONES.choices()}.")
    ] = None,
    classifier: Annotated[
        str | None,
        typer.Option(help="Instead: a model that scores the folder's classes, in the order of their names."),
    ] = None,
    head: Annotated[
        str | None, typer.Option(help=f"Few-shot (else the checkpoint's, or protonet): {HEADS.choices()}.")
    ] = None,
    sources: Annotated[str, typer.Option(help=f"What may draw views, by commas: {VIEWS.choices()}.")] = (
        "pocket,shape,crop-flip"
    ),
    shots: Annotated[str, typer.Option(help="Support images per class, by commas.")] = "1,5",
    k: Annotated[int, typer.Option("--k", "-k", min=1, help="At most so many views per image.")] = 3,
    search: Annotated[SearchOptions, From(SearchOptions)],
    split: Annotated[str | None, typer.Option(help="train, val or test; a benchmark's default is val.")] = None,
    work: Annotated[Path | None, typer.Option(help="Where views' features are kept (else beside the output).")] = None,
    root: Root = None,
    device: Device = "auto",
    cluster: Annotated[RayOptions, CLUSTER],
) -> None:
    """Find out on your data whether views help, which, how many, and what the original should weigh.

    Choice and estimate are separated, so that the gain it names is one to expect. A killed run goes on.
    """
    from onesdaug.common.devices import pick_device
    from onesdaug.data.registry import load_data
    from onesdaug.encoders.load import load_encoder
    from onesdaug.report.terminal import print_parts
    from onesdaug.scale.spread import embedding
    from onesdaug.studies import page
    from onesdaug.studies.kind import shown_by
    from onesdaug.tune.run import Wanted, list_of
    from onesdaug.tune.run import tune as run

    if (encoder is None) == (classifier is None):
        raise ConfigError("give --encoder (few-shot) or --classifier (its classes are the folder's)")
    if output.suffix != ".json":
        raise ConfigError(f"{output} must end in .json: other commands take it as --preset {output.stem}.json")
    chosen = pick_device(device)
    network = load_encoder(encoder or classifier or "", chosen)
    scorer = None if encoder is None else _head(encoder, head, network.dim)
    tasks = tuple(_number(shot) for shot in list_of(shots))
    wanted = Wanted(
        list_of(sources), tasks, search.way, k, search.candidates, search.budget or None, search.per_class, search.seed
    )
    with resumable(), embedding(cluster, device):
        folder = work or output.with_name(f"{output.stem}.work")
        images, sheet = load_data(data, split, root, "val"), output.with_name(f"{output.stem}-views.webp")
        found = run(images, network, scorer, wanted, folder, chosen, Path(data).name, sheet)
    write_text(output, found.model_dump_json(indent=1) + "\n")
    print_parts(shown_by(found), results_screen())
    typer.echo(f"{output}, {write_text(output.with_suffix('.html'), page.render([found], output.parent))}")


def _head(encoder: str, name: str | None, dim: int) -> Head:
    """The head that is named, else the one trained with a checkpoint, else ProtoNet's."""
    from onesdaug.fewshot.heads import trained_head

    return (trained_head(encoder) if name is None else None) or Scorer(name).load(dim)[0]


def _number(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise ConfigError(f"--shots takes numbers by commas, such as 1,5; not {text!r}")
    return int(text)
