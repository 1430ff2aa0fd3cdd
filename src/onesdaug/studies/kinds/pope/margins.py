"""What a model says about photographs and their views: each picture is looked at once, for every question about it.

Lines of a file, a photograph each, under a name that hashes what made them: all splits, numbers of views and rules are
read from it, and a killed run goes on where it was. A photograph is told by its file's content.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from PIL import Image

from onesdaug.common import jsonl
from onesdaug.common.own import calling
from onesdaug.common.progress import progress
from onesdaug.data.images import decode_image
from onesdaug.data.sources import Member, fingerprint, loose_members
from onesdaug.ensemble.sources import Source
from onesdaug.errors import ConfigError
from onesdaug.studies.kinds.pope.worse import WORSE
from onesdaug.vlm.model import FunctionModel, Model, Reply

# photographs whose views are drawn together, and whose lines are written together: a view's last digits depend on
# what is drawn beside it, and after a kill that is the same again
CHUNK = 32
KEPT = 512  # photographs in memory: all of POPE's


Asked = tuple[str, str, list[Image.Image]]  # a photograph, a question, the pictures it is put to


class Photographs:
    """By name, of a folder or a zip file."""

    def __init__(self, path: Path) -> None:
        self.members: dict[str, Member] = {member.name: member for member in loose_members(path)}
        self._marks: dict[str, list[int]] = {}
        self.image = lru_cache(KEPT)(self._image)  # every row of a study begins with the same ones

    def _image(self, name: str, way: str = "", strength: float = 0.0) -> Image.Image:
        """As it is, or made worse."""
        member = self.members[name]
        plain = decode_image(member.read(), member.where)
        return WORSE[way](plain, strength) if way else plain

    def mark(self, name: str) -> list[int]:
        """Size and CRC-32 of its file, which may have to be read for that."""
        if name not in self._marks:
            self._marks[name] = list(self.members[name].stat())
        return self._marks[name]

    def fingerprint(self, names: Sequence[str]) -> str:
        return fingerprint(self.members[name] for name in names)


class Said(NamedTuple):
    """Of one photograph: margins by question, one for each picture; seconds for drawing its views and for asking."""

    margins: dict[str, list[float]]
    drawing: float
    asking: float


@dataclass
class Asker:
    """Puts all questions about a photograph to the model, about the photograph itself or about K views of it."""

    model: Model
    about: Mapping[str, Any]  # everything that decides the model's answers
    photographs: Photographs
    questions: Mapping[str, Sequence[str]]  # by photograph
    folder: Path
    seed: int
    _tables: dict[Path, dict[str, Said]] = field(default_factory=dict)

    def ask(
        self,
        names: Sequence[str],
        label: str,
        source: Source | None = None,
        k: int = 1,
        worse: tuple[str, float] = ("", 0.0),
    ) -> dict[str, Said]:
        """What is said about these photographs, or about `k` views of each from a source."""
        file = self._file(source, k, worse)
        if file not in self._tables:
            self._tables[file] = self._stored(file)
        table = self._tables[file]
        if all(name in table for name in names):
            return table
        file.parent.mkdir(parents=True, exist_ok=True)
        with progress(len(names), "photographs", label) as bar:
            for start in range(0, len(names), CHUNK):
                chunk = names[start : start + CHUNK]
                known = all(name in table for name in chunk)
                if not known:
                    found = self._asked(chunk, source, k, worse)
                    jsonl.append(file, [self._line(name, said) for name, said in found.items()])
                    table |= found
                bar.advance(0 if known else len(chunk), skipped=len(chunk) if known else 0)
        return table

    def _asked(self, names: Sequence[str], source: Source | None, k: int, worse: tuple[str, float]) -> dict[str, Said]:
        originals = [self.photographs.image(name, *worse) for name in names]
        began = time.perf_counter()
        shown = [[image] for image in originals] if source is None else source.images(originals, k, self.seed)
        drawing = (time.perf_counter() - began) / len(names) if source else 0.0
        began = time.perf_counter()
        margins: dict[str, dict[str, list[float]]] = {name: {} for name in names}
        asked = [
            (name, text, pictures)
            for name, pictures in zip(names, shown, strict=True)
            for text in self.questions[name]
        ]
        for (name, text, pictures), replies in zip(asked, self._replies(asked), strict=True):
            margins[name][text] = self._margins(replies, len(pictures))
        asking = (time.perf_counter() - began) / len(names)
        return {name: Said(margins[name], round(drawing, 5), round(asking, 5)) for name in names}

    def _replies(self, asked: Sequence[Asked]) -> Iterator[list[Reply]]:
        """To each question about each photograph; a function that takes many pictures is asked about all together."""
        if not isinstance(self.model, FunctionModel) or self.model.batch_size is None:
            for name, text, pictures in asked:
                with calling(f"{self.about['name']}, asked about {name},"):
                    replies = self.model.ask(pictures, text, f"{name} {text}")[self.model.modes[0]]
                yield replies
            return
        pairs = [(picture, text) for _, text, pictures in asked for picture in pictures]
        with calling(f"{self.about['name']}, asked about {asked[0][0]} to {asked[-1][0]},"):
            given = iter(self.model.ask_pairs([picture for picture, _ in pairs], [text for _, text in pairs]))
        yield from (list(islice(given, len(pictures))) for _, _, pictures in asked)

    def _margins(self, replies: Sequence[Reply], count: int) -> list[float]:
        margins = [reply.margin for reply in replies if reply.margin is not None]
        if len(margins) != count:
            told = next((reply.error for reply in replies if reply.error), "a text")
            raise ConfigError(f"{self.about['name']} must answer with a number for each picture; it gave {told}")
        return [round(margin, 6) for margin in margins]

    def _file(self, source: Source | None, k: int, worse: tuple[str, float]) -> Path:
        drawn = None if source is None else [repr(source.views), source.views.describe(), k, self.seed]
        what = json.dumps([self.about, drawn, worse], sort_keys=True, default=str)
        return self.folder / f"{hashlib.blake2b(what.encode(), digest_size=8).hexdigest()}.jsonl"

    def _line(self, name: str, said: Said) -> dict[str, Any]:
        return {"image": name, "file": self.photographs.mark(name), **said._asdict()}

    def _stored(self, file: Path) -> dict[str, Said]:
        """Of photographs that are the same and whose questions were all asked; a line torn by a kill goes away."""
        jsonl.repair(file)
        found = {}
        for row in jsonl.read(file):
            name = str(row.get("image")) if row else ""
            if row is None or name not in self.questions or row["file"] != self.photographs.mark(name):
                continue
            if row["margins"].keys() >= set(self.questions[name]):
                found[name] = Said(row["margins"], row["drawing"], row["asking"])
        return found
