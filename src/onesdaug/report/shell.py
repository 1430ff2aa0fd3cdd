"""What every page shares: one HTML file with its style inside, escaping, lists of facts and of warnings."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from html import escape
from importlib.resources import files
from string import Template


def document(title: str, body: str) -> str:
    """A whole page that fetches nothing; `body` is HTML."""
    folder = files("onesdaug.report")
    shell = Template((folder / "shell.html").read_text(encoding="utf-8"))
    style = (folder / "style.css").read_text(encoding="utf-8")
    return shell.substitute(title=text(title), style=style, body=body)


def text(value: object) -> str:
    """Escaped; file names may hold bytes that are no characters."""
    return escape(str(value).encode("utf-8", "replace").decode())


def prose(value: object) -> str:
    """Escaped, with `code` between backticks set as such."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", text(value))


def facts(pairs: Iterable[tuple[str, object]]) -> str:
    """Names and values as a list."""
    return "<dl>" + "".join(f"<dt>{text(name)}</dt><dd>{text(value)}</dd>" for name, value in pairs) + "</dl>"


def warnings(title: str, lines: Sequence[str]) -> str:
    """What is not on the page and why; nothing where nothing is missing."""
    if not lines:
        return ""
    items = "".join(f"<li>{prose(line)}</li>" for line in lines)
    return f'<div class="note warn">{text(title)}<ul>{items}</ul></div>'
