"""Where studies get what they need: data, frozen classifiers and generators, each loaded when first asked for."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from onesdaug.augment.config import AugmentConfig, preset
from onesdaug.augment.operator import Augmenter, default_preset
from onesdaug.augment.tuned import Tuned
from onesdaug.common.devices import pick_device
from onesdaug.common.progress import log
from onesdaug.data.dataset import Dataset
from onesdaug.data.registry import BENCHMARKS, ENVIRONMENT, Found, check, data_root, load_split, split_members
from onesdaug.data.sources import fingerprint
from onesdaug.encoders.base import Encoder
from onesdaug.encoders.checkpoint import EncoderCard, load_checkpoint
from onesdaug.encoders.load import load_encoder
from onesdaug.errors import ConfigError, OnesdaugError
from onesdaug.fewshot.bank import ORACLE
from onesdaug.fewshot.heads import Head, build_head, load_head
from onesdaug.fewshot.views import RoundTrip, Views, resolve_views
from onesdaug.studies.settings import Settings
from onesdaug.studies.spec import BY_GENERATOR, Classifier, Loading, Study, ViewRow

if TYPE_CHECKING:
    from onesdaug.studies.banks import FeatureBanks

RELEASED = Loading()
TUNED_ON = 120  # images of each validation class, at most, that rows are tuned on


class Missing(OnesdaugError):
    """Something a study needs is not on this machine; the text is the one line that says how to get it."""


@dataclass
class StudyContext:
    """Everything a run shares between its studies."""

    settings: Settings
    seconds: dict[str, float] = field(default_factory=dict)
    _data: dict[tuple[str, str], Dataset] = field(default_factory=dict)  # of a split
    _marks: dict[tuple[str, str], tuple[str, str]] = field(default_factory=dict)  # of a data set's split
    _classifiers: dict[tuple[str, str], tuple[Encoder, Head]] = field(default_factory=dict)
    _generators: dict[tuple[str, Loading], Augmenter] = field(default_factory=dict)
    _missing: dict[str, str] = field(default_factory=dict)  # what was looked for once is not looked for again

    def __post_init__(self) -> None:
        self.device = pick_device(self.settings.device)
        self.root = data_root(self.settings.root)
        self.tuned = None if self.settings.preset is None else Tuned.read(self.settings.preset)

    @cached_property
    def banks(self) -> FeatureBanks:
        from onesdaug.studies.banks import FeatureBanks

        return FeatureBanks(self)

    @contextmanager
    def timed(self, stage: str) -> Iterator[None]:
        began = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[stage] = self.seconds.get(stage, 0.0) + time.perf_counter() - began

    def data_mark(self, name: str, split: str = "") -> str:
        """The fingerprint of the images a study would use, without decoding one."""
        return self._mark(name, split)[0]

    def data_fact(self, name: str, split: str = "") -> str:
        """The same for people: fingerprint, size, and whether this is a copy that is known to be right."""
        return self._mark(name, split)[1]

    def _mark(self, name: str, split: str = "") -> tuple[str, str]:
        split = split or self.settings.split
        if (name, split) not in self._marks:
            found: Found = self._once(f"data {name} {split}", lambda: self._look(name, split))
            most, at = self._per_class(split), "" if split == self.settings.split else "at most "
            part = "" if most is None else f"[{at}{most} of each, seed 0]"
            copy = "" if name not in BENCHMARKS else " (the known copy)" if found.known else " (not a copy known here)"
            fact = f"{split}, {found.classes} classes, {found.images:,} images, {found.fingerprint}{copy}"
            self._marks[name, split] = found.fingerprint + part, fact + (f", {part[1:-1]}" if part else "")
        return self._marks[name, split]

    def fewest(self, name: str) -> int:
        """Images of the smallest class that a study would use, without decoding one."""
        self.data_mark(name)  # says what is missing
        home = self.root if name in BENCHMARKS else self._home(name).parent
        assert home is not None
        counts = Counter(member.label for member in split_members(Path(name).name, self.settings.split, home))
        return min(*counts.values(), self._per_class(self.settings.split) or sys.maxsize)

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

    def _per_class(self, split: str) -> int | None:
        """Images of each class; of validation classes beside another split, no more than a choice needs."""
        asked = self.settings.per_class
        return asked if split == self.settings.split else min(TUNED_ON, asked or TUNED_ON)

    def dataset(self, name: str, split: str = "") -> Dataset:
        split = split or self.settings.split
        if (name, split) not in self._data:
            self.data_mark(name, split)
            with self.timed("decoding images"):
                log.info(f"{name}: decoding the {split} split")
                known = name if name in BENCHMARKS else str(self._home(name))
                data = load_split(known, split, self.root, cache=self.settings.work / "cache")
                most = self._per_class(split)
                if split != self.settings.split and most is not None:
                    most = min(most, int(data.counts().min()))
                self._data[name, split] = data.sample(most)
        return self._data[name, split]

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
        if not classifier.trained_here:
            return None
        return load_checkpoint(self.settings.checkpoints / classifier.encoder[data], EncoderCard)[1]

    def _load_classifier(self, classifier: Classifier, data: str) -> tuple[Encoder, Head]:
        spec = classifier.encoder[data]
        settings = {"metric": classifier.metric[data]} if data in classifier.metric else {}
        if classifier.head is not None and not classifier.trained_here:  # an encoder of someone else's
            encoder = load_encoder(spec, self.device)
            return encoder, build_head(classifier.head, encoder.dim, **settings)
        folder = self.settings.checkpoints / spec
        if not folder.is_dir():
            on = "" if "--data" in classifier.needs else f" --data {data}"
            how = f"; to train it: {classifier.needs}{on} -o {spec}" if classifier.needs else ""
            raise Missing(f"{classifier.name} on {data}: no checkpoint {spec} in the folder of checkpoints{how}")
        encoder = load_encoder(folder, self.device)
        if classifier.head is not None:
            return encoder, build_head(classifier.head, encoder.dim, **settings)
        head = load_head(folder, **settings)
        if head is None:
            raise ConfigError(f"{spec} is a pretrained backbone without a head")
        return encoder, head

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
                        generator,
                        preset=default_preset(generator),
                        device=self.settings.device,
                        compile=self.settings.compile,
                        **options,
                    ),
                )
        loaded = self._generators[key]
        if config is None and self.tuned is not None:
            config = self.tuned.settings()
        return loaded if config is None else loaded.with_config(config)

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

    def generators_of(self, study: Study) -> tuple[str, ...]:
        if self.settings.generators is not None:
            return self.settings.generators
        return study.generators if self.tuned is None else (self.tuned.source,)

    def generators_here(self, study: Study) -> tuple[list[str], list[str]]:
        """Those that are there, loaded, and one line for each that is not."""
        found, problems = [], []
        for generator in self.generators_of(study):
            try:
                self.augmenter(generator)
            except Missing as missing:
                problems.append(str(missing))
            else:
                found.append(generator)
        return found, problems

    def config(self, row: ViewRow, generator: str) -> AugmentConfig:
        """A row's settings: the generator's preset, or the tuned ones, and what the row changes of them.

        `shape = false`: no tweak.
        """
        changes = {name: None if value is False and name == "shape" else value for name, value in row.config.items()}
        return preset(default_preset(generator), **changes) if self.tuned is None else self.tuned.settings(**changes)

    def views(self, row: ViewRow, generator: str = "") -> Views | str:
        if row.views == "oracle":
            return ORACLE
        if row.views not in BY_GENERATOR:
            return resolve_views(row.views, device=self.settings.device)
        made = self.augmenter(generator, self.config(row, generator), row.generator)
        if row.views == "generated":
            return Views(made, Path(generator).name, made.device)
        return Views(RoundTrip(made), f"{Path(generator).name} round trip", made.device)

    def close(self) -> None:
        """Let go of what is large."""
        self.banks.close()
        self._data.clear()
        if self.device.type == "cuda":
            torch.cuda.empty_cache()
