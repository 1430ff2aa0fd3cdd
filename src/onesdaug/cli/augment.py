"""`onesdaug augment IN... -o OUT`: the views of files and folders of images."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from pydantic import Field

from onesdaug.augment.config import AugmentConfig, GeneratorOptions, preset
from onesdaug.augment.presets import LISTED, check_preset, purpose
from onesdaug.augment.shape import ShapeTweak
from onesdaug.cli.options import CLUSTER, From, WithRay, examples, options, spelling
from onesdaug.common.files import is_uri
from onesdaug.errors import ConfigError, OnesdaugError
from onesdaug.scale.start import RayOptions

if TYPE_CHECKING:
    from PIL import Image

    from onesdaug.augment.operator import Augmenter
    from onesdaug.jobs.ledger import JobReport
    from onesdaug.jobs.plan import Item, Listing
    from onesdaug.jobs.survey import JobSettings
    from onesdaug.scale.batch import About

app = typer.Typer(add_completion=False)
_OPERATOR, _SHAPE = "The operator (unset: the preset's value)", "Shape tweak"
# the paper's names; the condition and the tweak as a whole have a switch each
_NAMES = {"guidance": "cfg", "guidance_interval": "cfg-interval", "image_scale": "ip-scale", "condition": "ip-adapter"}
CONFIG = From(AugmentConfig, _NAMES, panel=_OPERATOR, without=("shape",), partial=True)
TWEAK = From(ShapeTweak, {"perspective": "shape-aug-persp"}, prefix="shape-aug-", panel=_SHAPE, partial=True)
_OWN = f"Settings by name (else the model's own for looking at): {LISTED}."
PRESET = typer.Option("--preset", rich_help_panel=_OPERATOR, help=_OWN)
GENERATOR = From(GeneratorOptions, {"name": "model"}, panel="Model and machine")


@dataclass(frozen=True)
class Output:
    """What is written besides the views, and in which form."""

    sheet: Annotated[bool, "Also draw OUT/sheet.png to look at"] = False
    save_aug: Annotated[bool, "Also save the tweaked image behind each view"] = False
    overwrite: Annotated[bool, "Replace files that hold something else; finished views stay"] = False
    shards: Annotated[
        Literal["parquet", "webdataset"] | None, "Write shards of views instead of image files: parquet or webdataset"
    ] = None
    shard_views: Annotated[int, Field(ge=1, description="Views in a shard, about")] = 512

    def check(self, output: str) -> None:
        if is_uri(output) and self.shards is None:
            raise ConfigError(f"-o {output}: image files go to a folder; with --shards a URI works too")
        if self.sheet and self.shards is not None:
            raise ConfigError("--sheet shows image files, and --shards writes none; leave one of them out")


@app.command(
    cls=WithRay,
    context_settings=spelling(out="output"),
    epilog=examples(
        "augment cat.jpg -o views --sheet",
        "augment photos/ -o views -r --k 5 --preset pocket-accuracy",
        "augment s3://bucket/shards -o s3://bucket/views --shards webdataset --ray auto",
    ),
)
@options
def augment(
    inputs: Annotated[
        list[str],
        typer.Argument(
            metavar="IN...",
            help="Images, folders of them, zip files, WebDataset (.tar) and Parquet shards; paths, or URIs like s3://.",
        ),
    ],
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="OUT", help="Folder for the views; with --shards also a URI.")
    ],
    *,
    k: Annotated[int, typer.Option("--k", "-k", min=0, help="Views per image.")] = 3,
    seed: Annotated[int, typer.Option(help="Every view has its own stream, drawn from this.")] = 0,
    recursive: Annotated[bool, typer.Option("--recursive", "-r", help="Search subfolders too.")] = False,
    ext: Annotated[
        list[str] | None, typer.Option(help="File endings to take, e.g. --ext jpg,png (else all usual ones).")
    ] = None,
    files: Annotated[Output, From(Output)],
    name: Annotated[str | None, PRESET] = None,
    config: Annotated[dict[str, Any], CONFIG],
    shape_aug: Annotated[
        bool | None,
        typer.Option("--shape-aug/--no-shape-aug", rich_help_panel=_SHAPE, help="Tweak the shape first."),
    ] = None,
    tweak: Annotated[dict[str, Any], TWEAK],
    generator: Annotated[GeneratorOptions, GENERATOR],
    cluster: Annotated[RayOptions, CLUSTER],
) -> None:
    """Make K views of every image in IN... and write them to OUT with a manifest.

    Run the same command again to go on after an interruption: only what is missing is made.
    Exit code 0: all good; 1: some inputs failed; 2: wrong settings; 130: interrupted.
    """
    from onesdaug.common.files import check_writable
    from onesdaug.jobs.plan import list_inputs
    from onesdaug.jobs.survey import JobSettings

    files.check(output)
    out = Path(output)
    listing = list_inputs(inputs, out, recursive=recursive, extensions=ext or ())
    switches = {"--preset": name, "--shape-aug": shape_aug, "--save-aug": files.save_aug or None}
    given = [flag for flag, value in switches.items() if value is not None]
    given += [*map(CONFIG.flag, config), *map(TWEAK.flag, tweak)]
    name = _preset(generator, config, name)
    if not is_uri(output):
        check_writable(out)
    job = JobSettings(out, k, seed, files.save_aug, files.overwrite)
    task = _Task(generator, _config(name, config, shape_aug, tweak), name, given, listing, job, cluster)
    if files.shards is not None:
        report = task.in_shards(output, files.shards, files.shard_views)
    elif cluster.ray is not None and k and listing.items:
        report = task.on_ray()
    else:
        report = task.here()
    raise typer.Exit(task.told(report, output, files.sheet))


def _preset(generator: GeneratorOptions, config: dict[str, Any], name: str | None) -> str:
    """The one that is named, else the generator's own; settings that would do nothing are refused."""
    from onesdaug.generators.load import default_preset, faithful_preset

    if config.get("condition") is False and ("image_scale" in config or "attention" in config):
        raise ConfigError("--no-ip-adapter leaves nothing for --ip-scale and --attention to act on; leave them out")
    if generator.name == "shape" and (idle := [CONFIG.flag(field) for field in config if field != "fit"]):
        raise ConfigError(f"model shape has no generator: {', '.join(idle)} would do nothing")
    if name is None:
        return faithful_preset(generator.name)
    check_preset(name, default_preset(generator.name), generator.name)
    return name


