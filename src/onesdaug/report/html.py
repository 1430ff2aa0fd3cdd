"""From templates to one HTML file with its style inside; whatever comes from a result is escaped."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from onesdaug.errors import ConfigError, how_to_install
from onesdaug.report.parts import on_page

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup


def render(template: str, **values: Any) -> str:
    """A whole page that fetches nothing."""
    style = (files("onesdaug.report") / "style.css").read_text(encoding="utf-8")
    return _environment().get_template(template).render(style=_safe(style), **values)


@cache
def _environment() -> Environment:
    if find_spec("jinja2") is None:
        raise ConfigError(f"pages need Jinja2: {how_to_install('report')}")
    from jinja2 import Environment, PackageLoader, StrictUndefined

    made = Environment(
        loader=PackageLoader("onesdaug.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_printable,
    )
    made.filters |= {"prose": _prose, "breakable": _breakable, "kind": _kind, "on_page": on_page}
    return made


def _kind(part: object) -> str:
    return type(part).__name__


def _printable(value: Any) -> Any:
    """File names may hold bytes that are no characters."""
    return value.encode("utf-8", "replace").decode() if type(value) is str else value


def _prose(value: str) -> Markup:
    """Escaped, with `code` between backticks set as such."""
    from markupsafe import escape

    return _safe(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(_printable(value)))))


def _breakable(name: str) -> Markup:
    """Where a narrow column may break its heading."""
    from markupsafe import escape

    shown = str(escape(_printable(name)))
    return _safe(shown.replace("ImageNet", "<wbr>ImageNet").replace("complexity", "com&shy;plexity"))


def _safe(html: str) -> Markup:
    from markupsafe import Markup

    return Markup(html)
