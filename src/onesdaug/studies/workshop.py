"""Where studies get what they need: data, frozen classifiers, generators, feature banks, scores.

Everything expensive is kept in the work folder under a name that hashes what made it: a rerun takes it up, another
setting never does. Nothing is loaded before it is needed: from stored banks no image is decoded and no view made.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from onesdaug.augment.config import AugmentConfig, preset
from onesdaug.augment.operator import Augmenter, default_preset
from onesdaug.common.devices import pick_device
from onesdaug.common.files import whole_file
from onesdaug.common.progress import log
from onesdaug.data.dataset import Dataset
from onesdaug.data.registry import BENCHMARKS, ENVIRONMENT, Found, check, data_root, load_split, split_members
from onesdaug.data.sources import fingerprint
from onesdaug.encoders.base import Encoder
from onesdaug.encoders.checkpoint import load_checkpoint
from onesdaug.encoders.load import load_encoder
from onesdaug.errors import ConfigError, DataError, OnesdaugError
from onesdaug.fewshot.bank import ORACLE, FeatureBank
from onesdaug.fewshot.checkpoint import load_head
from onesdaug.fewshot.embed import FRAME, embed_all
from onesdaug.fewshot.evaluate import Task, ViewUse, accuracies, features_for
from onesdaug.fewshot.heads import Head, build_head
from onesdaug.fewshot.views import Views, augmenter_views, resolve_views, round_trip_views
from onesdaug.studies.settings import Settings
from onesdaug.studies.spec import BY_GENERATOR, Classifier, Loading, Row

CHUNK = {"cpu": 64}  # images embedded at once; a GPU takes more
GPU_CHUNK = 1024
RELEASED = Loading()


class Missing(OnesdaugError):
    """Something a study needs is not on this machine; the text is the one line that says how to get it."""


@dataclass(frozen=True)
class Want:
    """The features of one classifier on one benchmark with one source of views."""

    data: str
    classifier: Classifier
    row: Row
    generator: str = ""
    k: int = 0
    seed: int = 0  # of the views


@dataclass
class Workshop:
    settings: Settings
    seconds: dict[str, float] = field(default_factory=dict)
    _data: dict[str, Dataset] = field(default_factory=dict)
    _marks: dict[tuple[str, str], tuple[str, str]] = field(default_factory=dict)  # of a data set's split
    _classifiers: dict[tuple[str, str], tuple[Encoder, Head]] = field(default_factory=dict)
    _generators: dict[tuple[str, Loading], Augmenter] = field(default_factory=dict)
    _missing: dict[str, str] = field(default_factory=dict)  # what was looked for once is not looked for again
    _banks: dict[Path, FeatureBank] = field(default_factory=dict)
    _paths: dict[str, Path] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.device = pick_device(self.settings.device)
        self.root = data_root(self.settings.root)

    @contextmanager
    def timed(self, stage: str) -> Iterator[None]:
        began = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[stage] = self.seconds.get(stage, 0.0) + time.perf_counter() - began

    # ---- what there is ----------------------------------------------------------------------------------------

    def data_mark(self, name: str) -> str:
        """The fingerprint of the images a study would use, without decoding one."""
        return self._mark(name)[0]

    def data_fact(self, name: str, split: str = "") -> str:
        """The same for people: fingerprint, size, and whether this is a copy that is known to be right."""
        return self._mark(name, split)[1]

    def _mark(self, name: str, split: str = "") -> tuple[str, str]:
        split = split or self.settings.split
        if (name, split) not in self._marks:
            s = self.settings
            found: Found = self._once(f"data {name} {split}", lambda: self._look(name, split))
            part = "" if s.per_class is None else f"[{s.per_class} of each, seed 0]"
            copy = "" if name not in BENCHMARKS else " (the known copy)" if found.known else " (not a copy known here)"
            fact = f"{split}, {found.classes} classes, {found.images:,} images, {found.fingerprint}{copy}"
            self._marks[name, split] = found.fingerprint + part, fact + (f", {part[1:-1]}" if part else "")
        return self._marks[name, split]

    def _look(self, name: str, split: str) -> Found:
        if name not in BENCHMARKS:  # a folder of the user's own with train/, val/ and test/ in it
            members = split_members(Path(name).name, split, self._home(name).parent)
            return Found(split, len({m.label for m in members}), len(members), fingerprint(members))
        benchmark = BENCHMARKS[name]
        where = f"not under {ENVIRONMENT}" if self.root else f"{ENVIRONMENT} is not set"
        found = Found(split) if self.root is None else check(name, split, self.root)
        if not found.images:
            raise Missing(f"{benchmark.title}: {where}; to get it: {benchmark.how}")
        return found

    def _home(self, name: str) -> Path:
        """A data set that is no benchmark: a folder, or one of that name under the data root."""
        for home in (Path(name).expanduser(), *([self.root / name] if self.root else [])):
            if home.is_dir():
                return home
        raise Missing(f"{name}: neither a known benchmark ({', '.join(BENCHMARKS)}) nor a folder")

    def dataset(self, name: str) -> Dataset:
        if name not in self._data:
            self.data_mark(name)
            with self.timed("decoding images"):
                log.info(f"{name}: decoding")
                known = name if name in BENCHMARKS else str(self._home(name))
                data = load_split(known, self.settings.split, self.root, cache=self.settings.work / "cache")
                part = self.settings.per_class
                self._data[name] = data if part is None else data.sample(part)
        return self._data[name]

    def classifier(self, classifier: Classifier, data: str) -> tuple[Encoder, Head]:
        """The frozen encoder with its head."""
        key = (classifier.name, data)
        if key not in self._classifiers:
            with self.timed("loading networks"):
                self._classifiers[key] = self._once(
                    f"classifier {key}", lambda: self._load_classifier(classifier, data)
                )
        return self._classifiers[key]

    def card(self, classifier: Classifier, data: str) -> dict[str, Any] | None:
        """Of the checkpoint behind a classifier; None where the encoder is someone else's."""
        if classifier.head is not None:
            return None
        return load_checkpoint(self.settings.checkpoints / classifier.encoder[data])[1]

    def _load_classifier(self, classifier: Classifier, data: str) -> tuple[Encoder, Head]:
        spec = classifier.encoder[data]
        settings = {"metric": classifier.metric[data]} if data in classifier.metric else {}
        if classifier.head is not None:  # an encoder of someone else's
            encoder = load_encoder(spec, self.device)
            return encoder, build_head(classifier.head, encoder.dim, **settings)
        folder = self.settings.checkpoints / spec
        if not folder.is_dir():
            how = f"; to train it: {classifier.needs} --data {data} -o {spec}" if classifier.needs else ""
            raise Missing(f"{classifier.name} on {data}: no checkpoint {spec} in the folder of checkpoints{how}")
        head = load_head(folder, **settings)
        if head is None:
            raise ConfigError(f"{spec} is a pretrained backbone without a head")
        return load_encoder(folder, self.device), head

    def augmenter(self, generator: str, config: AugmentConfig | None = None, loading: Loading = RELEASED) -> Augmenter:
        """The operator with this generator; networks are loaded once and shared by all settings."""
        key = (generator, loading)
        if key not in self._generators:
            options = loading.options()
            name = " ".join([generator, *(f"{option}={value}" for option, value in options.items())])
            with self.timed("loading networks"):
                self._generators[key] = self._once(
                    f"generator {name}",
                    lambda: Augmenter.from_pretrained(
                        generator, device=self.settings.device, compile=self.settings.compile, **options
                    ),
                )
        loaded = self._generators[key]
        return loaded if config is None else Augmenter(loaded.generator, config, batch_size=loaded.batch_size)

    def _once(self, what: str, get: Callable[[], Any]) -> Any:
        """`get()`, its failure remembered and said in one line."""
        if what in self._missing:
            raise Missing(self._missing[what])
        try:
            return get()
        except OnesdaugError as error:
            self._missing[what] = " ".join(str(error).split())
            if what.startswith("generator "):
                self._missing[what] = f"{what.removeprefix('generator ')}: {self._missing[what]}"
            raise Missing(self._missing[what]) from error

    # ---- views and features -----------------------------------------------------------------------------------

    def config(self, row: Row, generator: str) -> AugmentConfig:
        """A row's settings: the generator's preset and what the row changes of it (`shape = false`: no tweak)."""
        changes = {name: None if value is False and name == "shape" else value for name, value in row.config.items()}
        return preset(default_preset(generator), **changes)

    def views(self, row: Row, generator: str = "") -> Views | str:
        if row.views == "oracle":
            return ORACLE
        if row.views not in BY_GENERATOR:
            return resolve_views(row.views, device=self.settings.device)
        made = self.augmenter(generator, self.config(row, generator), row.generator)
        return (augmenter_views if row.views == "generated" else round_trip_views)(made, Path(generator).name)

    def path(self, want: Want) -> Path:
        """Where the bank lies; K is not part of the name, because a bank with more views holds those of fewer."""
        row = want.row
        loading = row.generator.options()
        what = [want.data, want.classifier.encoder[want.data], row.views, want.generator, row.config, loading]
        key = json.dumps([*what, want.seed])
        if key not in self._paths:
            self._paths[key] = self._path(want)
        return self._paths[key]

    def _path(self, want: Want) -> Path:
        data = self.data_mark(want.data)  # first: without images, what else is missing does not matter
        about = self._about(want)
        encoder, _ = self.classifier(want.classifier, want.data)
        views = self.views(want.row, want.generator)
        wide = encoder.short_side > FRAME or (not isinstance(views, str) and views.side > FRAME)
        identity = [data, encoder.fingerprint, about, want.seed, *(["whole images"] if wide else [])]
        digest = hashlib.blake2b(json.dumps(identity, sort_keys=True).encode(), digest_size=6).hexdigest()
        name = f"{Path(want.data).name}-{want.classifier.encoder[want.data]}-{about['source']}-{digest}.safetensors"
        return self.settings.work / "banks" / name.replace("/", "_").replace(":", "_")

    def _about(self, want: Want) -> dict[str, Any]:
        """What decides the views' pixels."""
        views = self.views(want.row, want.generator)
        return {"source": views} if isinstance(views, str) else views.describe()

    def make_banks(self, wants: Sequence[Want]) -> None:
        """Make every bank that can be made and is not there; an image's views are drawn once for all classifiers."""
        lacking: dict[Path, Want] = {}  # by what makes a bank, not by row: two rows may come to the same settings
        for want in wants:
            try:
                path = self.path(want)
            except Missing:
                continue
            stored = self._stored_k(path)
            if stored is None or stored < want.k:
                known = lacking.get(path, want)
                lacking[path] = replace(known, k=max(known.k, want.k))
        groups: dict[str, dict[Path, Want]] = {}
        for path, want in lacking.items():
            groups.setdefault(json.dumps([want.data, self._about(want), want.seed]), {})[path] = want
        for number, group in enumerate(groups.values(), start=1):
            first, k = next(iter(group.values())), max(want.k for want in group.values())
            outputs = {path: self.classifier(want.classifier, want.data)[0] for path, want in group.items()}
            seen = {path: self._originals(encoder, first.data) for path, encoder in outputs.items()}
            data = self.dataset(first.data)
            source = first.generator or first.row.views
            log.info(
                f"bank {number} of {len(groups)}: {first.data}, {Path(source).name}, {first.row.label}, K = {k}, "
                f"seed {first.seed}, {len(data):,} images, {len(outputs)} classifiers"
            )
            with self.timed("views and features"):
                made = embed_all(
                    data,
                    outputs,
                    self.views(first.row, first.generator),
                    k,
                    seed=first.seed,
                    chunk=CHUNK.get(self.device.type, GPU_CHUNK),
                    commit=self.settings.commit,
                    known={path: plain for path, plain in seen.items() if plain is not None},
                )
            self._banks.update(made)

    def _originals(self, encoder: Encoder, data: str) -> Tensor | None:
        """Features of the images themselves, where a bank of this encoder has been seen already."""
        mark = self.data_mark(data)
        for bank in self._banks.values():
            if (bank.info.data, bank.info.encoder) == (mark, encoder.fingerprint):
                return bank.features[:, 0]
        return None

    def _stored_k(self, path: Path) -> int | None:
        if not path.is_file():
            return None
        try:
            return self.bank_at(path).k
        except DataError:
            return None  # a torn or foreign file is made again

    def bank_at(self, path: Path) -> FeatureBank:
        if path not in self._banks:
            with self.timed("reading banks"):
                self._banks[path] = FeatureBank.load(path)
        return self._banks[path]

    def scores(self, want: Want, task: Task, use: ViewUse) -> NDArray[np.float64]:
        """The accuracy of every episode, kept as a small file."""
        path = self.path(want)
        _, head = self.classifier(want.classifier, want.data)
        what = [path.name, _head_mark(head), vars(task), vars(use)]
        digest = hashlib.blake2b(json.dumps(what, sort_keys=True).encode(), digest_size=12).hexdigest()
        file = self.settings.work / "scores" / f"{digest}.npy"
        if file.is_file():
            try:
                stored: NDArray[np.float64] = np.load(file)
                return stored
            except (ValueError, EOFError, OSError):
                pass  # torn by a kill: made again
        with self.timed("episodes"):
            bank = self.bank_at(path)
            episodes = task.sample(bank.labels)
            values = accuracies(head, features_for(bank, episodes, use), episodes)
        with whole_file(file) as temporary, temporary.open("wb") as handle:
            np.save(handle, values)
        return values

    def close(self) -> None:
        """Let go of what is large."""
        self._banks.clear()
        self._data.clear()
        if self.device.type == "cuda":
            torch.cuda.empty_cache()


def _head_mark(head: Head) -> str:
    """A head's weights and settings: they decide its answers."""
    from onesdaug.encoders.checkpoint import weights_fingerprint

    plain = {k: v for k, v in vars(head).items() if isinstance(v, str | int | float | bool)}
    return f"{type(head).__name__} {json.dumps(plain, sort_keys=True)} {weights_fingerprint(head.state_dict())}"
