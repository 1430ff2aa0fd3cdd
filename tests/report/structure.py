"""Reads a page as a browser would: tags in order, what would be fetched, the rows of its tables."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from xml.etree import ElementTree

VOID = {"meta", "link", "img", "br", "wbr", "line", "path", "circle", "rect"}


class Structure(HTMLParser):
    """Fails on tags that do not close in order; collects what would be fetched and the text cells."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: set[str] = set()
        self.fetched: list[str] = []
        self.ids: list[str] = []
        self.rows: list[list[str]] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.add(tag)
        self.fetched += [value or "" for name, value in attrs if name in ("src", "href", "action", "data", "srcset")]
        self.ids += [value or "" for name, value in attrs if name == "id"]
        assert not any(name.startswith("on") for name, _ in attrs)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not {"style", "title"} & set(self.open):
            self.text += data
        if {"td", "th"} & set(self.open):
            self.rows[-1][-1] += data


def parse(text: str) -> Structure:
    structure = Structure()
    structure.feed(text)
    structure.close()
    assert structure.open == []
    return structure


def titles(svg: str) -> list[str]:
    """What the shapes of a plot say under the pointer."""
    return [title.text or "" for title in ElementTree.fromstring(svg).iter() if title.tag.endswith("title")]


def top_left(svg: str, told: str) -> tuple[float, float]:
    """Where the last shape that says so begins: intervals come before their dots."""
    paths = [path for path in ElementTree.fromstring(svg).iter("path") if path.findtext("title") == told]
    x, y = zip(*re.findall(r"(-?[\d.]+) (-?[\d.]+)", paths[-1].get("d") or ""), strict=True)
    return min(map(float, x)), min(map(float, y))
