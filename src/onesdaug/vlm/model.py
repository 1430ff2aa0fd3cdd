"""What is asked of a vision-language model and what comes back; `local.py` and `endpoint.py` are two of them."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np

from onesdaug.errors import ConfigError

if TYPE_CHECKING:
    from PIL import Image

Method = Literal["plain", "vcd", "repeat"]
Decoding = Literal["greedy", "sample"]
DECODINGS: tuple[Decoding, ...] = ("greedy", "sample")
SUFFIX = " Please answer this question with one word."


@dataclass(frozen=True)
class Mode:
    """One way of asking: as the model is, with VCD, or the original image over and over; greedy or sampled."""

    method: Method
    decoding: Decoding

    @property
    def name(self) -> str:
        return f"{self.method}/{self.decoding}"


@dataclass(frozen=True)
class Reply:
    """What the model said about one picture: its text and the margin of yes over no, or why there is neither."""

    text: str | None = None
    margin: float | None = None
    error: str | None = None

    def to_json(self) -> dict[str, Any]:
        if self.error is not None:
            return {"error": self.error}
        return {"text": self.text} if self.margin is None else {"text": self.text, "margin": self.margin}

    @classmethod
    def from_json(cls, row: dict[str, Any]) -> Reply:
        return cls(row.get("text"), row.get("margin"), row.get("error"))


Replies = dict[str, list[Reply]]  # by the name of the mode; one for the original and one for each view


@dataclass(frozen=True)
class Contrast:
    """VCD's settings; these are its evaluation script's."""

    alpha: float = 1.0
    beta: float = 0.1
    noise_step: int = 500

    def __post_init__(self) -> None:
        if not (0 <= self.alpha < math.inf and 0 <= self.beta <= 1 and 0 <= self.noise_step < 1000):
            raise ConfigError(
                f"VCD with alpha {self.alpha:g}, beta {self.beta:g}, noise step {self.noise_step}: alpha is not "
                "negative, beta lies in [0, 1], the noise step in 0..999"
            )


@dataclass(frozen=True)
class Asking:
    """How every question is put, whatever the model."""

    decodings: tuple[Decoding, ...] = DECODINGS
    suffix: str = SUFFIX
    max_new_tokens: int = 1
    temperature: float = 1.0  # of sampled decoding; greedy has none
    seed: int = 1234

    def __post_init__(self) -> None:
        if not self.decodings or any(name not in DECODINGS for name in self.decodings):
            raise ConfigError(f"decoding must be greedy or sample, got {', '.join(self.decodings) or 'none'}")
        if len(set(self.decodings)) != len(self.decodings):
            raise ConfigError(f"a decoding is named twice: {', '.join(self.decodings)}")
        if self.max_new_tokens < 1 or not 0 < self.temperature < math.inf:
            raise ConfigError("at least one new token is needed, and a temperature above zero")

    def describe(self) -> dict[str, Any]:
        return {**asdict(self), "decodings": list(self.decodings)}


class Model(Protocol):
    """Anything that answers questions about pictures."""

    modes: tuple[Mode, ...]

    def ask(self, images: Sequence[Image.Image], question: str, key: str) -> Replies:
        """The question put to each picture (the original first) in every mode; `key` names its random streams."""


def stream(seed: int, *key: object) -> np.random.Generator:
    """The random stream of one picture of one question: no other question, batch or order touches it."""
    name = hashlib.blake2b("\x1f".join(map(str, ("pope", seed, *key))).encode(), digest_size=16).digest()
    return np.random.Generator(np.random.Philox(key=np.frombuffer(name, "<u8")))


def word_of(token: str) -> str:
    """A token as the word it stands for: tokenizers mark a leading space with ▁ or Ġ."""
    return token.replace("▁", " ").replace("Ġ", " ").strip().lower()


def listed_margin(logprobs: Iterable[tuple[str, float]]) -> float | None:
    """The margin from a list of the likeliest first tokens, as endpoints give it; None if it has neither word.

    A word that is not listed is at most as likely as the last one that is: the margin is then the smallest it can be.
    """
    pairs = [(word_of(token), float(value)) for token, value in logprobs if float(value) > -math.inf]
    sides = {word: [value for said, value in pairs if said == word] for word in ("yes", "no")}
    if not any(sides.values()):
        return None
    floor = min(value for _, value in pairs)
    yes, no = (float(np.logaddexp.reduce(sides[word])) if sides[word] else floor for word in ("yes", "no"))
    return round(yes - no, 6)
