"""A contact sheet of the best and the worst views that were tried: numbers say which help, pictures say why."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image

from onesdaug.common.files import whole_file
from onesdaug.data.dataset import Dataset
from onesdaug.data.pixels import to_pil
from onesdaug.jobs.sheet import SheetRow, draw_sheet, fitted
from onesdaug.report.records import Sheet
from onesdaug.tune.search import Found, Trial

ROWS, VIEWS = 4, 3


def views_sheet(found: Found, data: Dataset, k: int, seed: int, file: Path) -> Sheet:
    """Draw it to `file`: images of a few classes with the very views that were judged."""
    chosen = found.finalists[found.choice.source]
    worst = min(found.trials, key=lambda trial: _gain(found, trial))
    shown = {"best": chosen} if worst is chosen else {"best": chosen, "worst": worst}
    ids = chosen.banks[0].info.ids  # an image of each class
    places = {name: row for row, name in enumerate(data.ids)}
    rows = [places[ids[i * len(ids) // min(ROWS, len(ids))]] for i in range(min(ROWS, len(ids)))]
    count = min(k, VIEWS)
    drawn = [_views(trial, data, rows, k, seed, count) for trial in shown.values()]
    lines = []
    for i, row in enumerate(rows):
        pictures = [Image.fromarray(np.asarray(data.images[row])), *(view for made in drawn for view in made[i])]
        lines.append(SheetRow(data.class_names[data.labels[row]], "", [fitted(picture) for picture in pictures]))
    columns = ["original", *(f"{name}, view {n}" for name in shown for n in range(1, count + 1))]
    title = " · ".join(f"{name}: {trial.candidate.label}" for name, trial in shown.items())
    with whole_file(file) as temporary:
        draw_sheet(lines, columns, title).save(temporary, "WEBP", quality=82)
    told = "; ".join(f"{name}: {trial.candidate.label} ({_told(found, trial)})" for name, trial in shown.items())
    return Sheet(title="The best and the worst views", caption=f"{told[0].upper()}{told[1:]}.", file=file.name)


def _views(trial: Trial, data: Dataset, rows: list[int], k: int, seed: int, count: int) -> list[list[Image.Image]]:
    """All k are asked for, as while tuning, and the first `count` of each shown."""
    made = trial.candidate.views.make(data.images[rows], [data.ids[row] for row in rows], k, seed)
    return [to_pil(views[:count]) for views in made]


def _gain(found: Found, trial: Trial) -> float:
    """The best that was seen of it, mean over the tasks: at the end, or when it was given up; unknown ones last."""
    if trial in found.finalists:
        place = found.finalists.index(trial)
        return float(np.mean([max(gain.difference for gain in task[place]) for task in found.by_use]))
    return trial.gains[-1] if trial.gains else np.inf


def _told(found: Found, trial: Trial) -> str:
    told = f"{100 * _gain(found, trial):+.1f} points at its best use"
    return told if trial in found.finalists else f"{told}, given up after {trial.per_class} images of each class"
