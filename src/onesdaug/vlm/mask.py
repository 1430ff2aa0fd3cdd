"""A key that a server repeats is hidden: as it is, and in the forms in which programs repeat one."""

from __future__ import annotations

import base64
import re

_PLACEHOLDER = 8  # characters; a shorter word is one such as "none" or "EMPTY", and hiding it would change answers
_ESCAPES = r"%{0:02x}|\\*x{0:02x}|\\*u00{0:02x}|&\#{0};|&\#x{0:x};"
_SAFE = {"+": "|-", "/": "|_"}  # base64 for URLs
# what may stand between the characters of a key that is quoted, folded or shown token by token
_BETWEEN = "\\\"',\t\n\r \u200b\u200c\u200d\u2060\ufeff"


class Mask:
    """Calling it gives a text without the key.

    In any case of letters, escaped for URLs, JSON or HTML, in pieces, in hexadecimal, in base64 (alone or inside a
    longer text, as in `Basic`), and also where the end is cut off: half a key is a secret too.
    """

    def __init__(self, key: str) -> None:
        self.placeholder = len(key) < _PLACEHOLDER and key.isalpha()
        forms = [key] if len(key) < _PLACEHOLDER else [key, key.encode().hex(), *_in_base64(key.encode())]
        self._pattern = re.compile("|".join(map(_spelled, forms)), re.IGNORECASE) if key else None

    def __call__(self, text: str) -> str:
        return self._pattern.sub("***", text) if self._pattern else text


def _in_base64(data: bytes) -> list[str]:
    """What base64 makes of the data behind 0, 1 or 2 other bytes, less the ends that hang on what stands beside it."""
    coded = [base64.b64encode(bytes(ahead) + data).decode() for ahead in range(3)]
    return [text[(8 * ahead + 5) // 6 : 8 * (ahead + len(data)) // 6] for ahead, text in enumerate(coded)]


def _spelled(form: str) -> str:
    """A pattern for the form; a long one may lack up to half of it at the end."""
    # no character of the form itself, so that there is one way to match and time stays linear
    allowed = "".join(re.escape(sign) for sign in _BETWEEN if sign not in form)
    between = rf"(?:\\+[nrt]|[{allowed}]){{0,4}}+"
    signs = [f"(?:{re.escape(sign)}|{_ESCAPES.format(ord(sign))}{_SAFE.get(sign, '')})" for sign in form]
    needed = len(signs) if len(signs) < 16 else (len(signs) + 1) // 2
    rest = (f"(?:{between}{sign})?+" for sign in signs[needed:])
    return between.join(signs[:needed]) + "".join(rest)
