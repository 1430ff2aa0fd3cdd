"""Photographs with their views: made by a folder job, shown as small pictures beside the result."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from PIL import Image

from onesdaug.augment.config import preset as settings_of
from onesdaug.augment.operator import faithful_preset
from onesdaug.augment.presets import purpose
from onesdaug.data.images import load_image
from onesdaug.data.samples import CREDITS, sample_photographs
from onesdaug.errors import OnesdaugError
from onesdaug.jobs.job import run_job
from onesdaug.jobs.manifest import Manifest
from onesdaug.jobs.plan import Item, list_inputs
from onesdaug.jobs.sheet import write_sheet
from onesdaug.jobs.survey import JobSettings
from onesdaug.report.pictures import save_thumbnail
from onesdaug.report.records import Photograph
from onesdaug.studies.context import StudyContext

MOST = 24  # a page stays a few megabytes whatever folder it was given
Rows = Sequence[Mapping[str, Any]]  # the manifest's rows of one photograph
Found = tuple[tuple[Photograph, ...], list[str], list[str]]


def make_photographs(
    shown: Mapping[tuple[str, str], str], k: int, counts: Mapping[str, int], context: StudyContext, output: Path
) -> Found:
    """The photographs, each with the views of every model and preset; what to know, and one line for each problem.

    `k` views each, or as many as `counts` says of a model.
    """
    photographs: dict[str, list[Photograph]] = {}
    notes: list[str] = []
    problems: list[str] = []
    for (model, preset), what in shown.items():
        made, told, failed = _make(model, preset, counts.get(model, k), context, output)
        for one in made:
            name = f"{one.name}: {what[0].lower()}{what[1:]}"
            photographs.setdefault(one.name, []).append(one.model_copy(update={"name": name}))
        notes += [f"{what}: {line}" for line in told]
        problems += failed
    found = tuple(one for group in photographs.values() for one in group)
    return found, notes, list(dict.fromkeys(problems))


def _make(model: str, preset: str, k: int, context: StudyContext, output: Path) -> Found:
    own = preset == faithful_preset(model)
    views = output / f"views-{Path(model).name}{'' if own else f'-{preset}'}"
    given = context.settings.images
    try:
        inputs = list(given) or sample_files(output / "photos")
        listing = list_inputs(inputs, views)
        augmenter = context.augmenter(model, settings_of(preset))
        with context.timed("views"):
            # views of an earlier demo make way for these; the tweaks are kept for the page
            run_job(augmenter, listing, JobSettings(views, k, context.settings.seed, save_aug=True, overwrite=True))
            title = f"{Path(model).name} · preset {preset}"
            write_sheet(views, listing.items, k, None, title, Manifest(views).views, overwrite=True)
    except (OnesdaugError, OSError) as error:
        return (), [], [f"no views were made: {' '.join(str(error).split())}"]
    found, manifest = [], Manifest(views)
    problems = [f"{Path(source).name}: {_bare(reason, source, views)}" for source, reason in listing.problems]
    for item in listing.items[:MOST]:
        try:
            credit = "" if given else CREDITS.get(item.path.stem, "")
            one = _photograph(item, _rows(item, manifest, k), credit, views, output)
            by = "" if augmenter.generator is None else f"preset {purpose(preset)} · "
            found.append(one.model_copy(update={"note": by + one.note}))
        except OnesdaugError as error:
            reason = manifest.remarks.get(item.source, {}).get("reason", error)
            problems.append(f"{item.path.name}: {_bare(str(reason), item.source, views)}")
    names = [Path(name).name for name in inputs[:4]] + ["…"] * (len(inputs) > 4)
    options = ["--model", Path(model).name, "--preset", preset, "--k", str(k)]
    notes = [f"`onesdaug augment {shlex.join(names)} -o views {shlex.join(options)}`."]
    if (more := len(listing.items) - MOST) > 0:
        notes.append(f"{more} more images are in the folder of views, not on this page.")
    return tuple(found), notes, problems


def sample_files(folder: Path) -> list[str]:
    """The sample photographs as files, as a user would have them."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, image in sample_photographs().items():
        if not (folder / f"{name}.png").exists():
            image.save(folder / f"{name}.png")
    return [str(folder / f"{name}.png") for name in CREDITS]


def _rows(item: Item, manifest: Manifest, k: int) -> Rows:
    made = [row for row in manifest.rows(item.prefix, k) if row["source"] == item.source]
    if not made:
        raise OnesdaugError(f"{item.path} has no views")
    return made


def _photograph(item: Item, made: Rows, credit: str, views: Path, output: Path) -> Photograph:
    original = load_image(item.path)
    shown: list[tuple[str, Image.Image]] = [("original", original)]
    if made[0]["generator"] != "shape" and made[0].get("tweak"):  # else the tweaked image is the view itself
        shown.append(("tweaked", load_image(views / made[0]["tweak"])))
    shown += [(f"view {row['k']}", load_image(views / row["view"])) for row in made]
    pictures = []
    for caption, image in shown:
        file = Path("thumbnails") / f"{views.name}-{Path(item.view(1)).stem}-{caption.replace(' ', '-')}.jpg"
        save_thumbnail(image, output / file)
        pictures.append((caption, file.as_posix()))
    return Photograph(name=item.path.name, credit=credit, note=_note(original, made), pictures=tuple(pictures))


def _note(original: Image.Image, made: Rows) -> str:
    parts = [f"{original.width} × {original.height}"]
    first = made[0]
    if first.get("steps_run"):
        parts.append(f"{first['steps_run']} steps from t = {first['t0']}, noise level {first['noise_level']:g}")
    seconds = [float(row["seconds"]) for row in made if row.get("seconds") is not None]
    if seconds:
        parts.append(f"{sum(seconds) / len(seconds):.2g} s a view")
    return " · ".join(parts)


def _bare(reason: str, source: str, views: Path) -> str:
    """A reason without this machine's folders, and without the name that already stands before it."""
    text = reason.replace(source, Path(source).name).replace(str(views), views.name)
    return text.removeprefix(Path(source).name).lstrip(" :")
