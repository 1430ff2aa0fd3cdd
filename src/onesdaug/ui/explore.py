"""The tab Explore: one photograph over noise levels, as the paper's Figures 2 and 3; what views keep and vary."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from PIL import Image

from onesdaug.analysis.faithfulness import cosines, view_diversities
from onesdaug.augment.operator import Row, faithful_preset
from onesdaug.common.progress import progress
from onesdaug.report.figures import Chart, drawn, look
from onesdaug.studies.kinds.qualitative import Figure, settings_of
from onesdaug.studies.spec import load_study
from onesdaug.ui import html
from onesdaug.ui.networks import Networks
from onesdaug.ui.photos import check_views, opened_photo
from onesdaug.ui.work import Work

_MARKS = ("g0", "g1", "g2", "g3", "g4", "g5")


class Spot(NamedTuple):
    """A view: how near to its original, how far from the other views of the same noise level."""

    level: float
    number: int
    faithfulness: float
    diversity: float


@dataclass(frozen=True)
class Explored:
    """The figure's rows so far, one view per cell, and the views of the last row as spots."""

    original: Image.Image
    figure: Figure
    rows: tuple[tuple[str, tuple[Image.Image, ...]], ...] = ()
    spots: tuple[Spot, ...] = ()


def figures() -> list[Figure]:
    """Those of the study `qualitative`."""
    return list(load_study("qualitative").figures)


def explore(
    networks: Networks, model: str, photo: str | None, number: int, k: int, seed: int, work: Work[Explored]
) -> Explored:
    """Draw figure `number`: one view in a cell, K in those of the last row, which is the operator as it is."""
    check_views(k, networks.settings)
    image = opened_photo(photo, networks.settings)
    figure = figures()[number]
    rows = settings_of(figure, faithful_preset(model))
    found = Explored(image, figure)
    work.show(found)
    work.tell(None, "Loading the networks")
    networks.augmenter(model)
    spread: list[list[Image.Image]] = []
    with progress(len(rows) * len(figure.noise_levels) + (k - 1) * len(figure.noise_levels), "views", parts=1) as bar:
        for label, cells in rows:
            count = k if label == rows[-1][0] else 1
            pictures: tuple[Image.Image, ...] = ()
            for config in cells:
                todo = [Row(image, one, seed) for one in range(1, count + 1)]
                views = [view.image for view in networks.draw(model, config, todo, work.waiting)]
                pictures = (*pictures, views[0])
                spread += [views] if label == rows[-1][0] else []
                bar.advance(count)
                work.show(replace(found, rows=(*found.rows, (label, pictures))))
            found = replace(found, rows=(*found.rows, (label, pictures)))
    return found if k < 2 else replace(found, spots=_spots(networks, image, figure.noise_levels, spread, work))


def _spots(
    networks: Networks, image: Image.Image, levels: Sequence[float], spread: Sequence[Sequence[Image.Image]],
    work: Work[Explored],
) -> tuple[Spot, ...]:  # fmt: skip
    work.tell(None, "Measuring")
    features = networks.look([image, *(view for views in spread for view in views)], work.waiting)
    views = features[1:].reshape(len(levels), -1, features.shape[1])
    near, apart = cosines(features[:1].expand(len(levels), -1), views), view_diversities(views)
    return tuple(
        Spot(level, number + 1, float(near[place, number]), float(apart[place, number]))
        for place, level in enumerate(levels)
        for number in range(views.shape[1])
    )


@drawn
def spots_plot(spots: Sequence[Spot]) -> Chart | None:
    """A dot for each view, a colour for each noise level."""
    if not spots:
        return None
    chart = Chart(
        "Faithfulness against diversity", 230, "diversity: 1 − cosine to the other views",
        "faithfulness: cosine to the original",
    )  # fmt: skip
    for place, level in enumerate(dict.fromkeys(spot.level for spot in spots)):
        mine = [spot for spot in spots if spot.level == level]
        style = look(_MARKS[place % len(_MARKS)], line=False)
        chart.keys[f"noise {level:g}"] = style
        told = [
            f"noise {level:g}, view {spot.number}: cosine {spot.faithfulness:.2f}, diversity {spot.diversity:.2f}"
            for spot in mine
        ]
        chart.dots(style, [spot.diversity for spot in mine], [spot.faithfulness for spot in mine], told)
    return chart


def shown_figure(found: Explored) -> str:
    """The figure as rows of pictures; cells to come have their places."""
    rows = []
    drawn_rows = dict(found.rows)
    for label, _ in found.figure.rows:
        views = drawn_rows.get(label, ())
        pictures = [html.figure(found.original, "original")]
        for place, level in enumerate(found.figure.noise_levels):
            view = views[place] if place < len(views) else None
            pictures.append(html.figure(view, f"noise {level:g}", like=found.original))
        rows.append(f"<h4>{label[:1].upper()}{label[1:]}</h4>{html.strip(pictures, 'levels')}")
    return html.card(found.figure.title, "".join(rows), " ".join(found.figure.shows.split()))


def shown_spots(found: Explored, encoder: str) -> str:
    note = f"Each dot is a view of the last row, as {encoder} sees it, which is not the generator's own encoder."
    return html.plot("What views keep, and how they differ", spots_plot(found.spots), note) if found.spots else ""
