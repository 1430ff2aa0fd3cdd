"""POPE's questions: read strictly, joined on question_id, counted before anything is asked."""

from __future__ import annotations

import codecs
import hashlib
import json
import re
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, TypeAdapter, ValidationError
from pydantic_core import from_json

from onesdaug.common.files import mode_of
from onesdaug.common.progress import printable
from onesdaug.common.reading import read_bytes
from onesdaug.errors import DataError

# POPE's own COCO files, and the A-OKVQA and GQA files made the same way: 500 images, six questions each, half yes
_OFFICIAL = re.compile(r"(coco|aokvqa|gqa)_pope_(random|popular|adversarial)")
OFFICIAL_COUNTS = (3000, 1500, 500)  # questions, with the answer yes, images
# Fingerprints of POPE's current COCO files; other copies in use have spelling mistakes, other rows or another order
KNOWN = {
    "random": "c7dd1de55d22672e",
    "popular": "b5e443dd4d74cc23",
    "adversarial": "42c436145d141317",
}
_FIELDS = ("question_id", "image", "text", "label")
_NAMED = 5  # how many missing images are named


def _cut(text: str) -> str:
    """A value of the file in a message: not thousands of characters of it."""
    return text if len(text) <= 80 else f"{text[:79]}…"


def _id(value: Any) -> int | str:
    if not isinstance(value, int | str) or isinstance(value, bool):
        raise ValueError(f"question_id {_cut(repr(value))} is neither a number nor text")
    return value


def _image(value: Any) -> str:
    path = PurePosixPath(value if isinstance(value, str) and value else "/")
    if path.is_absolute() or ".." in path.parts:
        raise ValueError(f"image {_cut(repr(value))} is not a file inside the folder of images")
    return str(value)


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError("the question has no text")
    return value


def _label(value: Any) -> str:
    label = str(value).strip().lower()
    if label not in ("yes", "no"):
        raise ValueError(f"the label is {_cut(repr(value))}, it must be yes or no")
    return label


@dataclass(frozen=True)
class Question:
    """One question about one image, and the right answer."""

    id: Annotated[int | str, BeforeValidator(_id), Field(validation_alias="question_id")]
    image: Annotated[str, BeforeValidator(_image)]
    text: Annotated[str, BeforeValidator(_text)]
    label: Annotated[str, BeforeValidator(_label)]  # yes or no

    @property
    def key(self) -> str:
        """The id as text: what answers are joined on."""
        return str(self.id)


QUESTION = TypeAdapter(Question)


@dataclass(frozen=True)
class Questions:
    """The questions of one file in its order; `limit` may have cut them, the fingerprint is of the whole file."""

    items: tuple[Question, ...]
    split: str
    fingerprint: str
    file: str = ""

    def __len__(self) -> int:
        return len(self.items)

    @property
    def images(self) -> list[str]:
        """The images asked about, in order of their first question."""
        return list(dict.fromkeys(q.image for q in self.items))

    @property
    def by_image(self) -> list[Question]:
        """The questions with those of an image together, so that it is loaded once."""
        places = {name: place for place, name in enumerate(self.images)}
        return sorted(self.items, key=lambda question: places[question.image])

    @property
    def known(self) -> bool:
        """Whether the file is, row for row, POPE's own."""
        return KNOWN.get(self.split) == self.fingerprint

    def summary(self) -> dict[str, Any]:
        return {
            "file": self.file,
            "split": self.split,
            "questions": len(self),
            "yes": sum(q.label == "yes" for q in self.items),
            "images": len(self.images),
            "fingerprint": self.fingerprint,
            "known_copy": self.known,
        }


