"""Every relative link of README, CONTRIBUTING, CHANGELOG and the pages leads to a file, its anchor to a heading."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.blocks import PAGES, ROOT

TEXTS = {**PAGES, "CHANGELOG.md": (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")}
_CODE = re.compile(r"^```.*?^```$|`[^`\n]+`(?!\])", re.MULTILINE | re.DOTALL)


def links(text: str) -> list[str]:
    """Where links and pictures outside of code lead to, other than to the web."""
    found = re.findall(r"\]\(([^)\s]+)\)", _CODE.sub("", text))
    return [target for target in found if not re.match(r"https?:", target)]


def anchors(text: str) -> set[str]:
    """Headings as GitHub and the site number them, and the objects that the site describes."""
    prose = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.+)$", prose, re.MULTILINE)
    slugs = {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}
    return slugs | set(re.findall(r"^::: (\S+)$", text, re.MULTILINE))


def broken(page: str, text: str) -> list[str]:
    bad = []
    for target in links(text):
        path, _, anchor = target.partition("#")
        file = (ROOT / page).parent / path if path else ROOT / page
        if not file.exists() or (anchor and anchor not in anchors(file.read_text(encoding="utf-8"))):
            bad.append(target)
    return bad


@pytest.mark.parametrize("page", TEXTS)
def test_links_lead_somewhere(page: str) -> None:
    assert broken(page, TEXTS[page]) == []


def test_broken_links_are_noticed() -> None:
    assert broken("docs/x.md", "[a](gone.md) [b](tune.md#gone) [c](tune.md#what-is-searched) `[d](gone.md)`") == [
        "gone.md",
        "tune.md#gone",
    ]


def test_files_that_pages_name_exist() -> None:
    """`docs/x.md`, `examples/x.py`, `tests/…` and `benchmarks/…` in running text."""
    for page, text in TEXTS.items():
        for name in re.findall(r"`(?:python )?((?:docs|examples|tests|benchmarks|packages|src)/[\w./-]+)", text):
            assert (ROOT / name).exists(), f"{page}: {name}"


def test_pictures_are_small_and_used() -> None:
    shown = " ".join(TEXTS.values())
    for file in (ROOT / "docs").iterdir():
        if file.suffix in (".png", ".svg", ".webp"):
            assert file.name in shown, f"no page shows {file.name}"
    assert Path(ROOT / "docs" / "pipeline.svg").stat().st_size < 200_000
