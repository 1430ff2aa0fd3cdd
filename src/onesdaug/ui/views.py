"""The tab Views: every stage of K views of one photograph, and the folder that `onesdaug augment` would write."""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp

from PIL import Image

from onesdaug.augment.operator import Augmenter, Row, View
from onesdaug.errors import ImageError
from onesdaug.jobs.job import run_job
from onesdaug.jobs.plan import Item, Listing
from onesdaug.jobs.survey import JobSettings
from onesdaug.ui import html
from onesdaug.ui.networks import Networks
from onesdaug.ui.photos import check_views, opened_photo
from onesdaug.ui.recipe import Recipe
from onesdaug.ui.work import Work


@dataclass(frozen=True)
class DrawnViews:
    """What there is so far: the views with their stages, and at the end the archive."""

    original: Image.Image
    views: tuple[View, ...] = ()
    archive: Path | None = None


class _Showing(Augmenter):
    """Draws for a job, in turns with other visitors, and shows all stages of what it drew."""

    def __init__(self, networks: Networks, recipe: Recipe, work: Work[DrawnViews], shown: DrawnViews) -> None:
        whole = networks.augmenter(recipe.model)
        super().__init__(whole.generator, recipe.config, batch_size=whole.batch_size)
        self.networks, self.work, self.shown = networks, work, shown

    def run(self, rows: Sequence[Row], tweaked: bool = False, noised: bool = False) -> list[View]:
        with self.networks.turns.turn(self.work.waiting):
            views = super().run(rows, tweaked=True, noised=True)
        self.shown = DrawnViews(self.shown.original, (*self.shown.views, *views))
        self.work.show(self.shown)
        return views


def draw_views(
    networks: Networks, recipe: Recipe, photo: str | None, folder: Path, work: Work[DrawnViews]
) -> DrawnViews:
    """Run the job of `onesdaug augment` on one file; the archive lies in a new folder in `folder`."""
    check_views(recipe.k, networks.settings)
    original = opened_photo(photo, networks.settings)
    work.show(DrawnViews(original))
    file = Path(photo or "")
    work.tell(None, "Loading the networks")
    drawing = _Showing(networks, recipe, work, DrawnViews(original))
    with TemporaryDirectory(dir=folder) as out:
        listing = Listing([Item(file, file.name, file.stem)])
        report = run_job(drawing, listing, JobSettings(Path(out), recipe.k, recipe.seed))
        if report.failures:
            raise ImageError(report.failures[file.name])
        archive = Path(mkdtemp(dir=folder)) / f"{file.stem}-views.zip"
        _pack(Path(out), archive)
    return DrawnViews(original, drawing.shown.views, archive)


def _pack(folder: Path, archive: Path) -> None:
    with zipfile.ZipFile(archive, "w") as packed:  # PNGs are compressed already
        for file in sorted(folder.iterdir()):
            if not file.name.startswith("."):  # the job's lock
                packed.write(file, file.name)


def shown_views(found: DrawnViews, k: int) -> str:
    """A row for each view, with its stages; those to come have their places."""
    rows = []
    for number in range(k):
        view = found.views[number] if number < len(found.views) else None
        stages = [] if view is None else [view.tweaked, view.noised, view.image]
        told = "" if view is None else f"{view.seconds:.1f} s · {view.steps_run} steps"
        names = ["tweaked", "noised", f"view {number + 1}"]
        pictures = [html.figure(found.original, "original")]
        for place, name in enumerate(names):
            pictures.append(html.figure(stages[place] if stages else None, name, like=found.original))
        rows.append(
            f'<div class="view"><p><b>View {number + 1}</b> <span class="quiet">{told}</span></p>'
            f"{html.strip(pictures, 'stages')}</div>"
        )
    return f'<div class="views">{"".join(rows)}</div>'


def summary(found: DrawnViews) -> str:
    """What it took."""
    if not found.views:
        return ""
    each = sum(view.seconds for view in found.views) / len(found.views)
    count = f"{len(found.views)} view{'s' * (len(found.views) != 1)}"
    return f"{count} of {found.original.width} × {found.original.height} pixels, {each:.1f} s each."
