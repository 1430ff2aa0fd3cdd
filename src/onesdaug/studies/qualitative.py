"""Contact sheets over noise × condition and noise × tweak, of photographs that may be shown to anyone."""

from __future__ import annotations

from pathlib import Path

from PIL import Image

from onesdaug.augment.config import preset
from onesdaug.augment.operator import default_preset
from onesdaug.common.files import whole_file
from onesdaug.common.progress import log
from onesdaug.data.images import load_image
from onesdaug.data.samples import CREDITS, sample_photographs
from onesdaug.errors import DataError
from onesdaug.jobs.sheet import SheetRow, draw_sheet, fitted
from onesdaug.studies.accuracy import generators_here
from onesdaug.studies.judge import Judge, caption
from onesdaug.studies.result import Sheet
from onesdaug.studies.spec import Figure, Study
from onesdaug.studies.workshop import Missing, Workshop

PHOTOGRAPHS = ("chelsea", "coffee")


def sheets(study: Study, shop: Workshop, folder: Path) -> tuple[tuple[Sheet, ...], list[str]]:
    """One file for each photograph, figure and generator, beside the results."""
    try:
        photographs = _photographs(shop)
    except Missing as missing:
        return (), [str(missing)]
    found: list[Sheet] = []
    generators, problems = generators_here(study, shop)
    try:
        judge = Judge.of(study, shop) if generators else None
    except Missing as missing:
        judge = None
        problems.append(f"captions are not measured: {missing}")
    for generator in generators:
        shown, base = Path(generator).name, study.presets.get(generator, default_preset(generator))
        for name, (image, credit) in photographs.items():
            for number, figure in enumerate(study.figures, start=1):
                with shop.timed("views"):
                    sheet, measured = _draw(figure, shop, generator, base, image, judge)
                file = f"{study.name}-{shown}-{name}-{number}.webp"
                with whole_file(folder / file) as temporary:
                    sheet.save(temporary, "WEBP", quality=82)
                title = f"{figure.title} · {shown} · {name}"
                told = f"{figure.shows} Preset {base}. {measured} Photograph: {credit}."
                found.append(Sheet(title=title, caption=" ".join(told.split()), file=file))
                log.info(title)
    return tuple(found), problems


def _photographs(shop: Workshop) -> dict[str, tuple[Image.Image, str]]:
    if shop.settings.images:
        return {Path(path).stem: (load_image(path), Path(path).name) for path in shop.settings.images}
    try:
        samples = sample_photographs(PHOTOGRAPHS)
    except DataError as error:
        raise Missing(f"{error} (--images)") from error
    return {name: (image, CREDITS[name]) for name, image in samples.items()}


def _draw(
    figure: Figure, shop: Workshop, generator: str, base: str, image: Image.Image, judge: Judge | None
) -> tuple[Image.Image, str]:
    """The sheet, and what was measured of it."""
    rows, measured = [], []
    small = fitted(image)
    for label, changes in figure.rows:
        settings = {name: None if value is False and name == "shape" else value for name, value in changes.items()}
        views: list[Image.Image] = []
        shares = []
        for level in figure.noise_levels:
            augmenter = shop.augmenter(generator, preset(base, noise_level=level, **settings))
            views += augmenter(image, k=1, seed=shop.settings.seed)  # type: ignore[arg-type]
            shares.append(0.0 if judge is None else judge.of_views(augmenter))
        if judge is not None:
            own, *classes = judge.nearest([image, *views])
            measured.append((label, shares, classes.count(own)))
        rows.append(SheetRow(label, f"preset {base}", [small, *(fitted(view) for view in views)]))
    columns = ["original", *(f"noise {level:g}" for level in figure.noise_levels)]
    sheet = draw_sheet(rows, columns, f"{figure.title} · {Path(generator).name}")
    return sheet, caption(judge, figure.noise_levels, measured) if judge is not None else ""
