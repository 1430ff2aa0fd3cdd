"""The run: every question put to the original and its views, each answer on disk before the next is asked."""

from __future__ import annotations

import hashlib
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from onesdaug.common.progress import progress
from onesdaug.errors import ImageError, OnesdaugError
from onesdaug.vlm.combine import ERROR, NO, YES, mean_margin, vote
from onesdaug.vlm.model import Mode, Model, Reply
from onesdaug.vlm.pictures import Pictures
from onesdaug.vlm.questions import Question, Questions
from onesdaug.vlm.score import margins, parsed
from onesdaug.vlm.transcript import Record, Transcript

GIVE_UP = 5  # questions in a row that got no answer at all: a dead server is not asked 3,000 times


@dataclass(frozen=True)
class Headline:
    """The one row that the progress bar follows."""

    mode: str = "plain/greedy"
    parser: str = "official"
    combine: str = "vote"
    original_weight: float = 1.0
    view_weight: float = 1.0

    @property
    def decoding(self) -> str:
        return "logits" if self.combine == "margin" else self.mode.partition("/")[2]

    def right(self, record: Record) -> bool | None:
        """Whether the combined answer is right; None for an error."""
        answers = parsed([record], self.mode, self.parser)
        weights = self.original_weight, self.view_weight
        if self.combine == "margin":
            decision = int(mean_margin(margins([record], self.mode), answers, *weights)[0])
        else:
            decision = int(vote(answers, *weights)[0])
        return None if decision == ERROR else decision == (YES if record.question.label == "yes" else NO)


@dataclass
class Tally:
    """How far the run is: questions done of all, and of those answered the ones that are right."""

    total: int
    done: int = 0
    answered: int = 0
    right: int = 0
    errors: int = 0

    def count(self, record: Record, headline: Headline) -> None:
        outcome = headline.right(record)
        self.done += 1
        self.errors += outcome is None
        self.answered += outcome is not None
        self.right += bool(outcome)

    @property
    def accuracy(self) -> float | None:
        return self.right / self.answered if self.answered else None

    def note(self, decoding: str) -> str:
        right = f"{100 * self.right / self.answered:.2f} % right ({decoding})" if self.answered else "none answered"
        return f"{right}, {self.errors} errors" if self.errors else right


def pending(questions: Questions, transcript: Transcript) -> list[Question]:
    """What is still to be asked: questions without a record, and those in which something failed."""
    done = {record.question.key for record in transcript.of(questions.items) if not record.failed}
    return [question for question in questions.by_image if question.key not in done]


def ask_all(
    model: Model,
    questions: Questions,
    pictures: Pictures,
    transcript: Transcript,
    headline: Headline,
) -> Tally:
    """Ask what is pending. An image that cannot be read, or a question that fails, costs only itself."""
    todo = pending(questions, transcript)
    waiting = {question.key for question in todo}
    tally = Tally(len(questions))
    for record in transcript.of(questions.items):
        if record.question.key not in waiting:
            tally.count(record, headline)
    lost = 0
    with progress(len(questions), "questions") as bar:
        bar.advance(0, skipped=tally.done)
        for question in todo:
            record = _ask(model, question, pictures)
            transcript.add(record)
            tally.count(record, headline)
            bar.note = tally.note(headline.decoding)
            bar.advance()
            silent = [reply.error for rows in record.replies.values() for reply in rows]
            unreadable = record.digest is None
            lost = 0 if unreadable or None in silent else lost + 1
            if lost == GIVE_UP:
                raise OnesdaugError(
                    f"{GIVE_UP} questions in a row got no answer (the last: {silent[0]}). Finished answers are kept; "
                    "run the same command again to go on"
                )
    return tally


def _ask(model: Model, question: Question, pictures: Pictures) -> Record:
    started = time.perf_counter()
    digest = None
    try:
        loaded = pictures.load(question.image)
        digest = loaded.digest
        replies = model.ask(loaded.images, question.text, question.key)
        if loaded.problem is not None:  # the original's answer counts, the views' are missing
            for rows in replies.values():
                rows += [Reply(error=loaded.problem)] * pictures.k
    except ImageError as error:
        replies = _failed(model.modes, pictures.k, str(error))
    except OnesdaugError:
        raise  # a wrong setting, a refused key: no other question would fare better
    except Exception as error:  # whatever a model throws at one question
        replies = _failed(model.modes, pictures.k, f"{type(error).__name__}: {' '.join(str(error).split())[:300]}")
    return Record(question, replies, digest, pictures.view_seconds(question.image), time.perf_counter() - started)


def _failed(modes: Sequence[Mode], k: int, reason: str) -> dict[str, list[Reply]]:
    return {mode.name: [Reply(error=reason)] * (k + 1) for mode in modes}


def images_fingerprint(records: Sequence[Record]) -> str:
    """Name of the images asked about, by their pixels."""
    pairs = sorted({(record.question.image, record.digest or "") for record in records})
    return hashlib.blake2b(repr(pairs).encode(), digest_size=8).hexdigest()


def cost(records: Sequence[Record]) -> dict[str, Any]:
    """Seconds per image for making views and per question for asking."""
    views = {record.question.image: sum(record.view_seconds) for record in records if record.view_seconds}
    return {
        "view_seconds_per_image": _spread(list(views.values())),
        "ask_seconds_per_question": _spread([record.seconds for record in records]),
    }


def _spread(values: list[float]) -> dict[str, float] | None:
    if not values:
        return None
    middle = statistics.median(values)
    return {
        "mean": round(statistics.fmean(values), 4),
        "median": round(middle, 4),
        "max": round(max(values), 4),
        "total": round(sum(values), 3),
    }
