"""`onesdaug generator train | info`: make a pocket generator from images, and read the card of one."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from onesdaug.cli.options import From, examples, options, spelling
from onesdaug.cli.screen import resumable
from onesdaug.common.options import Device, MaxSeconds, Root
from onesdaug.errors import ConfigError

if TYPE_CHECKING:
    from onesdaug.data.dataset import Dataset
    from onesdaug.generators.pocket.recipe import Recipe

app = typer.Typer(
    help="The pocket generators, small networks that draw views: train one, or see what one is.",
    no_args_is_help=True,
    add_completion=False,
)
RecipeName = Literal["pocket", "photo", "pocket-1", "pocket-imagenet", "pocket-smoke", "photo-smoke", "smoke"]


@dataclass(frozen=True)
class Pictures:
    """What a generator learns from, and what it starts from."""

    data: Annotated[str, "A benchmark's name, or your folder with train/ (or a zip, a CSV) in it"] = "miniimagenet"
    root: Root = None
    init: Annotated[
        str | None, "pocket-imagenet: the finished generator of the recipe pocket-1 that it starts from"
    ] = None
    photographs: Annotated[Path | None, "photo: photographs without classes, in folders or zip files"] = None
    also: Annotated[
        tuple[Path, ...],
        "pocket, photo: more pictures of classes, such as Tiny-ImageNet: a zip or a folder of zips; may be repeated",
    ] = ()

    def check(self, recipe: str) -> None:
        if recipe in ("photo", "photo-smoke"):
            if self.init is not None or self.photographs is None:
                raise ConfigError(f"recipe {recipe} needs --photographs, and starts from nothing: no --init")
        elif recipe in ("pocket", "pocket-smoke"):
            if self.init is not None or self.photographs is not None:
                raise ConfigError(f"recipe {recipe} learns from --data and --also alone: no --photographs, no --init")
        elif self.photographs or self.also:
            raise ConfigError(f"--photographs is for the recipe photo, --also for pocket and photo, not for {recipe}")


@app.command(
    context_settings=spelling(out="output", limit="max-seconds"),
    epilog=examples(
        "generator train --recipe smoke --data pets/ -o tiny", "generator train -o mine --max-seconds 3600"
    ),
)
@options
def train(
    *,
    output: Annotated[
        Path,
        typer.Option("--output", "-o", metavar="FOLDER", help="Generator to write; finished stages go beside it."),
    ],
    recipe: Annotated[
        RecipeName,
        typer.Option(
            help="pocket, photo, pocket-1 (the pocket before), pocket-imagenet (starts from a pocket-1), or one named "
            "smoke (tiny: to try)."
        ),
    ] = "pocket",
    pictures: Annotated[Pictures, From(Pictures)],
    until: Annotated[
        str,
        typer.Option(
            metavar="STAGE", help="pocket, photo: the last stage to run now (denoiser-2: a second piece of it)."
        ),
    ] = "guidance",
    fixed_steps: Annotated[
        bool,
        typer.Option("--fixed-steps", help="The recipe's steps, however long; else those that fit its seconds here."),
    ] = False,
    max_seconds: MaxSeconds = None,
    device: Device = "auto",
) -> None:
    """Train a generator on a train split, stage by stage; a stopped run goes on where it was.

    The recipes pocket and photo (on --photographs too) train in pieces: finished stages beside --output are not run
    again.
    Exit code 0: finished; 2: wrong settings or data; 3: --max-seconds came first.
    """
    import time

    from onesdaug.common.devices import pick_device

    out = output.absolute()  # `-o pocket` is a folder here, not the embedded generator
    deadline = None if max_seconds is None else time.monotonic() + max_seconds
    place = pick_device(device)
    _check_free(out)
    pictures.check(recipe)
    if recipe in ("pocket", "photo", "pocket-smoke", "photo-smoke"):
        _train_in_pieces(recipe, out, pictures, until, fixed_steps, place, deadline)
    else:
        chosen, start = _recipe(recipe, pictures.init, fixed_steps)
        _train_pocket(chosen, start, out, pictures, place, deadline)
    if (out / "card.json").is_file():
        info(str(out))


def _train_pocket(
    recipe: Recipe, start: Path | None, out: Path, pictures: Pictures, device: Any, deadline: float | None
) -> None:
    from onesdaug.common.progress import log
    from onesdaug.common.provenance import commit, describe_machine
    from onesdaug.data.registry import BENCHMARKS, load_split
    from onesdaug.generators.pocket import training

    data = pictures.data
    images = load_split(data, "train", pictures.root)
    if _finished(out, recipe, images):
        log.info(f"{out}: done already")
        return
    with resumable():
        training.train(
            recipe, images, out, init=start, device=device, deadline=deadline,
            data_name=data if data in BENCHMARKS else Path(data).expanduser().resolve().name,
            facts={"machine": describe_machine(device), "commit": commit()},
        )  # fmt: skip


def _train_in_pieces(
    name: str, out: Path, given: Pictures, until: str, fixed_steps: bool, device: Any, deadline: float | None
) -> None:
    """All stages up to `until`; the generator is written where that is one of the denoiser's."""
    from onesdaug.common.provenance import commit, describe_machine
    from onesdaug.data.registry import train_members
    from onesdaug.data.sources import find_members
    from onesdaug.generators.pocket.generator import load_weights
    from onesdaug.generators.pocket.photo_training import PhotoTraining, chain
    from onesdaug.generators.pocket.photographs import read_labelled, read_photographs
    from onesdaug.generators.pocket.recipe import ThumbnailRecipe
    from onesdaug.generators.pocket.smoke import STAGED
    from onesdaug.generators.pocket.thumbnail_training import ThumbnailTraining

    recipe = STAGED[name]
    if fixed_steps:
        recipe = recipe.with_seconds(dict.fromkeys(recipe.stage_names))
    size = recipe.network.size
    labelled = [("data", read_labelled(train_members(given.data, given.root), size))]
    side = labelled[0][1].images.shape[1]
    for path in given.also:
        more = read_labelled(find_members(path), side)  # no finer: what is finest is drawn as if it were whole
        labelled.append(("also" if more.images.shape[1] < side else "data", more))
    run: PhotoTraining
    if isinstance(recipe, ThumbnailRecipe):
        run = ThumbnailTraining(recipe, lambda: labelled, out, device, deadline)
    else:
        parts = read_photographs(given.photographs, size) if given.photographs else []
        pictures = [*(("photographs", part) for part in parts), *labelled]
        run = PhotoTraining(recipe, parts, out, device, deadline, pictures=lambda: pictures)
    if (out / "card.json").is_file():
        card = load_weights(out)[1]
        if card["kind"] != run.kind or "guidance" not in card:  # which says how far a generator guides itself
            raise ConfigError(f"{out} is a generator of another recipe; choose another --output")
    names = " + ".join(path.name for path in (given.photographs, Path(given.data), *given.also) if path)
    with resumable():
        for stage in run.until(until):
            run.one(stage)
    if chain(until) == "denoiser":
        run.write(out, names, {"machine": describe_machine(device), "commit": commit()})


