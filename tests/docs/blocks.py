"""What the pages show as code: blocks with their language, and the `onesdaug` commands in them."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_FILES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
PAGES = {file.relative_to(ROOT).as_posix(): file.read_text(encoding="utf-8") for file in _FILES}
_FENCED = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_INDENTED = re.compile(r"(?<=\n\n)(?:    .*\n|\n(?=    ))+")


@dataclass(frozen=True)
class Block:
    """`language` is what the fence says; of an indented block, what it looks like."""

    page: str
    language: str
    code: str


def blocks(page: str, *languages: str) -> list[Block]:
    """In order; all of them, or those in these languages."""
    text = PAGES[page]
    found = [(match.start(), match[1], match[2]) for match in _FENCED.finditer(text)]
    rest = _FENCED.sub(lambda match: "x" * len(match[0]), text)  # of the same length: places stay
    for match in _INDENTED.finditer(rest):
        code = "".join(line.removeprefix("    ") for line in match[0].splitlines(keepends=True))
        found.append((match.start(), _looks_like(code), code))
    made = [Block(page, language, code) for _, language, code in sorted(found)]
    return [block for block in made if not languages or block.language in languages]


def _looks_like(code: str) -> str:
    if re.match(r"(onesdaug|pip|python|make|export|\w+=\S)", code):
        return "sh"
    return "python" if re.match(r"(from|import) ", code) else "text"


def commands(block: Block) -> list[list[str]]:
    """The `onesdaug` commands of a shell's block as words, without comments and with the block's own variables."""
    variables: dict[str, str] = {}
    found = []
    for line in re.sub(r"\\\n\s*", "", block.code).splitlines():
        line = re.sub(r"\$(\w+)", lambda match: variables.get(match[1], match[0]), line)
        words = shlex.split(line, comments=True)
        while words and (set_here := re.match(r"(\w+)=(.*)", words[0])):
            variables[set_here[1]] = set_here[2]
            words = words[1:]
        if words[:1] == ["onesdaug"]:
            found.append(words)
    return found


def all_commands() -> list[tuple[str, list[str]]]:
    return [(page, words) for page in PAGES for block in blocks(page, "sh") for words in commands(block)]
