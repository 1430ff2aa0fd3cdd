"""The bodies of requests, JSON or multipart, read in memory and within the limits: no upload touches a disk."""

from __future__ import annotations

import base64
import binascii
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from onesdaug.data.images import opened
from onesdaug.errors import ImageError, OnesdaugError
from onesdaug.scale.serve.settings import Limits

if TYPE_CHECKING:
    from fastapi import Request

_SEED = 2**63  # numbers that every client can write
MOST_FIELDS = 64


class Refused(OnesdaugError):
    """A request that is answered with a status and a reason."""

    def __init__(self, status: int, reason: str, retry: float | None = None) -> None:
        super().__init__(reason)
        self.status, self.retry = status, retry


@dataclass
class Body:
    """The fields of a request, and its files by the name of their field."""

    fields: dict[str, Any] = field(default_factory=dict)
    files: dict[str, list[bytes]] = field(default_factory=dict)

    def number(self, name: str, default: int, least: int, most: int) -> int:
        """A whole number within bounds; a form's are words."""
        value = self.fields.get(name, default)
        if isinstance(value, str):
            try:
                value = int(value)
            except ValueError:
                raise Refused(422, f"{name} must be a whole number") from None
        if not isinstance(value, int) or isinstance(value, bool):
            raise Refused(422, f"{name} must be a whole number")
        if not least <= value <= most:
            raise Refused(422, f"{name} must lie between {least} and {most}")
        return value

    def share(self, name: str, default: float) -> float:
        """A number between 0 and 1."""
        value = self.fields.get(name, default)
        try:
            found = float(value) if isinstance(value, int | float | str) and not isinstance(value, bool) else -1.0
        except (ValueError, OverflowError):
            found = -1.0
        if not 0 <= found <= 1:
            raise Refused(422, f"{name} must be a number between 0 and 1")
        return found

    def seed(self) -> int:
        return self.number("seed", 0, -_SEED, _SEED - 1)

    def image(self, limits: Limits) -> bytes:
        """The only image of a request."""
        given = self.files.get("image") or ([self.fields["image"]] if "image" in self.fields else [])
        if len(given) != 1:
            raise Refused(422, "give one image, as the file or the base64 text `image`")
        return checked(given[0], limits)

    def classes(self, limits: Limits) -> dict[str, list[bytes]]:
        """Label → images: `classes` of a JSON object, or the files of a form, each in a field called as its class."""
        given: Any = self.files or self.fields.get("classes")
        if not isinstance(given, dict) or len(given) < 2:
            raise Refused(422, "give `classes`: at least two labels, each with a list of images")
        found: dict[str, list[bytes]] = {}
        for label, images in given.items():
            if not label or len(label) > 200:
                raise Refused(422, "a label has between 1 and 200 characters")
            if not isinstance(images, list) or not images:
                raise Refused(422, f"class {label!r} needs a list of images")
            if sum(map(len, found.values())) + len(images) > limits.max_images:
                raise Refused(413, f"a support set has at most {limits.max_images} images")
            found[label] = [checked(image, limits) for image in images]
        if len({len(images) for images in found.values()}) > 1:
            raise Refused(422, "all classes need the same number of images")
        return found


def checked(image: Any, limits: Limits) -> bytes:
    """The bytes of an image file, of which the header says that it is one and not too large."""
    data = image if isinstance(image, bytes) else _decoded(image)
    try:
        with opened(data, "the image") as header:
            pixels = header.width * header.height
    except ImageError as error:
        raise Refused(422, str(error)) from None
    if pixels > limits.max_pixels:
        raise Refused(413, f"the image has {pixels:,} pixels; at most {limits.max_pixels:,} are taken")
    return data


def _decoded(text: Any) -> bytes:
    if not isinstance(text, str):
        raise Refused(422, "an image in JSON is the base64 text of its file")
    try:
        return base64.b64decode(text.partition(",")[2] if text.startswith("data:") else text, validate=True)
    except (binascii.Error, ValueError):
        raise Refused(422, "the image is no base64 text") from None


async def read_body(request: Request, limits: Limits) -> Body:
    """The body, whichever form it has."""
    declared = request.headers.get("content-length", "")
    if declared.isdigit() and int(declared) > limits.max_body:
        raise _too_large(limits)
    data = bytearray()
    async for chunk in request.stream():
        data += chunk
        if len(data) > limits.max_body:
            raise _too_large(limits)
    kind, _, options = request.headers.get("content-type", "").partition(";")
    kind = kind.strip().lower()
    if kind == "multipart/form-data":
        return _form(bytes(data), f"{kind};{options}")
    if kind in ("application/json", ""):
        return _json(bytes(data))
    raise Refused(415, "send multipart/form-data or application/json")


def _too_large(limits: Limits) -> Refused:
    return Refused(413, f"a request has at most {limits.max_body:,} bytes")


def _json(data: bytes) -> Body:
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        raise Refused(400, "the body is no JSON") from None
    if not isinstance(found, dict):
        raise Refused(422, "the body must be a JSON object")
    return Body(found)


def _form(data: bytes, content_type: str) -> Body:
    from python_multipart.exceptions import FormParserError
    from python_multipart.multipart import MultipartParser, parse_options_header

    boundary = parse_options_header(content_type)[1].get(b"boundary", b"")
    form = _Form()
    try:
        parser = MultipartParser(boundary, form.callbacks())  # type: ignore[arg-type]
        parser.write(data)
        parser.finalize()
    except Refused:
        raise
    except (FormParserError, ValueError, TypeError, KeyError, IndexError):
        raise Refused(400, "the body is no multipart form") from None
    if not form.ended:
        raise Refused(400, "the multipart form is cut off")
    return form.body


class _Form:
    """Collects the parts of a form as its parser finds them."""

    def __init__(self) -> None:
        self.body, self.ended, self.count = Body(), False, 0
        self.name = self.value = b""
        self.headers: dict[bytes, bytes] = {}
        self.data = bytearray()

    def callbacks(self) -> dict[str, Any]:
        return {
            "on_part_begin": self.begin,
            "on_header_field": lambda data, start, end: self._add("name", data[start:end]),
            "on_header_value": lambda data, start, end: self._add("value", data[start:end]),
            "on_header_end": self.header,
            "on_part_data": lambda data, start, end: self.data.extend(data[start:end]),
            "on_part_end": self.end,
            "on_end": lambda: setattr(self, "ended", True),
        }

    def _add(self, what: str, data: bytes) -> None:
        setattr(self, what, getattr(self, what) + data)

    def begin(self) -> None:
        self.headers, self.data, self.count = {}, bytearray(), self.count + 1
        if self.count > 10_000:
            raise Refused(413, "the form has too many parts")

    def header(self) -> None:
        self.headers[self.name.lower()] = self.value
        self.name = self.value = b""

    def end(self) -> None:
        from python_multipart.multipart import parse_options_header

        options = parse_options_header(self.headers.get(b"content-disposition", b""))[1]
        name = options.get(b"name", b"").decode("utf-8", "replace")
        if not name:
            raise Refused(422, "a part of the form has no name")
        if b"filename" in options:
            self.body.files.setdefault(name, []).append(bytes(self.data))
        else:
            if len(self.body.fields) >= MOST_FIELDS:
                raise Refused(413, "the form has too many fields")
            self.body.fields[name] = self.data.decode("utf-8", "replace")