def read_questions(path: str | Path, limit: int | None = None) -> Questions:
    """From POPE's JSON lines or a JSON list; refuses what cannot be scored and says where it stands."""
    file = Path(path)
    found: dict[str, tuple[str, Question]] = {}  # by key, with the place in the file
    state = hashlib.blake2b(digest_size=8)
    for place, row in _rows(file):
        q = _question(row, f"{file}, {place}")
        if q.key in found:
            raise DataError(
                f"{file}: question_id {_cut(q.key)} is there twice ({found[q.key][0]} and {place}); answers are "
                "joined on question_id, so every question needs its own"
            )
        found[q.key] = place, q
        state.update(json.dumps([q.id, q.image, q.text, q.label]).encode())
    if not found:
        raise DataError(f"{file} holds no questions")
    items = tuple(question for _, question in found.values())
    if _OFFICIAL.search(file.stem):
        _check_counts(items, file)
    return Questions(items[:limit], split_name(file), state.hexdigest(), printable(str(file)))


def split_name(file: Path) -> str:
    """adversarial for coco_pope_adversarial.json, aokvqa_random for its A-OKVQA sister, else the file's own name."""
    if found := _OFFICIAL.search(file.stem):
        source, split = found.groups()
        return split if source == "coco" else f"{source}_{split}"
    name = re.sub(r"[^\w.-]+", "-", file.stem)
    return name.encode()[:100].decode(errors="ignore")  # files are called after it


def check_images(questions: Questions, folder: str | Path) -> None:
    """See that every image is there, before any model is loaded; says how many are not and names some."""
    root, images, missing = Path(folder), questions.images, _missing(questions, Path(folder))
    if not missing:
        return
    named = ", ".join(map(_cut, missing[:_NAMED]))
    named += f" and {len(missing) - _NAMED} more" if len(missing) > _NAMED else ""
    hint = (
        "; is this COCO's val2014 folder?" if len(missing) == len(images) else "; --skip-missing asks about the rest"
    )
    raise DataError(f"{len(missing)} of {len(images)} images are not in {root}: {named}{hint}")


def present(questions: Questions, folder: str | Path) -> Questions:
    """The questions whose images are there; none is an error."""
    missing = set(_missing(questions, Path(folder)))
    if len(missing) == len(questions.images):
        check_images(questions, folder)
    return replace(questions, items=tuple(q for q in questions.items if q.image not in missing))


def _missing(questions: Questions, root: Path) -> list[str]:
    if not stat.S_ISDIR(mode_of(root)):
        raise DataError(f"the folder of images {root} does not exist; for POPE it is COCO's val2014")
    return [name for name in questions.images if not stat.S_ISREG(mode_of(root / name))]


def _rows(file: Path) -> Iterator[tuple[str, Any]]:
    """Each row with the place it stands at, in words."""
    data = read_bytes(file).removeprefix(codecs.BOM_UTF8)
    if data.lstrip().startswith(b"["):
        yield from ((f"row {number}", row) for number, row in enumerate(_json(data, str(file)), start=1))
        return
    # a line ends where JSON says so: str.splitlines would end it inside a text as well
    for number, line in enumerate(data.split(b"\n"), start=1):
        if line.strip():
            yield f"line {number}", _json(line, f"{file}, line {number}")


def _json(data: bytes, where: str) -> Any:
    try:
        return from_json(data)
    except ValueError as error:  # also of what is no UTF-8, or nested too deeply
        raise DataError(f"{where} is not valid JSON: {error}") from error


def _question(row: Any, where: str) -> Question:
    try:
        return QUESTION.validate_python(row)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        if first["type"] == "value_error":
            raise DataError(f"{where}: {first['ctx']['error']}") from error
        what = f"has no {first['loc'][0]}" if first["type"] == "missing" else "is not an object"
        raise DataError(f"{where} {what}; a question has {', '.join(_FIELDS)}") from error


def _check_counts(items: Sequence[Question], file: Path) -> None:
    """A file called like an official split holds 3,000 questions, 1,500 of them yes, about 500 images."""
    counts = len(items), sum(q.label == "yes" for q in items), len({q.image for q in items})
    if counts != OFFICIAL_COUNTS:
        raise DataError(
            f"{file} has {counts[0]} questions, {counts[1]} yes, {counts[2]} images; an official split has 3000, 1500 "
            "and 500 (an old copy of the random split has 2910). Get it from the POPE repository's output/coco, use "
            "--limit for a part of it, or give a file of your own another name"
        )
