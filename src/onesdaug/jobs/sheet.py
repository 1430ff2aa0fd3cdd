"""The contact sheet: one row per image with the original, the tweaked image and its views."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from onesdaug.common.files import check_plain_file, whole_file
from onesdaug.errors import ConfigError, ImageError
from onesdaug.jobs.plan import identities

if TYPE_CHECKING:
    from PIL import Image, ImageDraw
    from PIL.ImageFont import FreeTypeFont, ImageFont

    from onesdaug.jobs.plan import Item

NAME = "sheet.png"
MAX_ROWS, MAX_VIEWS = 24, 12
_CELL = 200  # side of a thumbnail's square
_GAP, _MARGIN, _HEAD, _CAPTION = 10, 28, 70, 30
_INK, _QUIET, _FRAME = (24, 24, 27), (113, 113, 122), (228, 228, 231)
T = TypeVar("T")
_MARK = "onesdaug contact sheet"  # written into the PNG, so that a rerun knows its own sheet


@dataclass(frozen=True)
class SheetRow:
    """What is shown of one image; None leaves a place empty."""

    name: str
    note: str
    pictures: list[Image.Image | None]


def write_sheet(
    out: Path,
    items: Sequence[Item],
    k: int,
    tweaked: Callable[[Item, Image.Image], Image.Image] | None,
    title: str,
    made: Container[str],
    overwrite: bool = False,
) -> Path:
    """Write OUT/sheet.png from the files a job left.

    `tweaked` gives the first view's tweak, None no such column; of the files in OUT only those in `made` are shown,
    so that a sheet never shows views of other settings under this one's title.
    """
    from PIL.PngImagePlugin import PngInfo

    path = out / NAME
    if identities([path]) & identities(item.path for item in items):
        raise ConfigError(f"{path} is itself an input of this job and was left as it is; give another output folder")
    check_plain_file(path)
    if path.exists() and not overwrite and not _ours(path):
        raise ConfigError(f"{path} is not a sheet of ours and was left as it is; --overwrite replaces it")
    rows = []
    there = [item for item in items if any(item.view(n) in made for n in range(1, k + 1))]
    for item in _spread(there):
        if row := _row(out, item, min(k, MAX_VIEWS), tweaked, made):
            rows.append(row)
    columns = ["original", *(["tweaked"] if tweaked else [])]
    columns += [f"view {n}" for n in range(1, min(k, MAX_VIEWS) + 1)]
    more = f"{len(rows)} of {len(items)} images shown" if len(items) > len(rows) else ""
    more += f"{', ' * bool(more)}{MAX_VIEWS} of {k} views shown" if k > MAX_VIEWS else ""
    info = PngInfo()
    info.add_text("Software", _MARK)
    with whole_file(path) as temporary:
        draw_sheet(rows, columns, title, more).save(temporary, "PNG", pnginfo=info)
    return path


def _spread(items: Sequence[Item]) -> list[Item]:
    """As many as there is room for: as many of one folder (a class, usually) as of another, evenly over each."""
    folders: dict[Path, list[Item]] = {}
    for item in items:
        folders.setdefault(item.path.parent, []).append(item)
    turns = sorted((turn, place) for place, folder in enumerate(folders.values()) for turn in range(len(folder)))
    turns = turns[: max(MAX_ROWS, len(folders))]  # one of each folder, if need be
    rows = Counter(place for _, place in _evenly(turns, min(MAX_ROWS, len(turns))))
    return [item for place, folder in enumerate(folders.values()) for item in _evenly(folder, rows[place])]


def _evenly(things: Sequence[T], count: int) -> list[T]:
    return [things[place * len(things) // count] for place in range(count)]


def _row(
    out: Path,
    item: Item,
    k: int,
    tweaked: Callable[[Item, Image.Image], Image.Image] | None,
    made: Container[str],
) -> SheetRow | None:
    from onesdaug.data.images import load_image
    from onesdaug.jobs.survey import load

    def stored(name: str) -> Image.Image | None:
        try:
            return fitted(load_image(out / name)) if name in made else None
        except ImageError:
            return None

    try:
        original = load(item).image
    except ImageError:
        return None  # it has its line in the manifest and on screen
    views = [stored(item.view(n)) for n in range(1, k + 1)]
    if not any(views):
        return None
    pictures = [fitted(tweaked(item, original)), *views] if tweaked else views
    size = f"{original.width} x {original.height}"
    return SheetRow(item.source, size, [fitted(original), *pictures])


def fitted(image: Image.Image) -> Image.Image:
    """As large as a cell allows, small images enlarged."""
    scale = _CELL / max(image.size)
    return image.resize((max(1, round(image.width * scale)), max(1, round(image.height * scale))))


def draw_sheet(rows: Sequence[SheetRow], columns: Sequence[str], title: str, more: str = "") -> Image.Image:
    """Lay the rows out under the column headings."""
    from PIL import Image, ImageDraw, ImageFont

    tall = [max((p.height for p in row.pictures if p is not None), default=_CELL) for row in rows]
    below = sum(tall) + len(rows) * (_CAPTION + _GAP) if rows else _CELL
    height = _MARGIN + _HEAD + below + _MARGIN + (20 if more else 0)
    width = 2 * _MARGIN + len(columns) * (_CELL + _GAP) - _GAP
    sheet = Image.new("RGB", (width, height), "white")
    draw = ImageDraw.Draw(sheet)
    large, small = ImageFont.load_default(20), ImageFont.load_default(14)
    draw.text((_MARGIN, _MARGIN - 6), _shortened(draw, title, large, width - 2 * _MARGIN), _INK, large)
    for place, text in enumerate(columns):
        left = _MARGIN + place * (_CELL + _GAP)
        draw.text((left + _CELL / 2, _MARGIN + _HEAD - 14), text, _INK, small, anchor="ms")
    draw.line((_MARGIN, _MARGIN + _HEAD - 6, width - _MARGIN, _MARGIN + _HEAD - 6), _FRAME)
    top = _MARGIN + _HEAD
    for row, row_height in zip(rows, tall, strict=True):
        for place, picture in enumerate(row.pictures):
            _place(sheet, draw, picture, _MARGIN + place * (_CELL + _GAP), top, row_height)
        under = top + row_height + 6
        note = f"   {row.note}"
        name = _shortened(draw, row.name, small, width - 2 * _MARGIN - draw.textlength(note, small))
        draw.text((_MARGIN, under), name, _INK, small)
        draw.text((_MARGIN + draw.textlength(name, small), under), note, _QUIET, small)
        top += row_height + _CAPTION + _GAP
    if not rows:
        draw.text((_MARGIN, _MARGIN + _HEAD + 12), "no images", _QUIET, small)
    if more:
        draw.text((_MARGIN, height - _MARGIN - 14), more, _QUIET, small)
    return sheet


def _place(
    sheet: Image.Image,
    draw: ImageDraw.ImageDraw,
    picture: Image.Image | None,
    left: int,
    top: int,
    height: int,
) -> None:
    """Centre a thumbnail in its place; a frame with a cross shows that a view is missing."""
    if picture is not None:
        sheet.paste(picture, (left + (_CELL - picture.width) // 2, top + (height - picture.height) // 2))
        return
    right, bottom = left + _CELL - 1, top + height - 1
    draw.rectangle((left, top, right, bottom), outline=_FRAME)
    draw.line((left, top, right, bottom), _FRAME)
    draw.line((left, bottom, right, top), _FRAME)


def _shortened(draw: ImageDraw.ImageDraw, text: str, font: FreeTypeFont | ImageFont, room: float) -> str:
    """The text, its beginning replaced by dots where it is too long: a path's end says more."""
    text = text.encode("utf-8", "replace").decode()
    if draw.textlength(text, font) <= room:
        return text
    while text and draw.textlength("..." + text, font) > room:
        text = text[1:]
    return "..." + text


def _ours(path: Path) -> bool:
    from onesdaug.data.images import opened

    try:
        with opened(path, str(path)) as image:
            return image.info.get("Software") == _MARK
    except ImageError:
        return False
