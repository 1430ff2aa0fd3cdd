"""Feature banks and scores: everything expensive is kept under a name that hashes what made it.

A rerun takes it up, another setting never does. From stored banks no image is decoded and no view made.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from onesdaug.common.files import whole_file
from onesdaug.common.own import calling, code_mark
from onesdaug.common.progress import log
from onesdaug.data.decode import sizes
from onesdaug.encoders.base import Encoder
from onesdaug.encoders.checkpoint import weights_fingerprint
from onesdaug.errors import DataError
from onesdaug.fewshot.bank import FeatureBank
from onesdaug.fewshot.embed import FRAME, embed_all
from onesdaug.fewshot.evaluate import Task, ViewUse, features_for, scored
from onesdaug.fewshot.heads.base import FunctionHead, Head
from onesdaug.studies.context import Missing, StudyContext
from onesdaug.studies.spec import (
    BY_GENERATOR,
    SAME_FOR_ALL_SEEDS,
    TUNED,
    VALIDATION,
    Classifier,
    FeatureStudy,
    ViewRow,
)

CHUNK = {"cpu": 64}  # images embedded at once; a GPU takes more
GPU_CHUNK = 1024


@dataclass(frozen=True)
class BankRequest:
    """The features of one classifier on one benchmark with one source of views."""

    data: str
    classifier: Classifier
    row: ViewRow
    generator: str = ""
    k: int = 0
    seed: int = 0  # of the views
    split: str = ""  # another than the run's


def requests(study: FeatureStudy, context: StudyContext) -> list[BankRequest]:
    """Every feature bank the study looks at."""
    first = context.settings.seed
    return [
        # tuned settings stand in the place of those the study has for a benchmark; a row's own have the last word
        BankRequest(
            data,
            classifier,
            row if context.tuned else study.row_on(row, data, generator),
            generator,
            k,
            first + number,
        )
        for data in study.data
        for classifier in study.classifiers
        if data in classifier.encoder
        for row in study.rows
        if row.views != TUNED
        for generator in (context.generators_of(study) if row.views in BY_GENERATOR else ("",))
        for k in [max(max(use) for use in row.uses or study.uses)]
        for number in range(1 if row.views in SAME_FOR_ALL_SEEDS else context.settings.seeds or study.seeds)
    ]


def check_classes(study: FeatureStudy, context: StudyContext) -> None:
    """Before a view is drawn: whether every class has the images that an episode needs."""
    shot, query = max(study.shots), Task().query
    for data in study.data:
        with suppress(Missing):
            if (fewest := context.fewest(data)) < shot + query:
                raise DataError(
                    f"{shot}-shot episodes with {query} queries need {shot + query} images of every class; of {data} "
                    f"there are {fewest} (--per-class says how many are taken)"
                )


def to_choose_from(study: FeatureStudy, context: StudyContext) -> list[BankRequest]:
    """The banks of validation classes that its tuned rows are chosen on; none where the run is on those itself."""
    names = {name for row in study.rows for name in row.among}
    if context.settings.split == VALIDATION:
        return []
    rows = study.model_copy(update={"rows": tuple(row for row in study.rows if row.id in names)})
    return [replace(one, split=VALIDATION) for one in requests(rows, context) if one.seed == context.settings.seed]


class FeatureBanks:
    """Banks in the work folder, and the scores of episodes on them."""

    def __init__(self, context: StudyContext) -> None:
        self.context, self.settings = context, context.settings
        self._banks: dict[Path, FeatureBank] = {}
        self._paths: dict[str, Path] = {}
        self._larger: dict[tuple[str, str], bool] = {}  # data whose files have more pixels than the working size

    def path(self, request: BankRequest) -> Path:
        """Where the bank lies; K is not part of the name, because a bank with more views holds those of fewer."""
        row, encoder = request.row, request.classifier.encoder[request.data]
        made_by = [row.views, request.generator, row.config, row.generator.options()]
        key = json.dumps([request.data, request.split, encoder, *made_by, request.seed])
        if key not in self._paths:
            self._paths[key] = self._path(request)
        return self._paths[key]

    def _path(self, request: BankRequest) -> Path:
        # first: without images, what else is missing does not matter
        data = self.context.data_mark(request.data, request.split)
        about = self._about(request)
        encoder, _ = self.context.classifier(request.classifier, request.data)
        views = self.context.views(request.row, request.generator)
        wide = encoder.short_side > FRAME or (not isinstance(views, str) and views.side > FRAME)
        identity = [data, encoder.fingerprint, about, request.seed, *(["whole images"] if wide else [])]
        digest = hashlib.blake2b(json.dumps(identity, sort_keys=True).encode(), digest_size=6).hexdigest()
        trained = request.classifier.encoder[request.data]
        name = f"{Path(request.data).name}-{trained}-{about['source']}-{digest}.safetensors"
        return self.settings.work / "banks" / name.replace("/", "_").replace(":", "_")

    def _about(self, request: BankRequest) -> dict[str, Any]:
        """What decides the views' pixels."""
        views = self.context.views(request.row, request.generator)
        return {"source": views} if isinstance(views, str) else views.describe()

    def make(self, requested: Sequence[BankRequest]) -> None:
        """Make every bank that can be made and is not there; an image's views are drawn once for all classifiers."""
        # by what makes a bank, not by row: two rows may come to the same settings
        lacking: dict[Path, BankRequest] = {}
        for request in requested:
            try:
                path = self.path(request)
            except Missing:
                continue
            stored = self._stored_k(path)
            if stored is None or stored < request.k:
                known = lacking.get(path, request)
                lacking[path] = replace(known, k=max(known.k, request.k))
        groups: dict[str, dict[Path, BankRequest]] = {}
        for path, request in lacking.items():
            about = [request.data, request.split, self._about(request), request.seed, self._wants_files(request)]
            key = json.dumps(about)
            groups.setdefault(key, {})[path] = request
        for number, group in enumerate(groups.values(), start=1):
            first, k = next(iter(group.values())), max(request.k for request in group.values())
            outputs = {
                path: self.context.classifier(request.classifier, request.data)[0] for path, request in group.items()
            }
            seen = {path: self._originals(encoder, first) for path, encoder in outputs.items()}
            data = self.context.dataset(first.data, first.split)
            source = first.generator or first.row.views
            log.info(
                f"bank {number} of {len(groups)}: {first.data}, {Path(source).name}, {first.row.label}, K = {k}, "
                f"seed {first.seed}, {len(data):,} images, {len(outputs)} classifiers"
            )
            with self.context.timed("views and features"):
                made = embed_all(
                    data,
                    outputs,
                    self.context.views(first.row, first.generator),
                    k,
                    seed=first.seed,
                    chunk=CHUNK.get(self.context.device.type, GPU_CHUNK),
                    commit=self.settings.commit,
                    known={path: plain for path, plain in seen.items() if plain is not None},
                )
            self._banks.update(made)

    def _wants_files(self, request: BankRequest) -> bool:
        """Whether the encoder looks at more than the working size: whole images come in smaller chunks, and a view's
        last digits depend on what is drawn beside it, so the others are not drawn with it."""
        encoder, _ = self.context.classifier(request.classifier, request.data)
        if encoder.short_side <= FRAME:
            return False
        place = request.data, request.split
        if place not in self._larger:
            data = self.context.dataset(*place)
            self._larger[place] = any(size != data.images.shape[1:3] for size in sizes(data))
        return self._larger[place]

    def _originals(self, encoder: Encoder, request: BankRequest) -> Tensor | None:
        """Features of the images themselves, where a bank of this encoder has been seen already."""
        mark = self.context.data_mark(request.data, request.split)
        for bank in self._banks.values():
            if (bank.info.data, bank.info.encoder) == (mark, encoder.fingerprint):
                return bank.features[:, 0]
        return None

    def _stored_k(self, path: Path) -> int | None:
        if not path.is_file():
            return None
        try:
            return self.at(path).k
        except DataError:
            return None  # a torn or foreign file is made again

    def at(self, path: Path) -> FeatureBank:
        if path not in self._banks:
            with self.context.timed("reading banks"):
                self._banks[path] = FeatureBank.load(path)
        return self._banks[path]

    def scores(self, request: BankRequest, task: Task, use: ViewUse) -> NDArray[np.float64]:
        """The accuracy of every episode."""
        return self.scored(request, task, use)[0]

    def scored(self, request: BankRequest, task: Task, use: ViewUse) -> tuple[NDArray[np.float64], float]:
        """The same and the number of views that a query takes on average, kept as a small file."""
        path = self.path(request)
        _, head = self.context.classifier(request.classifier, request.data)
        what = [path.name, _head_mark(head), vars(task), vars(use)]
        digest = hashlib.blake2b(json.dumps(what, sort_keys=True).encode(), digest_size=12).hexdigest()
        file = self.settings.work / "scores" / f"{digest}.npy"
        if file.is_file():
            try:
                stored: NDArray[np.float64] = np.load(file)
                return stored[:-1], float(stored[-1])
            except (ValueError, EOFError, OSError, IndexError):
                pass  # torn by a kill: made again
        with self.context.timed("episodes"):
            bank = self.at(path)
            episodes = task.sample(bank.labels)
            with calling(f"head {request.classifier.head}", head):
                accuracies, taken = scored(head, features_for(bank, episodes, use), episodes)
        with whole_file(file) as temporary, temporary.open("wb") as handle:
            np.save(handle, np.append(accuracies, taken))
        return accuracies, taken

    def missing(self, requested: Sequence[BankRequest]) -> tuple[str, ...]:
        """One line for everything these banks could not have, each once."""
        lines: dict[str, None] = {}
        for request in requested:
            try:
                self.path(request)
            except Missing as line:
                lines[str(line)] = None
        return tuple(lines)

    def is_there(self, request: BankRequest) -> bool:
        try:
            return self.path(request).is_file()
        except Missing:
            return False

    def close(self) -> None:
        self._banks.clear()


def _head_mark(head: Head) -> str:
    """A head's weights, settings and, of someone's own, code: they decide its answers."""
    plain = {k: v for k, v in vars(head).items() if isinstance(v, str | int | float | bool)}
    mark = code_mark(head.function if isinstance(head, FunctionHead) else head)
    known = f"{type(head).__name__} {json.dumps(plain, sort_keys=True)} {weights_fingerprint(head.state_dict())}"
    return f"{known} {mark}" if mark else known