def _recipe(name: RecipeName, init: str | None, fixed_steps: bool) -> tuple[Recipe, Path | None]:
    """The recipe, and the folder of the generator it starts from."""
    from onesdaug.generators.pocket.generator import load_weights, locate
    from onesdaug.generators.pocket.recipe import RECIPES
    from onesdaug.generators.pocket.smoke import SMOKE

    chosen = {**RECIPES, "smoke": SMOKE}[name]
    chosen = chosen.without_budget() if fixed_steps else chosen
    if name == "pocket-imagenet":
        if init is None:
            raise ConfigError(
                "recipe pocket-imagenet starts from a generator of the recipe pocket-1: give --init FOLDER"
            )
        start = locate(init)
        load_weights(start)  # what is wrong with it is said before the images are read
        return chosen, start
    if init is not None:
        raise ConfigError(f"recipe {name} trains every part itself: --init is for pocket-imagenet")
    return chosen, None


@app.command(context_settings=spelling(), epilog=examples("generator info", "generator info mine --classes"))
def info(
    name: Annotated[
        str, typer.Argument(help="pocket, pocket-imagenet, photo, or a folder that `generator train` wrote.")
    ] = "pocket",
    classes: Annotated[bool, typer.Option("--classes", help="Also name the classes it was trained on.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the card as JSON.")] = False,
) -> None:
    """Say what a generator is and how it was made, and check its weights against its card."""
    from onesdaug.generators.pocket.generator import load_weights, locate

    _, card = load_weights(name)
    if as_json:
        typer.echo(json.dumps(card, indent=2))
    else:
        _show(card, locate(name), classes)


