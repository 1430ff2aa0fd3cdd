"""docs/extend.md: every example is short, and its commands do what they say."""

from __future__ import annotations

import json
import re
import shlex
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from onesdaug.augment.presets import PRESETS
from onesdaug.cli import main
from onesdaug.common.registry import BACKBONES, GENERATORS, HEADS, SOLVERS, VIEWS

ROOT = Path(__file__).parent.parent
TEXT = (ROOT / "docs" / "extend.md").read_text(encoding="utf-8")
LONGEST = 40
SECTIONS = {part.partition("\n")[0]: part for part in re.split(r"^## ", TEXT, flags=re.MULTILINE)[1:]}
RUN = [name for name, part in SECTIONS.items() if "```sh" in part]


def blocks(language: str, text: str = TEXT) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder one stands in: the files of the page, photographs, a small data set and questions."""
    here = tmp_path_factory.mktemp("extend")
    for code in blocks("python") + blocks("toml"):
        if named := re.match(r"# (\w+\.(?:py|toml))\n", code):
            (here / named[1]).write_text(code)
    rng = np.random.default_rng(0)
    (here / "photos").mkdir()
    for c in range(5):
        colour = rng.integers(0, 200, 3)
        folder = here / "pets" / "test" / f"class{c}"
        folder.mkdir(parents=True)
        for i in range(17):
            pixels = np.clip(colour + rng.integers(-60, 60, (32, 32, 3)), 0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(folder / f"{i}.png")
        Image.fromarray(pixels).save(here / "photos" / f"{c}.png")
    asked = [{"question_id": c, "image": f"{c}.png", "text": "Is it red?", "label": "yes"} for c in range(5)]
    (here / "questions.json").write_text("\n".join(json.dumps(row) for row in asked))
    return here


def test_the_page_has_the_seven_examples_none_longer_than_forty_lines() -> None:
    wanted = (
        "A generator", "A solver", "A backbone", "A head", "A source of views", "A vision-language model", "A study",
    )  # fmt: skip
    assert tuple(RUN) == wanted
    for code in blocks("python") + blocks("toml") + blocks("sh"):
        assert code.count("\n") <= LONGEST, code


@pytest.mark.parametrize("section", RUN)
def test_the_commands_work(
    section: str, place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(place)
    for line in blocks("sh", SECTIONS[section])[0].splitlines():
        monkeypatch.setattr(sys, "argv", shlex.split(line))
        assert sys.argv[0] == "onesdaug"
        with pytest.raises(SystemExit) as done:
            main()
        assert not done.value.code, f"{line}\n{capsys.readouterr()}"


def test_the_docs_name_everything_that_is_registered() -> None:
    text = "\n".join(page.read_text(encoding="utf-8") for page in [*(ROOT / "docs").glob("*.md"), ROOT / "README.md"])
    for kind in (GENERATORS, SOLVERS, HEADS, BACKBONES, VIEWS, PRESETS):
        for name in kind:
            assert re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", text), f"no page names the {kind.kind} {name}"
