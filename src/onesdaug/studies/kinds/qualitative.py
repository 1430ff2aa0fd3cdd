"""Contact sheets over noise × condition and noise × tweak, of photographs that may be shown to anyone.

Captions are measured: do the views of a figure still lie nearest to their own class? Asked of an encoder that is not
the generator's condition encoder, on validation classes for every setting of the figure, and for the photograph
itself against the means of those classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch import Tensor
from torch.nn.functional import normalize

from onesdaug.analysis.faithfulness import agreements
from onesdaug.augment.config import AugmentConfig, preset
from onesdaug.augment.operator import Augmenter, faithful_preset
from onesdaug.common.files import whole_file
from onesdaug.common.progress import Progress, log, progress
from onesdaug.data.dataset import Dataset
from onesdaug.data.images import load_image
from onesdaug.data.pixels import to_tensor
from onesdaug.data.registry import load_split
from onesdaug.data.samples import CREDITS, sample_photographs
from onesdaug.encoders.base import Encoder
from onesdaug.errors import DataError
from onesdaug.fewshot.views import as_batch
from onesdaug.jobs.sheet import SheetRow, draw_sheet, fitted
from onesdaug.report.records import Sheet
from onesdaug.studies.context import Missing, StudyContext
from onesdaug.studies.kind import Findings, StudyKind
from onesdaug.studies.provenance import Facts, facts_of
from onesdaug.studies.spec import SpecModel, Study

PHOTOGRAPHS = ("chelsea", "coffee")
SPLIT = "val"  # captions are looked at while settings are chosen: never the test classes
PER_CLASS = 4


class Figure(SpecModel):
    """A contact sheet: one line of settings per row, one noise level per column."""

    title: str
    shows: str  # what is across and down; what came of it is measured, never written here
    rows: tuple[tuple[str, dict[str, Any]], ...]  # label, settings
    noise_levels: tuple[float, ...]


class QualitativeStudy(Study):
    figures: tuple[Figure, ...] = ()


class Kind(StudyKind[QualitativeStudy]):
    spec = QualitativeStudy

    def facts(self, study: QualitativeStudy, context: StudyContext) -> Facts:
        return facts_of(study, context, SPLIT, faithful_preset)

    def run(self, study: QualitativeStudy, context: StudyContext, output: Path) -> Findings:
        """One file for each photograph, figure and generator, beside the results."""
        try:
            photographs = _photographs(context)
        except Missing as missing:
            return {"missing": (str(missing),)}
        found: list[Sheet] = []
        generators, problems = context.generators_here(study)
        try:
            judge = Judge.of(study, context) if generators else None
        except Missing as missing:
            judge = None
            problems.append(f"captions are not measured: {missing}")
        cells = sum(len(figure.rows) * len(figure.noise_levels) for figure in study.figures)
        with progress(len(generators) * len(photographs) * cells, "cells", study.name) as bar:
            for generator in generators:
                shown, base = Path(generator).name, faithful_preset(generator)
                for name, (image, credit) in photographs.items():
                    for number, figure in enumerate(study.figures, start=1):
                        with context.timed("views"):
                            sheet, measured = _draw(figure, context, generator, image, judge, bar)
                        file = f"{study.name}-{shown}-{name}-{number}.webp"
                        with whole_file(output / file) as temporary:
                            sheet.save(temporary, "WEBP", quality=82)
                        title = f"{figure.title} · {shown} · {name}"
                        told = f"{figure.shows} Preset {base}. {measured} Photograph: {credit}."
                        found.append(Sheet(title=title, caption=" ".join(told.split()), file=file, generator=shown))
                        log.info(title)
        return {"sheets": tuple(found), "missing": tuple(problems)}


def _photographs(context: StudyContext) -> dict[str, tuple[Image.Image, str]]:
    if context.settings.images:
        return {Path(path).stem: (load_image(path), Path(path).name) for path in context.settings.images}
    try:
        samples = sample_photographs(PHOTOGRAPHS)
    except DataError as error:
        raise Missing(f"{error} (--images)") from error
    return {name: (image, CREDITS[name]) for name, image in samples.items()}


def settings_of(figure: Figure, base: str) -> list[tuple[str, list[AugmentConfig]]]:
    """Each row's label, and the settings of its cells: the preset `base` at every noise level, changed as it says."""
    rows = []
    for label, changes in figure.rows:
        given = {name: None if value is False and name == "shape" else value for name, value in changes.items()}
        rows.append((label, [preset(base, noise_level=level, **given) for level in figure.noise_levels]))
    return rows


