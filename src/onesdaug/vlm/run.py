"""The whole of `onesdaug pope` but its options: views, then answers, then results; each stage resumes.

Every question is put to the original and its views, and each answer is on disk before the next question is asked.
"""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onesdaug.augment.seeds import image_digest
from onesdaug.common.files import check_plain_file, check_writable, locked
from onesdaug.common.hub import name_of
from onesdaug.common.progress import log, printable, progress
from onesdaug.data.images import load_image
from onesdaug.errors import ConfigError, DataError, ImageError, OnesdaugError
from onesdaug.jobs.folder import ViewFolder
from onesdaug.jobs.job import run_job
from onesdaug.jobs.ledger import JobReport
from onesdaug.jobs.plan import Listing, list_inputs
from onesdaug.jobs.survey import JobSettings
from onesdaug.vlm.answers import CODES, COMBINE, ERROR, PARSERS, check_weights, mean_margin, vote
from onesdaug.vlm.model import Model, Replies, Reply
from onesdaug.vlm.questions import Question, Questions, check_images
from onesdaug.vlm.score import (
    LOGITS,
    SUMMARY,
    PopeResults,
    cost,
    grid,
    images_fingerprint,
    margins,
    parsed,
    write_texts,
)
from onesdaug.vlm.settings import Scoring
from onesdaug.vlm.transcript import Record, Transcript

if TYPE_CHECKING:
    from PIL import Image

    from onesdaug.augment.config import AugmentConfig
    from onesdaug.augment.operator import Augmenter

# how each file begins that a run writes anew: what begins otherwise is somebody else's
OURS = {SUMMARY: '{\n "rows": [', "pope-run.json": '{\n "study": "pope-run"', "aug_views_*.txt": "POPE "}
GIVE_UP = 5  # questions in a row that got no answer at all: a dead server is not asked 3,000 times


@dataclass(frozen=True)
class Headline(Scoring):
    """The one row that the progress bar and the text files show; all others are in summary.json."""

    mode: str = "plain/greedy"

    def right(self, record: Record) -> bool | None:
        """Whether the combined answer is right; None for an error."""
        answers, weights = parsed([record], self.mode, self.parser), (self.original_weight, self.view_weight)
        if self.combine == "margin":
            decision = int(mean_margin(margins([record], self.mode), answers, *weights)[0])
        else:
            decision = int(vote(answers, *weights)[0])
        return None if decision == ERROR else decision == CODES[record.question.label]

    def note(self, outcomes: Sequence[bool | None]) -> str:
        """How the questions so far came out, with the decoding beside the number."""
        answered = [right for right in outcomes if right is not None]
        decoding = LOGITS if self.combine == "margin" else self.mode.partition("/")[2]
        share = f"{100 * sum(answered) / len(answered):.2f} % right ({decoding})" if answered else "none answered"
        errors = len(outcomes) - len(answered)
        return f"{share}, {errors} errors" if errors else share


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
    # who draws the views, if not this process
    elsewhere: Callable[[Job, Listing, JobSettings], JobReport] | None = None

    def check(self) -> None:
        """Whatever can be found wrong before anything heavy is loaded."""
        h = self.headline
        if h.parser not in PARSERS:
            raise ConfigError(f"parser must be one of {', '.join(PARSERS)}, not {h.parser!r}")
        if h.combine not in COMBINE:
            raise ConfigError(f"combine must be one of {', '.join(COMBINE)}, not {h.combine!r}")
        check_weights(h.original_weight, h.view_weight)
        if self.k and self.config is None:
            raise ConfigError("views need the operator's settings; give Job a config")
        if self.views.resolve() == self.out.resolve():
            raise ConfigError(f"views and answers cannot share the folder {self.out}; give another --views")
        check_images(self.questions, self.images)
        check_writable(self.out)
        for pattern, beginning in OURS.items():
            for file in self.out.glob(pattern):
                _check_ours(file, beginning.encode())

    @property
    def views(self) -> Path:
        return self.store or self.out / "views"

    @property
    def settings(self) -> dict[str, Any]:
        """What decides the answers; the generator's weights join once they are loaded."""
        views = None
        if self.k and self.config is not None:
            config = self.config.model_dump(mode="json")
            views = {"generator": name_of(self.generator), "seed": self.seed, "config": config}
        return {"questions": self.questions.fingerprint, "model": self.about, "k": self.k, "views": views}


def _check_ours(file: Path, beginning: bytes) -> None:
    check_plain_file(file)
    with file.open("rb") as opened:
        found = opened.read(len(beginning))
    if found != beginning:
        raise ConfigError(f"{file} is not a file of `onesdaug pope`, which would replace it; give another -o")


@dataclass(frozen=True)
class Loaded:
    """The original first, then its views with what each cost to make; `problem` says why there are none."""

    images: list[Image.Image]
    digest: str  # of the original's pixels
    seconds: tuple[float, ...] = ()
    problem: str | None = None


