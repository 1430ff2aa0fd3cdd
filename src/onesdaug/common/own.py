"""Code of the user's own: how it is made and called, how its errors read, and whether it has changed."""

from __future__ import annotations

import functools
import inspect
import sys
import sysconfig
import traceback
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from onesdaug.errors import ConfigError, OnesdaugError

_PACKAGE = str(Path(__file__).parent.parent)
_LIBRARIES = (_PACKAGE, sysconfig.get_paths()["stdlib"], sysconfig.get_paths()["purelib"], "<")


@contextmanager
def calling(what: str, thing: Any = None, told: str = " failed:\n  ") -> Iterator[None]:
    """What someone's own code throws, in two lines: what was called, and the error with its place in their file.

    `thing` is what is called, where that may as well be ours: our own errors keep their traceback. The command line
    shows everything with ONESDAUG_DEBUG=1.
    """
    try:
        yield
    except OnesdaugError:
        raise
    except Exception as error:
        if thing is not None and not is_own(thing):
            raise
        raise ConfigError(f"{what}{told}{reason(error)}{_place(error)}") from error


def made(thing: Any, what: str) -> Any:
    """A class or a function without arguments is called for what it makes; anything else is the thing itself."""
    factory = inspect.isroutine(thing) or isinstance(thing, functools.partial)
    if not isinstance(thing, type) and not (factory and required(thing) == 0):
        return thing
    with calling(f"{what}: calling it without arguments", thing):
        return thing()


def required(function: Any) -> int | None:
    """How many arguments have to be given; None where Python does not know."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return None
    plain = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    named = inspect.Parameter.KEYWORD_ONLY
    return sum(p.kind in (*plain, named) and p.default is inspect.Parameter.empty for p in parameters)


def is_own(thing: Any) -> bool:
    """Whether the code behind a function, a class or an instance lies outside this package."""
    return module_of(thing).partition(".")[0] != "onesdaug"


def code_mark(thing: Any) -> str:
    """Changes with the file that someone's own code is in, for the keys of what is stored; "" for code of ours."""
    if not is_own(thing):
        return ""
    file = getattr(sys.modules.get(module_of(thing)), "__file__", None)
    return f"{zlib.crc32(Path(file).read_bytes()):08x}" if file and Path(file).is_file() else "no-file"


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """The nearest known word as a question, for messages; "" where none is near."""
    from difflib import get_close_matches

    near = get_close_matches(word, list(known), n=1)
    return f": did you mean {near[0]!r}?" if near else ""


def reason(error: Exception) -> str:
    """An error in one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"


def module_of(thing: Any) -> str:
    thing = thing.func if isinstance(thing, functools.partial) else thing
    owner = thing if isinstance(thing, type) or inspect.isroutine(thing) else type(thing)
    return str(getattr(owner, "__module__", None) or "builtins")


def _place(error: Exception) -> str:
    """(file:line) of the last step that was in someone's own file."""
    frames = traceback.extract_tb(error.__traceback__)
    theirs = [frame for frame in frames if not frame.filename.startswith(_LIBRARIES)]
    if isinstance(error, SyntaxError) and error.filename:
        return f" ({error.filename}:{error.lineno})"
    return f" ({theirs[-1].filename}:{theirs[-1].lineno})" if theirs else ""
