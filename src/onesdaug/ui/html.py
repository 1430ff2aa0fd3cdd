"""Pieces of the page as HTML: pictures with captions, a bar, messages, tables. Whatever visitors give is escaped."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from html import escape
from importlib.resources import files
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from PIL import Image


def style() -> str:
    """The page's style: the colours of the reports, light and dark, and what is the page's own."""
    report = (files("onesdaug.report") / "style.css").read_text(encoding="utf-8")
    light, dark = re.findall(r":root \{(.*?)\}", report, re.DOTALL)[:2]
    own = (files("onesdaug.ui") / "page.css").read_text(encoding="utf-8")
    return f".gradio-container {{{light}}}\n.dark .gradio-container {{{dark}}}\n{own}"


def bar(share: float | None, words: str) -> str:
    """How far the work is; without a share it moves to and fro."""
    known = "" if share is None else f' style="width: {100 * min(1.0, share):.0f}%"'
    value = "" if share is None else f' aria-valuenow="{100 * min(1.0, share):.0f}"'
    moving = " moving" if share is None else ""
    return (
        f'<div class="work"><div class="track" role="progressbar" aria-valuemin="0" aria-valuemax="100"{value}>'
        f'<div class="done{moving}"{known}></div></div><p>{escape(words)}</p></div>'
    )


def message(text: str, kind: str = "problem") -> str:
    """A sentence for the visitor: a problem, or just to know."""
    lines = "<br>".join(escape(line) for line in text.splitlines())
    return f'<div class="message {kind}" role="{"alert" if kind == "problem" else "status"}">{lines}</div>'


def welcome(title: str, text: str) -> str:
    """What a tab is for, where its results will be."""
    return f'<div class="welcome"><h2>{escape(title)}</h2><p>{escape(text)}</p></div>'


def figure(image: Image.Image | None, caption: str = "", kind: str = "", like: Image.Image | None = None) -> str:
    """A small picture; None leaves an empty place, of the shape of the picture that it is `like`."""
    from onesdaug.report.pictures import thumbnail_uri

    below = f"<figcaption>{escape(caption)}</figcaption>" if caption else ""
    if image is None:
        shape = f' style="aspect-ratio: {like.width} / {like.height}"' if like is not None else ""
        return f'<figure class="{kind} empty"><div{shape}></div>{below}</figure>'
    return f'<figure class="{kind}"><img src="{thumbnail_uri(image)}" alt="{escape(caption)}">{below}</figure>'


def strip(figures: Iterable[str], kind: str = "") -> str:
    return f'<div class="strip {kind}">{"".join(figures)}</div>'


def card(title: str, body: str, note: str = "") -> str:
    told = f'<p class="quiet">{escape(note)}</p>' if note else ""
    return f'<section class="card"><h3>{escape(title)}</h3>{told}{body}</section>'


def plot(title: str, svg: str, note: str = "") -> str:
    """A plot of the reports."""
    return card(title, svg, note) if svg else ""


def table(head: Sequence[str], rows: Sequence[tuple[str, Sequence[str]]], marked: Sequence[int | None] = ()) -> str:
    """Numbers under their names; of each row the entry `marked` stands out."""
    columns = "".join(f"<th>{escape(name)}</th>" for name in head)
    lines = []
    for place, (name, values) in enumerate(rows):
        best = marked[place] if place < len(marked) else None
        cells = "".join(
            f"<td{' class=best' if number == best else ''}>{escape(value)}</td>" for number, value in enumerate(values)
        )
        lines.append(f"<tr><th>{escape(name)}</th>{cells}</tr>")
    return f'<div class="scroll"><table><thead><tr>{columns}</tr></thead><tbody>{"".join(lines)}</tbody></table></div>'


def shares(labels: Sequence[str], values: Sequence[float], title: str) -> str:
    """Probabilities as bars; the largest stands out."""
    best = max(values)
    rows = "".join(
        f'<div class="share{" best" if value == best else ""}"><span>{escape(label)}</span>'
        f'<span class="rail"><i style="width: {100 * value:.1f}%"></i></span><b>{100 * value:.0f} %</b></div>'
        for label, value in zip(labels, values, strict=True)
    )
    return f'<div class="shares"><h4>{escape(title)}</h4>{rows}</div>'
