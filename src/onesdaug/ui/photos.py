"""Files that visitors give, within the limits, and photographs for those who have none at hand."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from onesdaug.errors import ConfigError, DataError, ImageError
from onesdaug.ui.settings import UiSettings

if TYPE_CHECKING:
    from PIL import Image

# parts of the samples, as left, top, right, bottom: what a few-shot task can be tried with
_PARTS = {
    "cat": ("chelsea", (20, 0, 320, 300), (130, 0, 430, 300)),
    "cup": ("coffee", (110, 30, 470, 390), (190, 0, 560, 370)),
    "rocket": ("rocket", (170, 60, 470, 360), (220, 0, 560, 340)),
}


def opened_photo(path: str | Path | None, settings: UiSettings) -> Image.Image:
    """The image of an upload; what is wrong with it is said by its name, never by its place on this machine."""
    from onesdaug.data.images import decode_image, opened

    if path is None:
        raise ImageError("Give a photograph first, or pick a sample.")
    file = Path(path)
    if (size := file.stat().st_size) > settings.max_megabytes * 10**6:
        raise ImageError(f"{file.name} has {size / 1e6:.1f} MB; the page takes up to {settings.max_megabytes}")
    data = file.read_bytes()
    with opened(data, file.name) as header:
        pixels = header.width * header.height
    if pixels > settings.max_megapixels * 10**6:
        raise ImageError(
            f"{file.name} has {pixels / 1e6:.1f} megapixels; the page takes up to {settings.max_megapixels:g}"
        )
    return decode_image(data, file.name)


def check_views(k: int, settings: UiSettings) -> None:
    if not 1 <= k <= settings.max_k:
        raise ConfigError(f"K, the number of views, must lie between 1 and {settings.max_k}, not {k}")


@cache
def sample_files(folder: Path) -> list[Path]:
    """The sample photographs as files; none where scikit-image, which brings them, is missing."""
    from onesdaug.data.samples import sample_photographs

    try:
        samples = sample_photographs()
    except DataError:
        return []
    folder.mkdir(parents=True, exist_ok=True)
    made = []
    for name, image in samples.items():
        made.append(folder / f"{name}.png")
        image.save(made[-1])
    return made


def sample_task(folder: Path) -> dict[str, tuple[Path, Path]]:
    """A few-shot task of the samples: for each class two parts of its photograph, to learn from and to ask about."""
    from onesdaug.data.images import load_image

    whole = {file.stem: file for file in sample_files(folder)}
    made: dict[str, tuple[Path, Path]] = {}
    parts = folder / "parts"
    parts.mkdir(parents=True, exist_ok=True)
    for name, (photo, *boxes) in _PARTS.items():
        if photo not in whole:
            return {}
        files = parts / f"{name}.png", parts / f"{name}-query.png"
        image = load_image(whole[photo])
        for file, box in zip(files, boxes, strict=True):
            image.crop(box).save(file)
        made[name] = files
    return made
