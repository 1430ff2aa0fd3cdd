"""`onesdaug augment IN... -o OUT`: the views of files and folders of images."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from onesdaug.augment.config import AugmentConfig, GeneratorOptions, preset
from onesdaug.augment.presets import LISTED, check_preset, purpose
from onesdaug.augment.shape import ShapeTweak
from onesdaug.cli.options import From, examples, options, spelling
from onesdaug.errors import ConfigError, OnesdaugError

if TYPE_CHECKING:
    from PIL import Image

    from onesdaug.augment.operator import Augmenter
    from onesdaug.jobs.plan import Item, Listing
    from onesdaug.jobs.survey import JobSettings

app = typer.Typer(add_completion=False)
_OPERATOR, _SHAPE = "The operator (unset: the preset's value)", "Shape tweak"
# the paper's names; the condition and the tweak as a whole have a switch each
_NAMES = {"guidance": "cfg", "guidance_interval": "cfg-interval", "image_scale": "ip-scale", "condition": "ip-adapter"}
CONFIG = From(AugmentConfig, _NAMES, panel=_OPERATOR, without=("shape",), partial=True)
TWEAK = From(ShapeTweak, {"perspective": "shape-aug-persp"}, prefix="shape-aug-", panel=_SHAPE, partial=True)
GENERATOR = From(GeneratorOptions, {"name": "model"}, panel="Model and machine")


@app.command(
    context_settings=spelling(out="output"),
    epilog=examples("augment cat.jpg -o views --sheet", "augment photos/ -o views -r --k 5 --preset pocket"),
)
@options
def augment(
    inputs: Annotated[list[Path], typer.Argument(metavar="IN...", help="Images and folders of images.")],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="OUT", help="Folder for the views.")],
    *,
    k: Annotated[int, typer.Option("--k", "-k", min=0, help="Views per image.")] = 3,
    seed: Annotated[int, typer.Option(help="Every view has its own stream, drawn from this.")] = 0,
    recursive: Annotated[bool, typer.Option("--recursive", "-r", help="Search subfolders too.")] = False,
    ext: Annotated[
        list[str] | None, typer.Option(help="File endings to take, e.g. --ext jpg,png (else all usual ones).")
    ] = None,
    sheet: Annotated[bool, typer.Option("--sheet", help="Also draw OUT/sheet.png to look at.")] = False,
    save_aug: Annotated[
        bool, typer.Option("--save-aug", help="Also save the tweaked image behind each view.")
    ] = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace files that hold something else; finished views stay.")
    ] = False,
    name: Annotated[
        str | None,
        typer.Option(
            "--preset",
            rich_help_panel=_OPERATOR,
            help=f"Settings by name (else the model's own for looking at): {LISTED}.",
        ),
    ] = None,
    config: Annotated[dict[str, Any], CONFIG],
    shape_aug: Annotated[
        bool | None,
        typer.Option("--shape-aug/--no-shape-aug", rich_help_panel=_SHAPE, help="Tweak the shape first."),
    ] = None,
    tweak: Annotated[dict[str, Any], TWEAK],
    generator: Annotated[GeneratorOptions, GENERATOR],
) -> None:
    """Make K views of every image in IN... and write them to OUT with a manifest.

    Run the same command again to go on after an interruption: only what is missing is made.
    Exit code 0: all good; 1: some inputs failed; 2: wrong settings; 130: interrupted.
    """
    from onesdaug.augment.operator import default_preset, faithful_preset
    from onesdaug.common.files import check_writable
    from onesdaug.jobs.plan import list_inputs
    from onesdaug.jobs.survey import JobSettings

    listing = list_inputs(inputs, output, recursive=recursive, extensions=ext or ())
    if config.get("condition") is False and ("image_scale" in config or "attention" in config):
        raise ConfigError("--no-ip-adapter leaves nothing for --ip-scale and --attention to act on; leave them out")
    if generator.name == "shape" and (idle := [CONFIG.flag(field) for field in config if field != "fit"]):
        raise ConfigError(f"model shape has no generator: {', '.join(idle)} would do nothing")
    if name is not None:
        check_preset(name, default_preset(generator.name), generator.name)
    switches = {"--preset": name, "--shape-aug": shape_aug, "--save-aug": save_aug or None}
    given = [flag for flag, value in switches.items() if value is not None]
    given += [*map(CONFIG.flag, config), *map(TWEAK.flag, tweak)]
    name = name or faithful_preset(generator.name)
    settings = _config(name, config, shape_aug, tweak)
    check_writable(output)
    augmenter = _load(generator, settings, k * len(listing.items), given)
    job = JobSettings(output, k, seed, save_aug, overwrite)
    changed = "" if settings == preset(name) else ", changed"
    raise typer.Exit(_run(augmenter, generator.name, (name, changed), listing, job, sheet))


def _load(generator: GeneratorOptions, settings: AugmentConfig, views: int, given: list[str]) -> Augmenter:
    """The augmenter, while the number of views is told; with nothing to draw no weights are loaded only to say so."""
    from onesdaug.augment.adapter import SourceAugmenter
    from onesdaug.augment.operator import Augmenter
    from onesdaug.common.progress import progress

    if not views:
        return Augmenter(None, AugmentConfig(**settings.model_dump()))
    with progress(views, "views", f"loading {generator.name}"):
        made = Augmenter.from_pretrained(config=settings, ip_adapter=settings.conditioned, **generator.model_dump())
    if isinstance(made, SourceAugmenter):
        _check_idle(generator, given)
    return made


def _check_idle(generator: GeneratorOptions, flags: list[str]) -> None:
    """A source of views has no settings: what was given for a generator would do nothing."""
    plain = GeneratorOptions(name=generator.name, device=generator.device)
    flags += [GENERATOR.flag(name) for name in GENERATOR.fields if getattr(plain, name) != getattr(generator, name)]
    if flags:
        raise ConfigError(f"{generator.name} makes its views without a generator: {', '.join(flags)} would do nothing")


def _run(
    augmenter: Augmenter, model: str, named: tuple[str, str], listing: Listing, task: JobSettings, sheet: bool
) -> int:
    from onesdaug.cli.screen import say
    from onesdaug.common.progress import log
    from onesdaug.jobs.job import run_job

    count = len(listing.items)
    if count:
        by = "" if augmenter.generator is None else f", preset {purpose(named[0])}{named[1]}"
        log.info(
            f"{model}{by}: {augmenter.summary()}; K={task.k} views of {count} image{'s' * (count != 1)}, "
            f"device {augmenter.device}, seed {task.seed}"
        )
    summary = run_job(augmenter, listing, task)
    trouble = False
    if sheet and count and not summary.interrupted:
        try:
            log.info(f"contact sheet: {_sheet(augmenter, model, ''.join(named), listing.items, task)}")
        except (OnesdaugError, OSError) as error:  # the views are made; a sheet that is not must not hide that
            log.info(f"no contact sheet: {error}")
            trouble = True
    for source, reason in summary.failures.items():
        log.info(f"failed: {reason if reason.startswith(source) else f'{source}: {reason}'}")
    say(
        f"{summary.made} views made, {summary.skipped} were there already, {summary.failed} inputs failed, "
        f"{summary.seconds:.1f} s → {task.out}"
    )
    if summary.interrupted:
        log.info("interrupted; finished views are kept. Run the same command again to go on")
        return 130
    return 1 if summary.failed or trouble else 0


def _sheet(augmenter: Augmenter, model: str, preset: str, items: list[Item], task: JobSettings) -> Path:
    from onesdaug.augment.operator import Augmenter, Row
    from onesdaug.jobs.manifest import Manifest, made_with
    from onesdaug.jobs.sheet import write_sheet

    # stage 1 alone draws the same psi from the same stream, so the tweak need not have been saved
    geometry = Augmenter(None, augmenter.config, device="cpu", side=augmenter.side)
    mine = augmenter.config.digest(), task.seed, augmenter.fingerprint
    made = {name for name, row in Manifest(task.out).views.items() if made_with(row) == mine}

    def tweaked(_: Item, original: Image.Image) -> Image.Image:
        return geometry.run([Row(original, 1, task.seed)])[0].image

    # without a generator the tweaked image is the view itself: a column of its own would show it twice
    twice = augmenter.generator is None or augmenter.config.shape is None
    title = f"{model} · preset {preset} · {augmenter.config.solver} · noise level {augmenter.config.noise_level:g}"
    if augmenter.generator is None:
        title = f"{model}: geometry only" if augmenter.config.shape else model
    return write_sheet(
        task.out, items, task.k, None if twice else tweaked, f"{title} · seed {task.seed}", made, task.overwrite
    )


def _config(name: str, given: dict[str, Any], shape_aug: bool | None, tweak: dict[str, Any]) -> AugmentConfig:
    """The preset with the flags that were given."""
    if shape_aug is False and tweak:
        raise ConfigError("--no-shape-aug and --shape-aug-... contradict each other; leave one of them out")
    base = preset(name).shape
    if shape_aug is False:
        given = {**given, "shape": None}
    elif tweak or shape_aug:
        given = {**given, "shape": {**(base.model_dump() if base is not None else {}), **tweak}}
    return preset(name, **given)
