"""answers.jsonl: what every picture of every question got for an answer. Appended and never rewritten; rerun = resume.

The first line holds the settings that decide the answers. With others the file is not touched.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, NoReturn

from pydantic import Field, TypeAdapter

from onesdaug.common import jsonl
from onesdaug.errors import ConfigError, DataError, OnesdaugError
from onesdaug.vlm.model import Reply
from onesdaug.vlm.questions import Question

NAME = "answers.jsonl"
SCHEMA = 1
_BEGINNING = json.dumps({"schema": SCHEMA, "settings": {}})[:-2].encode()


@dataclass(frozen=True)
class Record:
    """One question with all its replies, the digest of the image's pixels and what everything cost in seconds."""

    question: Question
    replies: dict[Annotated[str, Field(pattern=r"^\w+/\w+$")], list[Reply]]
    digest: str | None = None
    view_seconds: tuple[float, ...] = ()
    seconds: float = 0.0

    @property
    def failed(self) -> bool:
        """Whether some reply is an error, so that a rerun should ask again."""
        return any(reply.error is not None for rows in self.replies.values() for reply in rows)

    def to_json(self) -> dict[str, Any]:
        q = self.question
        return {
            "question_id": q.id,
            "image": q.image,
            "text": q.text,
            "label": q.label,
            "replies": {mode: [_given(reply) for reply in rows] for mode, rows in self.replies.items()},
            "digest": self.digest,
            "view_seconds": list(self.view_seconds),
            "seconds": round(self.seconds, 4),
        }

    @classmethod
    def from_json(cls, row: dict[str, Any]) -> Record:
        return _RECORD.validate_python({**row, "question": row})


_RECORD = TypeAdapter(Record)


class Transcript:
    """The file of one run: `records` by question key, the latest of each."""

    def __init__(self, out: Path) -> None:
        self.path = out / NAME
        self.settings: dict[str, Any] | None = None
        self.records: dict[str, Record] = {}
        self.damaged = 0  # lines passed over; their questions are asked again
        for row in jsonl.read(self.path):
            self._take(row)
        if self.settings is None and self.path.exists():
            self._check_torn()

    def check(self, settings: dict[str, Any]) -> None:
        """Refuse to mix: the given settings must be those the file was begun with."""
        if self.settings is None:
            return
        before, now = _flat(self.settings), _flat(json.loads(json.dumps(settings)))
        changed = [
            f"{name} {_short(before.get(name))} → {_short(value)}"
            for name, value in now.items()
            if name not in before or before[name] != value
        ]
        if changed:
            raise ConfigError(
                f"{self.path} was made with other settings ({'; '.join(changed)}); give another -o, or the settings "
                "it was begun with"
            )

    def begin(self, settings: dict[str, Any]) -> None:
        """Start the file, or go on with it: a line torn by a kill goes away."""
        self.check(settings)
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            jsonl.repair(self.path)
        except OSError as error:
            raise OnesdaugError(f"cannot write {self.path}: {error.strerror or error}") from error
        if self.settings is None:
            self._append({"schema": SCHEMA, "settings": settings})
            self.settings = settings

    def add(self, record: Record) -> None:
        """Append and wait until it is on disk."""
        self._append(record.to_json())
        self.records[record.question.key] = record

    def of(self, questions: Iterable[Question]) -> list[Record]:
        """The records of these questions, in their order, joined on question_id; those not asked yet are left out."""
        joined = []
        for question in questions:
            record = self.records.get(question.key)
            if record is None:
                continue
            if record.question != question:
                raise DataError(
                    f"{self.path}: question_id {question.id} is another question there ({record.question.text!r}, "
                    f"{record.question.image}); the questions have changed since, give another -o"
                )
            joined.append(record)
        return joined

    def pending(self, questions: Iterable[Question]) -> list[Question]:
        """What is still to be asked: questions without a record, and those in which something failed."""
        questions = list(questions)
        done = {record.question.key for record in self.of(questions) if not record.failed}
        return [question for question in questions if question.key not in done]

    def _append(self, row: dict[str, Any]) -> None:
        try:
            jsonl.append(self.path, [row])
        except OSError as error:
            raise OnesdaugError(
                f"stopped, could not write {self.path}: {error.strerror or error}. All finished answers are kept; put "
                "that right and run the same command again to go on"
            ) from error

    def _check_torn(self) -> None:
        """A file without a whole line is ours only if it holds the beginning of our first line."""
        with self.path.open("rb") as file:
            found = file.read(len(_BEGINNING))
        if not _BEGINNING.startswith(found):
            self._refuse()

    def _refuse(self) -> NoReturn:
        raise DataError(f"{self.path} was not written by this version of `onesdaug pope`; give another -o")

    def _take(self, row: dict[str, Any] | None) -> None:
        if self.settings is None:  # the first line
            if row is None or row.get("schema") != SCHEMA or not isinstance(row.get("settings"), dict):
                self._refuse()
            self.settings = row["settings"]
            return
        try:
            record = Record.from_json(row or {})
        except ValueError:
            self.damaged += 1
        else:
            self.records[record.question.key] = record


def _given(reply: Reply) -> dict[str, Any]:
    return {name: value for name, value in asdict(reply).items() if value is not None}


def _flat(value: Any, name: str = "") -> dict[str, Any]:
    """Nested settings as dotted names, to say which one differs."""
    if not isinstance(value, dict):
        return {name: value}
    parts: dict[str, Any] = {}
    for key, inner in value.items():
        parts |= _flat(inner, f"{name}.{key}" if name else key)
    return parts


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else text[:57] + "…"
