"""Successive halving: all candidates on a few images, the better ones on more. Every view is stored and reused."""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from onesdaug.analysis.choice import Choice, Floats, Judge, choose, expected, uses
from onesdaug.common.progress import log
from onesdaug.data.dataset import Dataset
from onesdaug.encoders.base import Encoder
from onesdaug.errors import DataError
from onesdaug.fewshot.bank import FeatureBank
from onesdaug.fewshot.embed import embed, spending
from onesdaug.fewshot.evaluate import ViewUse
from onesdaug.statistics import Paired
from onesdaug.tune.candidates import Candidate

FACTOR = 3  # images grow by it from rung to rung, candidates shrink by it
LEAST = 2  # candidates with settings that reach the last rung


@dataclass
class Trial:
    """A candidate and what is known of it so far."""

    candidate: Candidate
    banks: list[FeatureBank] = field(default_factory=list)
    seconds: float = 0.0  # spent on views and features in this run, by all that worked on them
    waited: float = 0.0  # until they were there: less with several workers, more where these had to start
    drawn: int = 0  # images behind those seconds
    gains: list[float] = field(default_factory=list)  # after each rung, mean over tasks, not nested
    gain: float | None = None  # the same so far, where somebody watches
    per_class: int = 0

    @property
    def free(self) -> bool:
        """Whether it has no settings: such ones cost next to nothing and stay until the end."""
        return self.candidate.config is None

    def bank(self, size: int) -> FeatureBank:
        """Of the first `size` images of each class."""
        mine = self.banks[:size]
        ids = tuple(name for bank in mine for name in bank.info.ids)
        features, labels = (torch.cat([getattr(b, part) for b in mine]) for part in ("features", "labels"))
        return FeatureBank(features, labels, replace(mine[0].info, ids=ids))

    @property
    def seconds_per_image(self) -> float | None:
        return self.seconds / self.drawn if self.drawn else None


Watch = Callable[[Sequence[Trial]], None]  # is told of all trials whenever one has seen more images


@dataclass(frozen=True)
class Found:
    """What the search ends with."""

    trials: list[Trial]  # all, in the order they were proposed
    finalists: list[Trial]
    choice: Choice
    uses: list[ViewUse]
    judges: list[Judge]
    plain: list[ViewUse]  # of each task, without views
    bases: list[Floats]
    by_use: list[list[list[Paired]]]  # task, finalist, use: not nested, for looking at
    per_class: int
    hurried: bool  # whether time ran out before all settings or all images were looked at
    untried: int  # settings there was no time for


