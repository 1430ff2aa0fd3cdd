"""The whole of `onesdaug pope` but its options: views, then answers, then results; each stage resumes."""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onesdaug.common.files import check_writable, locked
from onesdaug.common.hub import name_of
from onesdaug.common.progress import log
from onesdaug.errors import ConfigError
from onesdaug.vlm.answers import PARSERS
from onesdaug.vlm.combine import COMBINE, check_weights
from onesdaug.vlm.model import Model
from onesdaug.vlm.pictures import Pictures, make_views
from onesdaug.vlm.questions import Questions, check_images
from onesdaug.vlm.run import Headline, ask_all, cost, images_fingerprint, pending
from onesdaug.vlm.score import SUMMARY, Summary, grid
from onesdaug.vlm.tables import write_texts
from onesdaug.vlm.transcript import Record, Transcript

if TYPE_CHECKING:
    from onesdaug.augment.config import AugmentConfig
    from onesdaug.augment.operator import Augmenter


@dataclass(frozen=True)
class Job:
    """What to ask whom about which pictures; `about` is everything that decides the model's answers, as JSON."""

    questions: Questions
    images: Path
    out: Path
    about: dict[str, Any]
    load_model: Callable[[], Model]
    headline: Headline = field(default_factory=Headline)
    k: int = 0
    seed: int = 1234
    generator: str = "sd15"
    ip_repo: str = "h94/IP-Adapter"
    config: AugmentConfig | None = None  # of the views; needed where k is not 0
    store: Path | None = None  # of the views; else OUT/views
    device: str = "auto"

    def check(self) -> None:
        """Whatever can be found wrong before anything heavy is loaded."""
        h = self.headline
        if h.parser not in PARSERS:
            raise ConfigError(f"parser must be one of {', '.join(PARSERS)}, not {h.parser!r}")
        if h.combine not in COMBINE:
            raise ConfigError(f"combine must be one of {', '.join(COMBINE)}, not {h.combine!r}")
        check_weights(h.original_weight, h.view_weight)
        if self.views.resolve() == self.out.resolve():
            raise ConfigError(f"views and answers cannot share the folder {self.out}; give another --views")
        check_images(self.questions, self.images)
        check_writable(self.out)

    @property
    def views(self) -> Path:
        return self.store or self.out / "views"

    @property
    def settings(self) -> dict[str, Any]:
        """What decides the answers; the generator's weights join once they are loaded."""
        views = None
        if self.k and self.config is not None:
            views = {
                "generator": name_of(self.generator),
                "seed": self.seed,
                "config": self.config.model_dump(mode="json"),
            }
        return {"questions": self.questions.fingerprint, "model": self.about, "k": self.k, "views": views}

    @property
    def shape_tweak(self) -> bool:
        return self.config is not None and self.config.shape is not None


def answer(job: Job) -> list[Record]:
    """Make views and ask, as far as either is still to be done; gives the answers in the questions' order."""
    job.check()
    with locked(job.out):
        transcript, settings = Transcript(job.out), job.settings
        transcript.check(settings)
        if transcript.damaged:
            log.info(f"{transcript.damaged} damaged lines of {transcript.path} are ignored; they are asked again")
        if todo := pending(job.questions, transcript):
            failures: dict[str, str] = {}
            if job.k:
                augmenter = _load_augmenter(job)
                settings["views"]["weights"] = augmenter.fingerprint
                transcript.check(settings)
                failures = _views(job, augmenter)
                del augmenter
                _free_memory()  # the generator makes room for the model
            transcript.begin(settings)
            log.info(f"{job.about['name']}: {len(todo)} of {len(job.questions)} questions to ask, K={job.k}")
            names = job.questions.images
            pictures = Pictures(job.images, names, job.views if job.k else None, job.k, failures)
            ask_all(job.load_model(), job.questions, pictures, transcript, job.headline)
        return transcript.of(job.questions.items)


def results(job: Job, records: Sequence[Record], *, commit: str, machine: dict[str, Any], started: float) -> Summary:
    """Score the answers and write summary.json and the paper's text files."""
    h = job.headline
    settings = Transcript(job.out).settings or job.settings
    summary = Summary(
        rows=grid(records, original_weight=h.original_weight, view_weight=h.view_weight, seed=job.seed),
        command=["onesdaug", *sys.argv[1:]],
        commit=commit,
        machine=machine,
        settings=settings,
        questions=job.questions.summary(),
        images_fingerprint=images_fingerprint(records),
        weights={"original": h.original_weight, "view": h.view_weight},
        cost={**cost(records), "seconds": round(time.perf_counter() - started, 3)},
    )
    summary.save(job.out / SUMMARY)
    write_texts(job.out, summary, h.parser, h.combine, job.shape_tweak)
    return summary


def _views(job: Job, augmenter: Augmenter) -> dict[str, str]:
    names = job.questions.images
    log.info(f"{job.generator}: {augmenter.summary()}; K={job.k} views of {len(names)} images → {job.views}")
    failures = make_views(augmenter, job.images, names, job.views, job.k, job.seed)
    for source, reason in failures.items():
        log.info(f"no views: {reason if reason.startswith(source) else f'{source}: {reason}'}")
    return failures


def _load_augmenter(job: Job) -> Augmenter:
    from onesdaug.augment.operator import Augmenter

    if job.config is None:
        raise ConfigError("views need the operator's settings; give Job a config")
    return Augmenter.from_pretrained(
        job.generator,
        config=job.config,
        ip_adapter=job.config.conditioned,
        ip_repo=job.ip_repo,
        device=job.device,
    )


def _free_memory() -> None:
    import torch

    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
