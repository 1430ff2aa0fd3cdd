"""`onesdaug augment IN... -o OUT`: the views of files and folders of images."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from onesdaug.errors import ConfigError, OnesdaugError

if TYPE_CHECKING:
    from PIL import Image

    from onesdaug.augment.config import AugmentConfig
    from onesdaug.augment.operator import Augmenter
    from onesdaug.jobs.plan import Item, Listing
    from onesdaug.jobs.survey import JobSettings

_OPERATOR, _SHAPE, _MODEL = "The operator (unset: the preset's value)", "Shape tweak", "Model and machine"
# settings by the name of their flag, for error messages
_FLAGS = {
    "guidance": "cfg",
    "guidance_interval": "cfg-interval",
    "image_scale": "ip-scale",
    "shape.rotate": "shape-aug-rotate",
    "shape.stretch": "shape-aug-stretch",
    "shape.translate": "shape-aug-translate",
    "shape.perspective": "shape-aug-persp",
    "shape.flip": "shape-aug-flip",
}


def augment(
    inputs: Annotated[list[Path], typer.Argument(metavar="IN...", help="Images and folders of images.")],
    out: Annotated[Path, typer.Option("--out", "-o", metavar="OUT", help="Folder for the views.")],
    k: Annotated[int, typer.Option("--k", "-k", min=1, help="Views per image.")] = 3,
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
    preset: Annotated[
        str | None,
        typer.Option(
            rich_help_panel=_OPERATOR,
            help="paper, paper-fast (dpm++, 10 steps), paper-cheap (5, less guidance), vlm, pocket, pocket-fast, "
            "pocket-faithful or pocket-imagenet; unset: the model's own.",
        ),
    ] = None,
    noise_level: Annotated[
        float | None, typer.Option(rich_help_panel=_OPERATOR, help="eta: 0 keeps the image, 1 is pure noise.")
    ] = None,
    noise_map: Annotated[
        str | None, typer.Option(rich_help_panel=_OPERATOR, help="eta → t: strength or cumulative.")
    ] = None,
    noise_space: Annotated[
        str | None, typer.Option(rich_help_panel=_OPERATOR, help="Add the noise to: latent or pixel.")
    ] = None,
    steps: Annotated[
        int | None, typer.Option(rich_help_panel=_OPERATOR, help="Denoising steps of a full run.")
    ] = None,
    solver: Annotated[
        str | None, typer.Option(rich_help_panel=_OPERATOR, help="ddpm-ancestral, ddpm (sigma 0), ddim or dpm++.")
    ] = None,
    cfg: Annotated[
        float | None, typer.Option(rich_help_panel=_OPERATOR, help="Classifier-free guidance; 1 is off.")
    ] = None,
    cfg_interval: Annotated[
        tuple[float, float] | None,
        typer.Option(
            rich_help_panel=_OPERATOR, help="Guidance only where t/T lies between these two: cheaper elsewhere."
        ),
    ] = None,
    ip_adapter: Annotated[
        bool | None,
        typer.Option(
            "--ip-adapter/--no-ip-adapter", rich_help_panel=_OPERATOR, help="Condition on the original image."
        ),
    ] = None,
    ip_scale: Annotated[
        float | None, typer.Option(rich_help_panel=_OPERATOR, help="Weight of the image tokens.")
    ] = None,
    attention: Annotated[
        str | None, typer.Option(rich_help_panel=_OPERATOR, help="Image tokens: decoupled or concat.")
    ] = None,
    mode: Annotated[
        str | None,
        typer.Option(
            rich_help_panel=_OPERATOR, help="pocket: the condition is this image (self) or its class (class)."
        ),
    ] = None,
    prompt: Annotated[str | None, typer.Option(rich_help_panel=_OPERATOR, help="Text prompt.")] = None,
    fit: Annotated[
        str | None, typer.Option(rich_help_panel=_OPERATOR, help="Non-square images: squash, pad or crop.")
    ] = None,
    shape_aug: Annotated[
        bool | None,
        typer.Option("--shape-aug/--no-shape-aug", rich_help_panel=_SHAPE, help="Tweak the shape first."),
    ] = None,
    shape_aug_rotate: Annotated[float | None, typer.Option(rich_help_panel=_SHAPE, help="Degrees, ±.")] = None,
    shape_aug_stretch: Annotated[
        float | None, typer.Option(rich_help_panel=_SHAPE, help="Scales in 1 ± this.")
    ] = None,
    shape_aug_translate: Annotated[
        float | None, typer.Option(rich_help_panel=_SHAPE, help="Shift, ± this part of the side.")
    ] = None,
    shape_aug_persp: Annotated[
        float | None, typer.Option(rich_help_panel=_SHAPE, help="Corner jitter, ± this part of the side.")
    ] = None,
    shape_aug_flip: Annotated[
        bool | None,
        typer.Option("--shape-aug-flip/--no-shape-aug-flip", rich_help_panel=_SHAPE, help="Mirror half of the views."),
    ] = None,
    model: Annotated[
        str,
        typer.Option(
            rich_help_panel=_MODEL,
            help="pocket (embedded), pocket-imagenet, sd15, a hub id, a folder, or shape (geometry only).",
        ),
    ] = "pocket",
    ip_repo: Annotated[
        str, typer.Option(rich_help_panel=_MODEL, help="Where the IP-Adapter weights are.")
    ] = "h94/IP-Adapter",
    ip_weights: Annotated[str | None, typer.Option(rich_help_panel=_MODEL, help="Which file of --ip-repo.")] = None,
    device: Annotated[str, typer.Option(rich_help_panel=_MODEL, help="auto, cpu, cuda, cuda:1 or mps.")] = "auto",
    dtype: Annotated[str, typer.Option(rich_help_panel=_MODEL, help="auto, float32, float16 or bfloat16.")] = "auto",
    batch_size: Annotated[
        int | None, typer.Option(min=1, rich_help_panel=_MODEL, help="Views computed at once (else chosen).")
    ] = None,
    vae_tiling: Annotated[
        bool, typer.Option("--vae-tiling", rich_help_panel=_MODEL, help="Less memory for large pictures.")
    ] = False,
    vae_slicing: Annotated[
        bool, typer.Option("--vae-slicing", rich_help_panel=_MODEL, help="Less memory for large batches.")
    ] = False,
    compile: Annotated[
        str,
        typer.Option(
            rich_help_panel=_MODEL, help="Same views, faster: off, regional (starts in seconds) or max (minutes)."
        ),
    ] = "off",
    side: Annotated[
        int | None,
        typer.Option(rich_help_panel=_MODEL, help="Draw at another size than the model's own: cheaper, other views."),
    ] = None,
    decoder: Annotated[
        str | None,
        typer.Option(
            rich_help_panel=_MODEL,
            help="Tiny decoder to draw with: cheaper, other views. sd15: AutoencoderTiny (TAESD), a folder or hub id; "
            "pocket: artifacts/pocket-tiny-decoder.",
        ),
    ] = None,
) -> None:
    """Make K views of every image in IN... and write them to OUT with a manifest.

    Run the same command again to go on after an interruption: only what is missing is made.
    Exit code 0: all good; 1: some inputs failed; 2: wrong settings; 130: interrupted.
    """
    from onesdaug.common.files import check_writable
    from onesdaug.jobs.plan import list_inputs
    from onesdaug.jobs.survey import JobSettings

    listing = list_inputs(inputs, out, recursive=recursive, extensions=ext or ())
    if ip_adapter is False and (ip_scale is not None or attention is not None):
        raise ConfigError("--no-ip-adapter leaves nothing for --ip-scale and --attention to act on; leave them out")
    settings = {
        "noise_level": noise_level,
        "noise_map": noise_map,
        "noise_space": noise_space,
        "steps": steps,
        "solver": solver,
        "guidance": cfg,
        "guidance_interval": cfg_interval,
        "condition": ip_adapter,
        "image_scale": ip_scale,
        "attention": attention,
        "mode": mode,
        "prompt": prompt,
        "fit": fit,
    }
    tweak = {
        "rotate": shape_aug_rotate,
        "stretch": shape_aug_stretch,
        "translate": shape_aug_translate,
        "perspective": shape_aug_persp,
        "flip": shape_aug_flip,
    }
    from onesdaug.augment.operator import default_preset

    config = _config(preset or default_preset(model), settings, shape_aug, tweak)
    if model == "shape" and (
        idle := [name for name, value in settings.items() if value is not None and name != "fit"]
    ):
        raise ConfigError(
            f"model shape has no generator: {', '.join(_as_flag(f'{n}:')[:-1] for n in idle)} would do nothing"
        )
    check_writable(out)

    def load() -> Augmenter:
        from onesdaug.augment.operator import Augmenter

        if not listing.items:  # nothing to draw: no weights are loaded only to say so
            return Augmenter(None, config)
        return Augmenter.from_pretrained(
            model,
            config=config,
            ip_adapter=config.conditioned,
            ip_repo=ip_repo,
            ip_weights=ip_weights,
            device=device,
            dtype=dtype,
            batch_size=batch_size,
            vae_tiling=vae_tiling,
            vae_slicing=vae_slicing,
            compile=compile,  # type: ignore[arg-type]
            side=side,
            decoder=decoder,
        )

    raise typer.Exit(_run(load(), model, listing, JobSettings(out, k, seed, save_aug, overwrite), sheet))


def _run(augmenter: Augmenter, model: str, listing: Listing, task: JobSettings, sheet: bool) -> int:
    from onesdaug.common.progress import log
    from onesdaug.jobs.job import run_job

    count = len(listing.items)
    if count:
        log.info(
            f"{model}: {augmenter.summary()}; K={task.k} views of {count} image{'s' * (count != 1)}, "
            f"device {augmenter.device}, seed {task.seed}"
        )
    summary = run_job(augmenter, listing, task)
    trouble = False
    if sheet and count and not summary.interrupted:
        try:
            log.info(f"contact sheet: {_sheet(augmenter, model, listing.items, task)}")
        except (OnesdaugError, OSError) as error:  # the views are made; a sheet that is not must not hide that
            log.info(f"no contact sheet: {error}")
            trouble = True
    for source, reason in summary.failures.items():
        log.info(f"failed: {reason if reason.startswith(source) else f'{source}: {reason}'}")
    typer.echo(
        f"{summary.made} views made, {summary.skipped} were there already, {summary.failed} inputs failed, "
        f"{summary.seconds:.1f} s → {task.out}"
    )
    if summary.interrupted:
        log.info("interrupted; finished views are kept. Run the same command again to go on")
        return 130
    return 1 if summary.failed or trouble else 0


def _sheet(augmenter: Augmenter, model: str, items: list[Item], task: JobSettings) -> Path:
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
    title = f"{model} · {augmenter.config.solver} · noise level {augmenter.config.noise_level:g}"
    title = f"{model}: geometry only" if augmenter.generator is None else title
    return write_sheet(
        task.out, items, task.k, None if twice else tweaked, f"{title} · seed {task.seed}", made, task.overwrite
    )


def _config(
    preset_name: str, settings: dict[str, Any], shape_aug: bool | None, tweak: dict[str, Any]
) -> AugmentConfig:
    """The preset with the flags that were given; every complaint names its flag."""
    from onesdaug.augment.config import preset

    given = {name: value for name, value in settings.items() if value is not None}
    tweak = {name: value for name, value in tweak.items() if value is not None}
    if shape_aug is False and tweak:
        raise ConfigError("--no-shape-aug and --shape-aug-... contradict each other; leave one of them out")
    base = preset(preset_name).shape
    if shape_aug is False:
        given["shape"] = None
    elif tweak or shape_aug:
        given["shape"] = {**(base.model_dump() if base is not None else {}), **tweak}
    try:
        return preset(preset_name, **given)
    except ConfigError as error:
        raise ConfigError("\n".join(_as_flag(line) for line in str(error).splitlines())) from None


def _as_flag(line: str) -> str:
    name, colon, rest = line.partition(":")
    return f"--{_FLAGS.get(name, name.replace('_', '-'))}{colon}{rest}" if colon else line
