"""A few pictures of each kind, and a training of the generator of photographs on them that takes a second."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from onesdaug.data.dataset import Dataset
from onesdaug.generators.pocket.photo_table import PhotoTable, Source, fill
from onesdaug.generators.pocket.photo_training import PhotoTraining
from onesdaug.generators.pocket.recipe import PhotoRecipe
from onesdaug.generators.pocket.smoke import PHOTO_SMOKE
from tests.conftest import make_image

CPU = torch.device("cpu")


class Glance(nn.Module):
    """In the place of EfficientNet-Lite: mean colours of the whole and of 4×4 places, in features of its sizes."""

    def maps(self, x: Tensor) -> list[Tensor]:
        return [x]

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        places = nn.functional.adaptive_avg_pool2d(x, 4).flatten(2).transpose(1, 2)
        return x.mean((2, 3)).repeat(1, 427)[:, :1280], places.repeat(1, 1, 107)[..., :320]


def part(numbers: range, side: int, labels: list[str] | None = None, mark: str = "") -> Dataset:
    images = np.stack([np.asarray(make_image(i, (side, side))) for i in numbers])
    names = tuple(sorted(set(labels or [""])))
    rows = np.array([names.index(name) for name in labels or [""] * len(images)])
    ids = tuple(f"{names[row]}/{i}" for row, i in zip(rows, numbers, strict=True))
    return Dataset(images, rows, names, ids, mark or f"{side}")


def train(
    pictures: Source, out: Path, recipe: PhotoRecipe = PHOTO_SMOKE, until: str = "guidance", **more: float
) -> PhotoTraining:
    parts = [data for kind, data in pictures if kind == "photographs"]
    run = PhotoTraining(recipe, parts, out, pictures=lambda: iter(pictures), **more)  # type: ignore[arg-type]
    for name in run.until(until):
        run.one(name)
    return run


def table(pictures: Source, views: int = 2) -> PhotoTable:
    torch.manual_seed(0)
    run = PhotoTraining(PHOTO_SMOKE, [], Path("unused"))
    return fill(pictures, (run.autoencoder.eval(), Glance()), PhotoTable(64, views, CPU), chunk=3)