class Pictures:
    """The images of a job by name, each with its K views once they are made."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self._made: ViewFolder | None = None
        self._found: dict[Path, tuple[str, str | None]] = {}  # how its views are called, or why there are none
        self.load = lru_cache(maxsize=1)(self._load)  # the questions about an image follow one another

    def make_views(self, augmenter: Augmenter) -> None:
        """Make what is missing of every image's views; the files are called as by `onesdaug augment`."""
        job, names = self.job, self.job.questions.images
        log.info(f"{job.generator}: {augmenter.summary()}; K={job.k} views of {len(names)} images → {job.views}")
        listing = list_inputs([job.images / name for name in names], job.views)
        settings = JobSettings(job.views, job.k, job.seed)
        done = (job.elsewhere or partial(_here, augmenter))(job, listing, settings)
        if done.interrupted:
            raise KeyboardInterrupt
        if len(done.failures) == len(listing.items):
            reason = next(iter(done.failures.values()))
            raise OnesdaugError(f"no image has views in {job.views}; the first could not be made because: {reason}")
        for source, reason in done.failures.items():
            log.info(f"no views: {reason if reason.startswith(source) else f'{source}: {reason}'}")
        self._found = {item.path: (item.prefix, done.failures.get(item.source)) for item in listing.items}
        self._made = ViewFolder(job.views)

    def _load(self, name: str) -> Loaded:
        """The original and its views. ImageError: not even that."""
        original, k = load_image(self.job.images / name), self.job.k
        loaded = Loaded([original], image_digest(original))
        if self._made is None:
            return loaded
        prefix, reason = self._found[self.job.images / name]
        try:
            if reason is not None:
                raise ImageError(f"no views of {name}: {reason}")
            views = self._made.named(prefix, k)
        except (DataError, ImageError) as error:
            return replace(loaded, problem=str(error))
        seconds = tuple(float(row.get("seconds", 0.0)) for row in self._made.manifest.rows(prefix, k))
        return replace(loaded, images=[original, *views], seconds=seconds)


def answer(job: Job) -> list[Record]:
    """Make views and ask, as far as either is still to be done; gives the answers in the questions' order."""
    job.check()
    with locked(job.out):
        transcript, settings = Transcript(job.out), job.settings
        transcript.check(settings)
        if transcript.damaged:
            log.info(f"{transcript.damaged} damaged lines of {transcript.path} are ignored; they are asked again")
        if todo := transcript.pending(job.questions.by_image):
            pictures = Pictures(job)
            if job.k:
                _make_views(pictures, transcript, settings)
            transcript.begin(settings)
            log.info(f"{job.about['name']}: {len(todo)} of {len(job.questions)} questions to ask, K={job.k}")
            _ask_all(todo, pictures, transcript)
        return transcript.of(job.questions.items)


def results(
    job: Job, records: Sequence[Record], *, commit: str, machine: dict[str, Any], started: float
) -> PopeResults:
    """Score the answers and write summary.json and the paper's text files."""
    h = job.headline
    made = PopeResults(
        rows=grid(records, original_weight=h.original_weight, view_weight=h.view_weight, seed=job.seed),
        command=["onesdaug", *map(printable, sys.argv[1:])],
        commit=commit,
        machine=machine,
        settings=Transcript(job.out).settings or job.settings,
        questions=job.questions.summary(),
        images_fingerprint=images_fingerprint(records),
        weights={"original": h.original_weight, "view": h.view_weight},
        cost={**cost(records), "seconds": round(time.perf_counter() - started, 3)},
    )
    made.save(job.out / SUMMARY)
    shape_tweak = job.config is not None and job.config.shape is not None
    write_texts(job.out, made, h.parser, h.combine, shape_tweak)
    return made


def _here(augmenter: Augmenter, _: Job, listing: Listing, settings: JobSettings) -> JobReport:
    return run_job(augmenter, listing, settings)


def _make_views(pictures: Pictures, transcript: Transcript, settings: dict[str, Any]) -> None:
    import torch

    from onesdaug.augment.operator import Augmenter

    job = pictures.job
    conditioned = job.config is not None and job.config.conditioned
    augmenter = Augmenter.from_pretrained(
        job.generator, config=job.config, ip_adapter=conditioned, ip_repo=job.ip_repo, device=job.device
    )
    settings["views"]["weights"] = augmenter.fingerprint
    transcript.check(settings)
    pictures.make_views(augmenter)
    del augmenter  # the generator makes room for the model
    gc.collect()
    torch.cuda.empty_cache()  # does nothing where CUDA is not in use


def _ask_all(todo: Sequence[Question], pictures: Pictures, transcript: Transcript) -> None:
    """An image that cannot be read, or a question that fails, costs only itself."""
    job, lost = pictures.job, 0
    model = job.load_model()
    outcomes = [job.headline.right(record) for record in transcript.of(job.questions.items) if not record.failed]
    with progress(len(job.questions), "questions") as bar:
        bar.advance(0, skipped=len(outcomes))
        for question in todo:
            record = _ask(model, question, pictures)
            transcript.add(record)
            outcomes.append(job.headline.right(record))
            bar.note = job.headline.note(outcomes)
            bar.advance()
            errors = [reply.error for rows in record.replies.values() for reply in rows]
            unreadable = record.digest is None
            lost = 0 if unreadable or None in errors else lost + 1
            if lost == GIVE_UP:
                raise OnesdaugError(
                    f"{GIVE_UP} questions in a row got no answer (the last: {errors[0]}). Finished answers are kept; "
                    "run the same command again to go on"
                )


def _ask(model: Model, question: Question, pictures: Pictures) -> Record:
    started, loaded = time.perf_counter(), None
    replies: Replies = {mode: [] for mode in model.modes}
    problem: str | None = None
    try:
        loaded = pictures.load(question.image)
        replies = model.ask(loaded.images, question.text, question.key)
        problem = loaded.problem  # of the views: the original's answer counts
    except ImageError as error:
        problem = str(error)
    except OnesdaugError:
        raise  # a wrong setting, a refused key: no other question would fare better
    except Exception as error:  # whatever a model throws at one question
        problem = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
    if problem is not None:
        for rows in replies.values():
            rows += [Reply(error=problem)] * (1 + pictures.job.k - len(rows))
    digest, seconds = (None, ()) if loaded is None else (loaded.digest, loaded.seconds)
    return Record(question, replies, digest, seconds, time.perf_counter() - started)
