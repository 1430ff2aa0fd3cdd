"""From data and a model to one answer: which views, how many, how heavy, or none; as a result like all others."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from onesdaug.analysis.choice import ClassJudge, ImageJudge, Judge, images_needed, threshold
from onesdaug.augment.operator import Augmenter
from onesdaug.augment.tuned import Tuned, TunedUse
from onesdaug.common.provenance import command, commit, describe_machine
from onesdaug.data.dataset import Dataset
from onesdaug.encoders.base import Encoder
from onesdaug.errors import ConfigError
from onesdaug.fewshot.evaluate import ViewUse
from onesdaug.fewshot.heads import Head
from onesdaug.report.result import StudyResult
from onesdaug.studies.provenance import made_now, settings_line
from onesdaug.tune.candidates import propose
from onesdaug.tune.pictures import views_sheet
from onesdaug.tune.search import Found, Search, Trial, Watch

DRAWING = 0.85  # share of the time that goes into views; the rest is for choosing


@dataclass(frozen=True)
class Wanted:
    """What to tune for and how long; without a head the model's outputs are class scores of the folder's classes."""

    sources: tuple[str, ...] = ("pocket", "shape", "crop-flip")
    shots: tuple[int, ...] = (1, 5)
    way: int = 5
    k: int = 3
    candidates: int = 6  # settings of each generator
    minutes: float | None = None
    most: int | None = None  # images of each class
    seed: int = 0


def tune(
    data: Dataset,
    encoder: Encoder,
    head: Head | None,
    wanted: Wanted,
    work: Path,
    device: torch.device,
    name: str = "",
    sheet: Path | None = None,
    watch: Watch | None = None,
) -> StudyResult:
    """Search, choose, estimate; `name` is the data's, for people, `sheet` the file for a picture of the views.

    `watch` is told how far the search is.
    """
    began = time.perf_counter()
    if head is None and encoder.dim != data.n_classes:
        raise ConfigError(
            f"the classifier gives {encoder.dim} scores, the data has {data.n_classes} classes: column i has to "
            f"stand for the i-th class in the order of names ({', '.join(data.class_names[:3])}, …)"
        )

    def judges(labels: Tensor) -> list[Judge]:
        if head is None:
            return [ImageJudge(labels, seed=wanted.seed)]
        room = int(np.bincount(labels.numpy()).min())
        fitting = [shot for shot in wanted.shots if images_needed(shot, data.n_classes) <= room] or [min(wanted.shots)]
        return [ClassJudge(labels, head, shot, wanted.way, seed=wanted.seed) for shot in fitting]

    found = Search(
        data,
        encoder,
        propose(wanted.sources, wanted.candidates, device, wanted.seed),
        judges,
        work,
        k=wanted.k,
        seed=wanted.seed,
        seconds=None if wanted.minutes is None else DRAWING * 60 * wanted.minutes,
        fewest=4 if head is None else images_needed(min(wanted.shots), data.n_classes),
        most=wanted.most,
        commit=commit(),
        watch=watch,
    ).run()
    shown = () if sheet is None else (views_sheet(found, data, wanted.k, wanted.seed, sheet),)
    made = _result(found, data, encoder, wanted, device, name, time.perf_counter() - began)
    return made.model_copy(update={"sheets": shown})


def _result(
    found: Found, data: Dataset, encoder: Encoder, wanted: Wanted, device: torch.device, name: str, seconds: float
) -> StudyResult:
    winner = found.finalists[found.choice.source]
    uses = {judge.name: _use(found, task, winner) for task, judge in enumerate(found.judges)}
    spared = [_spared(found, task, winner, use) for task, use in enumerate(uses.values())]
    answer = [sentence(found, task, use, winner) for task, use in enumerate(uses.values())]
    told = zip(uses.items(), spared, strict=True)
    answer += filter(None, (_sparing_sentence(name, use, each) for (name, use), each in told if use is not None))
    config, views = winner.candidate.config, winner.candidate.views.source.views
    tuned = Tuned(
        source=winner.candidate.source,
        config=config,
        generator=views.fingerprint if isinstance(views, Augmenter) else "",
        encoder=encoder.fingerprint,
        data=data.fingerprint,
        commit=commit(),
        uses=uses,
    )
    made = made_now(
        command(),
        commit(),
        describe_machine(device),
        {"tuning": seconds},
        wanted.seed,
        data={name or "data": f"{data.n_classes} classes, {len(data):,} images, {data.fingerprint}"},
        encoders={encoder.name: encoder.fingerprint},
        generators={}
        if config is None
        else {tuned.source: f"{tuned.generator} · {settings_line(config.model_dump())}"},
    )
    return StudyResult(
        study="tune",
        kind="tune",
        title=f"Views for {encoder.name} on {name or 'your data'}",
        paper="none",
        about="What views to use here, and whether to use any: chosen by nested cross-validation, so that the gain is "
        "one to expect.",
        made=made,
        details={
            "tuned": tuned.model_dump(mode="json"),
            "answer": answer,
            "tasks": [{**_task(found, task), "spared": spared[task]} for task in range(len(found.judges))],
            "trials": [trial_facts(trial) for trial in found.trials],
        },
        notes=_notes(found, data, wanted, uses),
    )


def _notes(found: Found, data: Dataset, wanted: Wanted, uses: Mapping[str, TunedUse | None]) -> tuple[str, ...]:
    """What to know about the answer."""
    tried = len(found.trials) - found.untried
    notes = [
        f"{tried} sources and settings tried; {len(found.finalists)} judged on {found.per_class} images of each class."
    ]
    if not found.judges[0].alone and data.n_classes < 4:
        notes.append(
            f"With {data.n_classes} classes the choice was made on one half of each class's images and measured on "
            "the other: the interval is that of other images of these classes, not of other classes."
        )
    if found.hurried:
        count = "1 setting was" if found.untried == 1 else f"{found.untried} settings were"
        untried = f"; {count} not tried" if found.untried else ""
        notes.append(
            f"Time ran out after {found.per_class} images of each class{untried}. A larger --budget may find more."
        )
    if left := [f"{shot}-shot" for shot in wanted.shots if f"{shot}-shot" not in uses and "classifier" not in uses]:
        notes.append(f"Not tuned for {', '.join(left)}: that needs more images of each class.")
    return tuple(notes)


def _use(found: Found, task: int, winner: Trial) -> TunedUse | None:
    """The chosen use, if views are worth it."""
    if (index := found.choice.worth(task)) is None:
        return None
    use = found.uses[index]
    return TunedUse(
        k=use.query,
        original_weight=use.original_weight,
        normalise=use.normalise,
        select=use.select,
        keep=use.keep,
        threshold=threshold(found.judges[task], winner.bank(found.per_class), use),
    )


def _spared(found: Found, task: int, winner: Trial, chosen: TunedUse | None) -> dict[str, Any]:
    """Views that an image takes, and the accuracy it costs, where they are made for the unsure or one at a time."""
    if chosen is None:
        return {}
    judge, bank = found.judges[task], winner.bank(found.per_class)
    use = ViewUse(chosen.k, chosen.k, **chosen.model_dump(exclude={"k"}))
    ways = {"always": replace(use, threshold=None), "auto": replace(use, threshold=None, auto=True)}
    if chosen.threshold is not None:
        ways |= {"unsure": use, "unsure and auto": replace(use, auto=True)}
    judged = {name: judge.judge(bank, way) for name, way in ways.items()}
    whole = judged["always"][0].mean()
    return {name: {"views": views, "loss": float(whole - scores.mean())} for name, (scores, views) in judged.items()}


def _sparing_sentence(name: str, use: TunedUse, spared: dict[str, Any]) -> str:
    """How many views are needed if they are made one at a time, or only where they pay; "" where none are spared."""

    def told(way: str, what: str) -> str:
        points = round(-100 * spared[way]["loss"], 2) or 0.0  # no "-0.00"
        return f"{what} ({points:+.2f} points)"

    parts = []
    if use.k > 1:
        parts.append(told("auto", f"one at a time until settled (k = auto), {spared['auto']['views']:.2f} of {use.k}"))
    if use.threshold is not None:
        share = spared["unsure"]["views"] / use.k
        where = f"only where the original's margin is at most {use.threshold:.2g}, for {share:.0%} of the images"
        parts.append(told("unsure", where))
    if len(parts) == 2:
        parts.append(told("unsure and auto", f"both, {spared['unsure and auto']['views']:.2f} of {use.k}"))
    return f"{name}, views spared: {'; '.join(parts)}" if parts else ""


def sentence(found: Found, task: int, use: TunedUse | None, winner: Trial) -> str:
    """The answer for one task in one line."""
    judge, gain = found.judges[task], found.choice.gains[task]
    told = f"{100 * gain.difference:+.1f} ± {100 * gain.ci95:.1f} points"
    if use is None:
        gains = [max(found.by_use[task][i], key=lambda g: g.difference) for i in range(len(found.finalists))]
        best = int(np.argmax([g.difference for g in gains]))
        looked = f"{100 * gains[best].difference:+.1f} ± {100 * gains[best].ci95:.1f}"
        label, elsewhere = found.finalists[best].candidate.label, told if gain.ci95 else "nothing"
        best_was = f"{label}, {looked} where it was chosen, {elsewhere} where not"
        return f"{judge.name}: views do not help here: best was {best_was}"
    cost = f" for {winner.seconds_per_image:.2g} s per image" if winner.seconds_per_image else ""
    extras = (", features of length 1" if use.normalise else "") + (
        f", the {use.keep:.0%} most alike" if use.select != "all" else ""
    )
    chosen = f"{winner.candidate.label}, K = {use.k}, weight {use.original_weight:g}{extras}"
    return f"{judge.name}: use {chosen}: {told}{cost}"


def _task(found: Found, task: int) -> dict[str, Any]:
    judge, gain = found.judges[task], found.choice.gains[task]
    return {
        "name": judge.name,
        "accuracy": float(found.bases[task].mean()),
        "normalised": found.plain[task].normalise,
        "gain": {"difference": gain.difference, "ci95": gain.ci95, "n": gain.n},
        "finalists": [
            {
                "label": trial.candidate.label,
                "source": trial.candidate.source,
                "seconds_per_image": trial.seconds_per_image,
                "uses": [
                    {**vars(use), "gain": g.difference, "ci95": g.ci95}
                    for use, g in zip(found.uses, found.by_use[task][i], strict=True)
                ],
            }
            for i, trial in enumerate(found.finalists)
        ],
    }


def trial_facts(trial: Trial) -> dict[str, Any]:
    """What is told of a candidate, whatever became of it."""
    return {
        "label": trial.candidate.label,
        "source": trial.candidate.source,
        "per_class": trial.per_class,
        "gains": trial.gains,
        "seconds_per_image": trial.seconds_per_image,
    }


def list_of(words: str) -> tuple[str, ...]:
    """A list from the command line, by commas."""
    return tuple(word.strip() for word in words.split(",") if word.strip())