def _draw(
    figure: Figure, context: StudyContext, generator: str, image: Image.Image, judge: Judge | None, bar: Progress
) -> tuple[Image.Image, str]:
    """The sheet, and what was measured of it."""
    rows, measured, base = [], [], faithful_preset(generator)
    small = fitted(image)
    for label, cells in settings_of(figure, base):
        views: list[Image.Image] = []
        shares = []
        for config in cells:
            augmenter = context.augmenter(generator, config)
            views += augmenter(image, k=1, seed=context.settings.seed)  # type: ignore[arg-type]
            shares.append(0.0 if judge is None else judge.of_views(augmenter))
            bar.advance()
        if judge is not None:
            own, *classes = judge.nearest([image, *views])
            measured.append((label, shares, classes.count(own)))
        rows.append(SheetRow(label, f"preset {base}", [small, *(fitted(view) for view in views)]))
    columns = ["original", *(f"noise {level:g}" for level in figure.noise_levels)]
    sheet = draw_sheet(rows, columns, f"{figure.title} · {Path(generator).name}")
    return sheet, caption(judge, figure.noise_levels, measured) if judge is not None else ""


@dataclass
class Judge:
    """Class means of a few validation images, and what was measured with them already."""

    name: str
    encoder: Encoder
    data: Dataset
    originals: Tensor  # (N, d)
    measured: dict[str, float] = field(default_factory=dict)

    @classmethod
    def of(cls, study: QualitativeStudy, context: StudyContext) -> Judge:
        """Missing where the benchmark's validation split or the checkpoint is not there."""
        classifier, name = study.classifiers[0], study.data[0]
        encoder, _ = context.classifier(classifier, name)
        try:
            whole = load_split(name, SPLIT, context.root, cache=context.settings.work / "cache")
        except DataError as error:
            raise Missing(" ".join(str(error).split())) from error
        data = whole.sample(min(context.settings.per_class or PER_CLASS, int(whole.counts().min())))
        return cls(classifier.name, encoder, data, encoder.embed(as_batch(data.images)).cpu())

    @property
    def of_originals(self) -> float:
        """Share of the images themselves that lie nearest to their own class, each left out of its class mean."""
        return self._share(self.originals.unsqueeze(1))

    def of_views(self, augmenter: Augmenter) -> float:
        """The same of one view of each image."""
        key = f"{augmenter.fingerprint} {augmenter.config.digest()}"
        if key not in self.measured:
            views = augmenter.tensors(as_batch(self.data.images), 1)
            self.measured[key] = self._share(self.encoder.embed(views[:, 0]).cpu().unsqueeze(1))
        return self.measured[key]

    def nearest(self, pictures: Sequence[Image.Image]) -> list[int]:
        """The validation class whose mean each picture lies nearest to."""
        labels = torch.as_tensor(self.data.labels)
        unit = normalize(self.originals.double(), dim=1)
        means = torch.stack([unit[labels == label].mean(0) for label in range(self.data.n_classes)])
        seen = torch.cat([self.encoder.embed(to_tensor(picture)[None]).cpu() for picture in pictures])
        found: list[int] = (normalize(seen.double(), dim=1) @ normalize(means, dim=1).T).argmax(1).tolist()
        return found

    def _share(self, rows: Tensor) -> float:
        return float(agreements(self.originals, rows, torch.as_tensor(self.data.labels)).mean())


def caption(judge: Judge, levels: Sequence[float], rows: Sequence[tuple[str, Sequence[float], int]]) -> str:
    """From shares over the levels and the number of this photograph's views in its own class, row by row."""
    shares = "; ".join(f"{label} {', '.join(f'{100 * share:.0f}' for share in found)} %" for label, found, _ in rows)
    stays = ", ".join(f"{count} of {len(levels)} {label}" for label, _, count in rows)
    listed = ", ".join(f"{level:g}" for level in levels)
    return (
        f"Measured by {judge.name} on {len(judge.data)} images of {judge.data.n_classes} validation classes, noise "
        f"{listed}: nearest to their own class are {shares}; of the originals {100 * judge.of_originals:.0f} %. Of "
        f"this photograph's views lie nearest to the class that the photograph itself lies nearest to: {stays}."
    )
