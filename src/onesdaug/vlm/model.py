"""What is asked of a vision-language model and what comes back; `find_model` turns a name into a model."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np

from onesdaug.common.files import mode_of
from onesdaug.common.registry import VLMS
from onesdaug.errors import ConfigError, how_to_install
from onesdaug.vlm.settings import Asking, Contrast

if TYPE_CHECKING:
    from PIL import Image


@dataclass(frozen=True)
class Reply:
    """What the model said about one picture: its text and the margin of yes over no, or why there is neither."""

    text: str | None = None
    margin: float | None = None
    error: str | None = None


Replies = dict[str, list[Reply]]  # by mode; one for the original and one for each view


@runtime_checkable
class Model(Protocol):
    """Anything that answers questions about pictures.

    A mode is method/decoding. Methods: plain (as the model is), vcd, repeat (the original image over and over).
    """

    modes: tuple[str, ...]

    def ask(self, images: Sequence[Image.Image], question: str, key: str) -> Replies:
        """The question put to each picture (the original first) in every mode; `key` names its random streams."""


def find_model(
    name: str, asking: Asking, contrast: Contrast | None = None, *, endpoint: str | None = None, **options: Any
) -> tuple[dict[str, Any], Callable[[], Model]]:
    """What decides a model's answers, as JSON, and how to load it: the one place where a name becomes a model.

    Options are those of `LocalModel.from_pretrained` or, with an `endpoint`, of `Endpoint`; a user's own function has
    `batch_size` alone.
    """
    if endpoint is not None:
        try:
            from onesdaug.vlm.endpoint import Endpoint
        except ImportError as error:
            raise ConfigError(f"an endpoint is asked through httpx: {how_to_install('vlm')}") from error
        remote = Endpoint(endpoint, name, asking, **options)  # now: a wrong key shows before any view is made
        return remote.about, lambda: remote
    if name in VLMS or (":" in name and not mode_of(Path(name))):
        return _find_own(name, asking, **options)
    from onesdaug.vlm.local import LocalModel, describe_local

    described = {option: options[option] for option in ("prompt", "dtype") if option in options}
    load = partial(LocalModel.from_pretrained, name, asking, contrast, **options)
    return describe_local(name, asking, contrast, **described), load


def _find_own(name: str, asking: Asking, **options: Any) -> tuple[dict[str, Any], Callable[[], Model]]:
    """A registered or a user's own function or `Model`; what decides its answers, and how to get it."""
    found = VLMS.get(name)
    made = found() if isinstance(found, type) else found
    if not isinstance(made, Model) and not callable(made):
        raise ConfigError(f"{name} is {type(made).__name__}; want a function (images, questions) → answers or a Model")
    kind, taken = ("object", {"device"}) if isinstance(made, Model) else ("function", {"device", "batch_size"})
    if idle := sorted(options.keys() - taken):
        raise ConfigError(f"{name} is a Python {kind}: it takes no {', '.join(idle)}; leave that out")
    model: Model = made
    if not isinstance(made, Model):
        model = FunctionModel(made, asking.suffix, options.get("batch_size"))
    mark = getattr(made, "fingerprint", None)  # of its weights, where it says so: answers are kept under it
    known = {} if mark is None else {"fingerprint": str(mark)}
    return {"kind": "function", "name": name, **asdict(asking), "vcd": None, **known}, lambda: model


class FunctionModel:
    """A plain function (images, questions) → for each pair a margin or a text; it has one way of answering.

    It is given at most `batch_size` pairs at once (else all pictures of a question).
    """

    modes: tuple[str, ...] = ("plain/greedy",)

    def __init__(
        self,
        function: Callable[[list[Image.Image], list[str]], Sequence[Any]],
        suffix: str = "",
        batch_size: int | None = None,
    ) -> None:
        self.function, self.suffix, self.batch_size = function, suffix, batch_size

    def ask(self, images: Sequence[Image.Image], question: str, key: str) -> Replies:
        return {self.modes[0]: self.ask_pairs(images, [question] * len(images))}

    def ask_pairs(self, images: Sequence[Image.Image], questions: Sequence[str]) -> list[Reply]:
        """A reply for each picture with its question, in as few calls as may be."""
        size = self.batch_size or max(1, len(images))
        starts = range(0, len(images), size)
        return [reply for at in starts for reply in self._call(images[at : at + size], questions[at : at + size])]

    def _call(self, images: Sequence[Image.Image], questions: Sequence[str]) -> list[Reply]:
        given = self.function(list(images), [question + self.suffix for question in questions])
        if isinstance(given, str):
            raise ConfigError(
                f"the function answered the text {given[:80]!r}; want a list, an answer for each picture"
            )
        said = list(given)
        if len(said) != len(images):
            raise ConfigError(f"the function must give one answer for each of {len(images)} pictures, got {len(said)}")
        return [_reply(answer) for answer in said]


def _reply(answer: Any) -> Reply:
    """A text as it is; a number is the margin of yes over no."""
    if isinstance(answer, str):
        return Reply(answer)
    if isinstance(answer, bool | np.bool_):
        return Reply("yes" if answer else "no")
    try:
        margin = float(answer)
    except (TypeError, ValueError):
        return Reply(error=f"the function answered {type(answer).__name__}; want a text or a number")
    if math.isnan(margin):
        return Reply(error="the function answered nan; want a text or a number")
    return Reply("yes" if margin > 0 else "no", margin)


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