def _check_free(out: Path) -> None:
    """Writing replaces the whole folder, so it must be new, empty, or a generator."""
    if out.is_dir() and any(out.iterdir()) and not (out / "card.json").is_file():
        raise ConfigError(f"{out} is a folder that holds something else; choose another --output")
    if out.exists() and not out.is_dir():
        raise ConfigError(f"{out} is a file; --output is the folder to write")


def _finished(out: Path, recipe: Recipe, images: Dataset) -> bool:
    """Whether `out` is what this command would make; something else is not written over."""
    from onesdaug.generators.pocket.generator import load_weights

    if not (out / "card.json").is_file():
        return False
    _, card = load_weights(out)
    wanted = json.loads(json.dumps(recipe.to_dict()))
    if card["recipe"] != wanted or card["data"]["fingerprint"] != images.fingerprint:
        raise ConfigError(f"{out} is a generator of another recipe or other images; choose another --output")
    return True


def _show(card: dict[str, Any], folder: Path, classes: bool) -> None:
    """The card for people, on stdout."""
    from rich.table import Table as Grid
    from rich.text import Text

    from onesdaug.cli.screen import results
    from onesdaug.generators.pocket.recipe import STAGES, THUMBNAIL_STAGES
    from onesdaug.report.table import Table
    from onesdaug.report.terminal import print_parts

    facts = Grid.grid(padding=(0, 2))
    for name, value in _facts(card, folder, classes).items():
        facts.add_row(Text(name, style="bold"), Text(value))
    results().print(facts)
    rows = [
        (name, f"{s['steps']:,}", f"{s['batch']:,}", f"{s['seconds']:.1f}", f"{s['images_per_second']:,}")
        for name in dict.fromkeys((*THUMBNAIL_STAGES[:3], *STAGES[:3], *THUMBNAIL_STAGES))
        if (s := card["stages"].get(name))
    ]
    total = ("all", "", "", f"{card['seconds']:.1f}", "")
    columns = ("stage", "steps", "batch", "seconds", "images/s")
    print_parts([Table.of_text("training", columns, [*rows, total])], results())


def _facts(card: dict[str, Any], folder: Path, classes: bool) -> dict[str, str]:
    side, data, parts = card["network"]["size"], card["data"], card["parameters"]
    shards = sorted(folder.glob("model*.safetensors"))
    machine = card.get("machine", {})
    inside = "inside" if "condition" in parts else "a package of its own"
    found = {
        "folder": str(folder),
        "kind": f"{card['kind']}, draws {side} × {side} pixels",
        "condition": f"{card['condition']['name']} ({inside}), mode {card['mode']}",
        "data": f"{data['name']}, {len(data['classes'])} classes, {data['images']:,} images, "
        f"fingerprint {data['fingerprint']}",
        "parameters": f"{sum(parts.values()):,}: " + ", ".join(f"{k} {v:,}" for k, v in parts.items()),
        "on disk": f"{sum(s.stat().st_size for s in shards):,} bytes in {len(shards)} files",
        "started from": card["init"] or "nothing",
        "machine": ", ".join(f"{v}" if k == "device" else f"{k} {v}" for k, v in machine.items()) or "not said",
        "commit": card.get("commit", "not said"),
        "weights": f"{card['weights']}: weights match the card",
    }
    return {**found, "classes": ", ".join(data["classes"])} if classes else found
