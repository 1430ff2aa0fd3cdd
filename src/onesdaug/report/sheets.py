"""Contact sheets inside the page: pictures that lie beside the results, as they are."""

from __future__ import annotations

import base64
from pathlib import Path

from PIL import Image

from onesdaug.data.images import load_image
from onesdaug.errors import DataError, ImageError
from onesdaug.report.shell import text
from onesdaug.studies.result import Sheet

_TYPES = {"JPEG": "image/jpeg", "PNG": "image/png", "WEBP": "image/webp", "GIF": "image/gif"}


def figure(sheet: Sheet, folder: Path) -> str:
    """The picture with its title and caption; where it cannot be shown, why not, in its place."""
    try:
        uri, (width, height) = _embed(folder, sheet.file)
        alt = f"{sheet.title}: {sheet.caption}"
        # a sheet of many small pictures keeps its size on a phone and is moved under the finger
        shown = (
            f'<div class="scroll sheet" tabindex="0"><img src="{uri}" alt="{text(alt)}" width="{width}" '
            f'height="{height}"></div><p class="note swipe">Move the picture sideways to see all of it.</p>'
        )
    except (DataError, ImageError, OSError) as error:
        reason = str(error).replace(f"{folder}/", "")
        shown = f'<p class="note warn">This picture cannot be shown: {text(reason)}</p>'
    return (
        f'<figure class="card contact"><h3>{text(sheet.title)}</h3>{shown}'
        f"<figcaption>{text(sheet.caption)}</figcaption></figure>"
    )


def _embed(folder: Path, name: str) -> tuple[str, tuple[int, int]]:
    """The file's own bytes, once it has been shown to decode: a broken one would leave a hole in the page."""
    if Path(name).name != name:
        raise DataError(f"{name} does not lie beside the results")
    path = folder / name
    size = load_image(path).size
    with Image.open(path) as picture:
        kind = picture.format or ""
    if kind not in _TYPES:
        raise DataError(f"{name} is {kind or 'of a kind'} that browsers do not show; PNG, JPEG and WebP are shown")
    return f"data:{_TYPES[kind]};base64,{base64.b64encode(path.read_bytes()).decode()}", size