@dataclass
class _Task:
    """One call of the command; `drawn` is what draws its views, once that is known."""

    options: GeneratorOptions
    config: AugmentConfig
    preset: str
    given: list[str]
    listing: Listing
    job: JobSettings
    cluster: RayOptions
    drawn: Augmenter | About | None = None

    def here(self) -> JobReport:
        from onesdaug.jobs.job import run_job

        augmenter = _load(self.options, self.config, self.job.k * len(self.listing.items), self.given)
        self.begin(augmenter, augmenter.summary())
        return run_job(augmenter, self.listing, self.job)

    def on_ray(self) -> JobReport:
        from onesdaug.scale.batch import loader, run_on_ray

        load = loader(self.options.model_dump(), self.config)
        return run_on_ray(load, self.listing, self.job, self.cluster, self.options.device, self.begin_there)[0]

    def in_shards(self, out: str, kind: Literal["parquet", "webdataset"], views: int) -> JobReport:
        from onesdaug.scale.batch import loader
        from onesdaug.scale.shards import run_shards

        load, device = loader(self.options.model_dump(), self.config), self.options.device
        return run_shards(load, self.listing, self.job, out, kind, views, self.cluster, device, self.begin_there)[0]

    def begin_there(self, about: About) -> None:
        if about.source:
            _check_idle(self.options, self.given)
        self.begin(about, about.summary)

    def begin(self, drawn: Augmenter | About, summary: str) -> None:
        """Say what will be done."""
        from onesdaug.common.progress import log

        self.drawn, count = drawn, len(self.listing.items)
        if count:
            by = "" if drawn.generator is None else f", preset {purpose(self.preset)}{self.changed}"
            log.info(
                f"{self.options.name}{by}: {summary}; K={self.job.k} views of {count} image{'s' * (count != 1)}, "
                f"device {drawn.device}, seed {self.job.seed}"
            )

    @property
    def changed(self) -> str:
        return "" if self.config == preset(self.preset) else ", changed"

    def told(self, report: JobReport, output: str, sheet: bool) -> int:
        """Say what was done; the exit code."""
        from onesdaug.cli.screen import say
        from onesdaug.common.progress import log

        trouble = False
        if sheet and self.listing.items and self.drawn is not None and not report.interrupted:
            try:
                named = self.preset + self.changed
                where = _sheet(self.drawn, self.options.name, named, self.listing.items, self.job)
                log.info(f"contact sheet: {where}")
            except (OnesdaugError, OSError) as error:  # the views are made; a sheet that is not must not hide that
                log.info(f"no contact sheet: {error}")
                trouble = True
        for source, reason in report.failures.items():
            log.info(f"failed: {reason if reason.startswith(source) else f'{source}: {reason}'}")
        say(
            f"{report.made} views made, {report.skipped} were there already, {report.failed} inputs failed, "
            f"{report.seconds:.1f} s → {output}"
        )
        if report.interrupted:
            log.info("interrupted; finished views are kept. Run the same command again to go on")
            return 130
        return 1 if report.failed or trouble else 0


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


def _sheet(augmenter: Augmenter | About, model: str, preset: str, items: list[Item], task: JobSettings) -> Path:
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
