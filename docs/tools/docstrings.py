"""How the site reads docstrings: lines `name: what it is` are a list, and a field's description is its docstring."""

from __future__ import annotations

import ast
import re
from contextlib import suppress
from typing import Any

from griffe import Attribute, Docstring, ExprKeyword, Extension, Object

LINE = re.compile(r"^([a-z]\w*(?:, [a-z]\w*)*): (?=\S)")


def as_list(text: str) -> str:
    """Lines `name: …` with their indented continuations become items; everything else stays."""
    lines: list[str] = []
    inside = False
    for line in text.splitlines():
        item = LINE.match(line)
        if item and not inside:
            lines.append("")
        if item:
            names = ", ".join(f"`{name}`" for name in item[1].split(", "))
            line = f"- {names}: {line[item.end() :]}"
        inside = bool(item) or (inside and line.startswith(" "))
        lines.append(line)
    return "\n".join(lines)


class Arguments(Extension):
    def on_attribute(self, *, attr: Attribute, **_: Any) -> None:
        given = getattr(attr.value, "arguments", [])
        for argument in (each for each in given if isinstance(each, ExprKeyword) and each.name == "description"):
            with suppress(ValueError):  # an f-string is not known before it is run
                attr.docstring = Docstring(ast.literal_eval(str(argument.value)), parent=attr)
            if not isinstance(given[0], ExprKeyword):
                attr.value = given[0]  # the default

    def on_object(self, *, obj: Object, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = as_list(obj.docstring.value)