class Search:
    """One search over one data set with one encoder."""

    def __init__(
        self, data: Dataset, encoder: Encoder, candidates: Sequence[Candidate],
        judges: Callable[[Tensor], list[Judge]], work: Path, *, k: int = 3, seed: int = 0,
        seconds: float | None = None, fewest: int = 2, most: int | None = None, commit: str = "unknown",
        watch: Watch | None = None,
    ) -> None:  # fmt: skip
        self.data, self.encoder, self.judges, self.work = data, encoder, judges, work
        self.k, self.seed, self.commit, self.watch = k, seed, commit, watch
        self.trials = [Trial(candidate) for candidate in candidates]
        self.seconds, self.began, self.fewest = seconds, time.monotonic(), fewest
        self.sizes = rung_sizes(int(data.counts().min()), fewest, len([t for t in self.trials if not t.free]), most)
        rng = np.random.default_rng(seed)
        # column j holds the j-th image of every class: a prefix of columns is a fair part
        self.order = np.stack(
            [rng.permutation(np.flatnonzero(data.labels == c))[: self.sizes[-1]] for c in range(data.n_classes)]
        )

    def run(self) -> Found:
        """Every rung has the same share of the time. In the first one settings are looked at one after the other, as
        many as there is time for; then all that are left go on together, an image of each class at a time."""
        alive, done, untried = self.trials, 0, 0
        for rung, size in enumerate(self.sizes):
            until = None if self.seconds is None else self.began + self.seconds * (rung + 1) / len(self.sizes)
            if rung == 0:
                alive = [trial for trial in alive if trial.free or self._reach(trial, self.fewest, until)]
                untried = len(self.trials) - len(alive)
            done = self._together(alive, size, until)
            if rung + 1 < len(self.sizes):
                alive = self._halve(alive, done, rung)
        return self._judge(alive, done, untried)

    def _reach(self, trial: Trial, size: int, until: float | None = None) -> bool:
        """Look at `size` images of each class; False: no time for it. The first settings are seen through anyway."""
        while trial.per_class < size:
            first = not any(other.per_class >= self.fewest for other in self.trials if not other.free)
            if not first and self._late([trial] * (size - trial.per_class), until):
                return False
            self._look(trial, trial.per_class)
        return True

    def _together(self, alive: list[Trial], size: int, until: float | None) -> int:
        """Up to `size` images of each class for all of them; gives how many they have in common.

        Those without settings follow the others: they cost next to nothing.
        """
        timed = [trial for trial in alive if not trial.free] or alive
        done = min(trial.per_class for trial in timed)
        while done < size:
            if done >= self.fewest and self._late(timed, until):
                break
            done += 1
            for trial in timed:
                self._reach(trial, done)
        for trial in alive:
            self._reach(trial, done)
        return done

    def _late(self, trials: Sequence[Trial], until: float | None) -> bool:
        """Whether one more image of each class would take too long, by what it took so far (or others took)."""
        if until is None:
            return False
        known = [[t.waited / t.drawn for t in (one, *self.trials) if t.drawn] for one in trials]
        return time.monotonic() + sum(paces[0] for paces in known if paces) * len(self.order) > until

    def _look(self, trial: Trial, column: int) -> None:
        """Draw and embed, or take up where an earlier run left it."""
        part = self.data.rows(self.order[:, column].tolist(), f"image {column} of each, seed {self.seed}")
        views = trial.candidate.views
        key = json.dumps([part.fingerprint, self.encoder.fingerprint, views.describe(), self.k, self.seed])
        file = self.work / f"{hashlib.blake2b(key.encode(), digest_size=12).hexdigest()}.safetensors"
        known, began = file.is_file(), time.perf_counter()
        chunk = 8 if self.encoder.device.type == "cpu" else 1024
        with spending() as spent:
            bank = embed(part, self.encoder, file, views, self.k, seed=self.seed, chunk=chunk, commit=self.commit)
        if not known:
            trial.seconds += sum(spent)
            trial.waited += time.perf_counter() - began
            trial.drawn += len(part)
        trial.banks.append(bank)
        trial.per_class += 1
        if self.watch is not None and trial.per_class >= self.fewest:
            (trial.gain,) = self._gains([trial], trial.per_class)
            self.watch(self.trials)

    def _gains(self, trials: Sequence[Trial], size: int) -> list[float]:
        """The best use of each on the first images of each class, mean over tasks: not nested, so rather too high."""
        banks = [trial.bank(size) for trial in trials]
        judges = self.judges(banks[0].labels)
        bases = [judge.base(banks[0])[1] for judge in judges]
        ways = uses(self.k, thorough=False)

        def best(bank: FeatureBank, judge: Judge, base: Floats) -> float:
            return max(float((judge.score(bank, use) - base).mean()) for use in ways)

        return [float(np.mean([best(bank, *judged) for judged in zip(judges, bases, strict=True)])) for bank in banks]

    def _halve(self, alive: list[Trial], size: int, rung: int) -> list[Trial]:
        for trial, gain in zip(alive, self._gains(alive, size), strict=True):
            trial.gains.append(gain)
        ranked = sorted((t for t in alive if not t.free), key=lambda t: -t.gains[-1])
        best = max(alive, key=lambda t: t.gains[-1])
        keep = ranked[: max(LEAST, math.ceil(len(ranked) / FACTOR))]
        log.info(
            f"rung {rung + 1} of {len(self.sizes)}, {size} images of each class: best so far {best.candidate.label}, "
            f"{100 * best.gains[-1]:+.1f} points; {len(keep)} of {len(ranked)} settings stay"
        )
        return [t for t in alive if t.free or t in keep]

    def _judge(self, finalists: list[Trial], size: int, untried: int) -> Found:
        banks = [trial.bank(size) for trial in finalists]
        judges = self.judges(banks[0].labels)
        ways = uses(self.k, True, judges[0].lengths)
        plain, bases = zip(*(judge.base(banks[0]) for judge in judges), strict=True)
        log.info(f"choosing among {len(finalists)} sources × {len(ways)} uses on {len(banks[0].labels)} images")
        scores = [np.array([[judge.score(bank, use) for use in ways] for bank in banks]) for judge in judges]
        choice = choose(judges, scores, bases)
        by_use = [
            [[expected(judge, one - base, base) for one in of_trial] for of_trial in mine]
            for judge, mine, base in zip(judges, scores, bases, strict=True)
        ]
        hurried = size < self.sizes[-1] or untried > 0
        return Found(
            self.trials, finalists, choice, ways, judges, list(plain), list(bases), by_use, size, hurried, untried
        )


def rung_sizes(images: int, fewest: int, candidates: int, most: int | None = None) -> list[int]:
    """Images of each class at every rung: as many rungs as it takes to come down to a few candidates."""
    last = min(images, most or images)
    if last < fewest:
        raise DataError(f"tuning needs {fewest} images of every class, the smallest class has {last}")
    rungs = 1
    while candidates / FACTOR**rungs >= LEAST / FACTOR and last / FACTOR**rungs >= fewest:
        rungs += 1
    sizes = [math.ceil(last / FACTOR ** (rungs - 1 - r)) for r in range(rungs)]
    return [max(fewest, size) for size in sizes]
