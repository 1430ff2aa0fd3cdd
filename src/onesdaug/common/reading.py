"""Files that anyone may have edited: checked against a model, and what is wrong is one line that names the file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from onesdaug.common.files import check_plain_file
from onesdaug.errors import DataError

if TYPE_CHECKING:
    from torch import Tensor

T = TypeVar("T")


def read_json(path: Path, model: type[T], what: str, strict: bool = True) -> T:
    """The JSON in a file as a `model` (a pydantic model, a dataclass, a type); `what` the file should be.

    Strict: "7" is no number. A model that looks at the JSON before its fields are read cannot be.
    """
    return parse_json(read_bytes(path), model, str(path), what, strict)


def parse_json(text: str | bytes, model: type[T], name: str, what: str, strict: bool = True) -> T:
    """The same for text from a file called `name`."""
    try:
        return TypeAdapter(model).validate_json(text, strict=strict)
    except ValidationError as error:
        raise DataError(f"{name} is not {what} ({_first_problem(error)})") from error


def _first_problem(error: ValidationError) -> str:
    """`network.size: Input should be greater than 0`."""
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    place = ".".join(str(part) for part in first["loc"])
    return f"{place}: {first['msg']}" if place else first["msg"]


def read_bytes(path: Path) -> bytes:
    """All of a plain file; DataError where that cannot be."""
    check_plain_file(path)
    try:
        return path.read_bytes()
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}") from error


def read_tensors(path: Path, advice: str = "") -> dict[str, Tensor]:
    """All tensors of a safetensors file."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    check_plain_file(path)
    try:
        found: dict[str, Any] = load_file(path)
    except (SafetensorError, OSError, ValueError, KeyError) as error:  # a type that this torch has not: KeyError
        raise DataError(f"{path} is damaged or no safetensors file ({error}){advice and f'; {advice}'}") from error
    return found
