"""Captions that are measured: do the views of a figure still lie nearest to their own class?

Asked of an encoder that is not the generator's condition encoder, on validation classes for every setting of the
figure, and for the photograph itself against the means of those classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from PIL import Image
from torch import Tensor
from torch.nn.functional import normalize

from onesdaug.analysis.faithfulness import agreements
from onesdaug.augment.operator import Augmenter
from onesdaug.data.dataset import Dataset
from onesdaug.data.pixels import to_tensor
from onesdaug.data.registry import load_split
from onesdaug.encoders.base import Encoder
from onesdaug.errors import DataError
from onesdaug.fewshot.views import as_batch
from onesdaug.studies.spec import Study
from onesdaug.studies.workshop import Missing, Workshop

SPLIT = "val"  # captions are looked at while settings are chosen: never the test classes
PER_CLASS = 4


@dataclass
class Judge:
    """Class means of a few validation images, and what was measured with them already."""

    name: str
    encoder: Encoder
    data: Dataset
    originals: Tensor  # (N, d)
    measured: dict[str, float] = field(default_factory=dict)

    @classmethod
    def of(cls, study: Study, shop: Workshop) -> Judge:
        """Missing where the benchmark's validation split or the checkpoint is not there."""
        classifier, name = study.classifiers[0], study.data[0]
        encoder, _ = shop.classifier(classifier, name)
        try:
            whole = load_split(name, SPLIT, shop.root, cache=shop.settings.work / "cache")
        except DataError as error:
            raise Missing(" ".join(str(error).split())) from error
        data = whole.sample(min(shop.settings.per_class or PER_CLASS, int(whole.counts().min())))
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
