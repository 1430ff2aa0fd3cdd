"""A plain Python function as a vision-language model: (images, questions) → for each pair a margin or a text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np

from onesdaug.common.registry import VLMS
from onesdaug.errors import ConfigError
from onesdaug.vlm.model import Model, Replies, Reply
from onesdaug.vlm.settings import Asking

if TYPE_CHECKING:
    from PIL import Image


class FunctionModel:
    """Asks a function about all pictures of a question at once; it has one way of answering."""

    modes: tuple[str, ...] = ("plain/greedy",)

    def __init__(self, function: Callable[[list[Image.Image], list[str]], Sequence[Any]], suffix: str = "") -> None:
        self.function, self.suffix = function, suffix

    def ask(self, images: Sequence[Image.Image], question: str, key: str) -> Replies:
        said = list(self.function(list(images), [question + self.suffix] * len(images)))
        if len(said) != len(images):
            raise ConfigError(f"the function must give one answer for each of {len(images)} pictures, got {len(said)}")
        return {self.modes[0]: [_reply(answer) for answer in said]}


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
    return Reply("yes" if margin > 0 else "no", margin)


def find_own(name: str, asking: Asking, **options: Any) -> tuple[dict[str, Any], Callable[[], Model]]:
    """A registered or a user's own function or `Model`; what decides its answers, and how to get it."""
    if idle := sorted(options.keys() - {"device"}):
        raise ConfigError(f"{name} is a Python function: it takes no {', '.join(idle)}; leave that out")
    found = VLMS.get(name)
    made = found() if isinstance(found, type) else found
    if not isinstance(made, Model) and not callable(made):
        raise ConfigError(f"{name} is {type(made).__name__}; want a function (images, questions) → answers or a Model")
    model: Model = made if isinstance(made, Model) else FunctionModel(made, asking.suffix)
    return {"kind": "function", "name": name, **asdict(asking), "vcd": None}, lambda: model
