"""Photographs with their views as small pictures inside a page, from what `onesdaug augment` left in a folder."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from PIL import Image

from onesdaug.data.images import load_image
from onesdaug.errors import OnesdaugError
from onesdaug.jobs.manifest import Manifest
from onesdaug.jobs.plan import Item, list_inputs

MAX_ROWS = 24  # a page stays a few megabytes whatever folder it was given
_SIDE = 256  # pixels of a thumbnail's longer side: sharp at the 128 or so CSS pixels it gets


@dataclass(frozen=True)
class Picture:
    caption: str
    uri: str
    size: tuple[int, int]


@dataclass(frozen=True)
class PhotoRow:
    """One photograph: original, tweaked, views."""

    name: str
    credit: str
    note: str
    pictures: tuple[Picture, ...]


@dataclass(frozen=True)
class Gallery:
    """What can be shown, one line for each input that cannot, and how many more there are."""

    rows: tuple[PhotoRow, ...] = ()
    problems: tuple[str, ...] = ()
    more: int = 0
    generator: str = ""  # the fingerprint of what drew them


def gallery(views: Path, inputs: Sequence[str | Path], k: int, credits: Mapping[str, str] | None = None) -> Gallery:
    """The rows of these inputs; only file names appear, no folders. `credits` gives a caption by file stem."""
    listing = list_inputs(inputs, views)
    manifest = Manifest(views)
    problems = [f"{Path(source).name}: {_bare(reason, source, views)}" for source, reason in listing.problems]
    rows, generator = [], ""
    for item in listing.items[:MAX_ROWS]:
        try:
            made = _made(item, manifest, k)
            rows.append(_row(views, item, made, credits or {}))
            generator = made[0]["generator"]
        except OnesdaugError as error:
            reason = manifest.remarks.get(item.source, {}).get("reason", error)
            problems.append(f"{item.path.name}: {_bare(str(reason), item.source, views)}")
    return Gallery(tuple(rows), tuple(problems), max(0, len(listing.items) - MAX_ROWS), generator)


def data_uri(image: Image.Image, side: int = _SIDE) -> str:
    """The image, at most `side` pixels, as a JPEG that needs no file."""
    small = image.convert("RGB")
    small.thumbnail((side, side), Image.Resampling.LANCZOS)
    buffer = io.BytesIO()
    small.save(buffer, "JPEG", quality=85, optimize=True)
    return f"data:image/jpeg;base64,{base64.b64encode(buffer.getvalue()).decode()}"


def _made(item: Item, manifest: Manifest, k: int) -> list[dict[str, Any]]:
    """The manifest's rows of this input's views."""
    made = [row for row in manifest.rows(item.prefix, k) if row["source"] == item.source]
    if not made:
        raise OnesdaugError(f"{item.path} has no views")
    return made


def _row(views: Path, item: Item, made: Sequence[Mapping[str, Any]], credits: Mapping[str, str]) -> PhotoRow:
    original = load_image(item.path)
    pictures = [_picture("original", original)]
    if made[0]["generator"] != "shape" and made[0].get("tweak"):  # else the tweaked image is the view itself
        pictures.append(_picture("tweaked", load_image(views / made[0]["tweak"])))
    pictures += [_picture(f"view {row['k']}", load_image(views / row["view"])) for row in made]
    return PhotoRow(item.path.name, credits.get(item.path.stem, ""), _note(original, made), tuple(pictures))


def _picture(caption: str, image: Image.Image) -> Picture:
    return Picture(caption, data_uri(image), image.size)


def _note(original: Image.Image, made: Sequence[Mapping[str, Any]]) -> str:
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
