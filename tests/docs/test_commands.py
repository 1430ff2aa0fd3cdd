"""Every `onesdaug` command that a page shows is one the program takes, and is run unless a reason says why not."""

from __future__ import annotations

import inspect
import re
import shlex
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from onesdaug.cli import COMMANDS, app, main
from onesdaug.errors import ConfigError
from tests.docs.blocks import PAGES, all_commands, blocks, commands
from tests.docs.conftest import bank, tiny_models

# commands that cannot or need not be run here, by page and a part of them: why
REASONS = {
    ("docs/extend.md", ""): "run by tests/test_extend.py",
    ("docs/vlm.md", "my_vlm.py:answer|report runs/mine"): "run by tests/walks/test_vlm.py",
    ("", "val2014"): "COCO and a vision-language model are needed; tests/vlm runs tiny ones",
    ("", "--ray|s3://"): "a cluster is needed; tests/scale starts one",
    ("", "onesdaug (ui|serve)"): "they serve until stopped; tests/ui and tests/scale/test_serve.py do that",
    ("", r"fewshot train|\bcub\b|cropflip|ONESDAUG_DATA"): "data or minutes are needed; tests/cli has small ones",
    ("", "study run (main|mine)"): "data of a benchmark are needed; tests/studies has small ones",
    ("", "study join"): "the results of both runs are needed; tests/report/test_join.py",
    ("", "sd15"): "7 GB of weights are needed; docs/sd15.md's folders are tiny ones here",
    ("", "--device cuda|--compile"): "a GPU or a compiler is needed; tests/augment has both kinds of tests",
    ("", "onesdaug bench$"): "takes a minute; docs/gpu.md's is run",
    ("", "onesdaug plan"): "a profile of a GPU is needed; tests/scale/test_plan.py",
    ("", "--preset tuned.json"): "what `tune` wrote is needed; tests/tune/test_command.py",
    ("", "tune .*pocket"): "takes ten minutes; docs/data.md's is run",
    ("", "my_generator.py:MyGenerator"): "stands for a file of the reader's",
    ("docs/studies.md", "report results"): "tests/report/test_results_doc.py",
}  # fmt: skip
ALL = all_commands()


def reason(page: str, words: list[str]) -> str | None:
    line = " ".join(words)
    return next((why for (of, part), why in REASONS.items() if of in ("", page) and re.search(part, line)), None)


def parsed(words: list[str]) -> None:
    """Names of commands and options, values and bounds, as the program checks them before it does anything."""
    command: Any = typer.main.get_command(app)
    context, rest = None, words[1:]
    while hasattr(command, "resolve_command"):
        context = command.make_context("onesdaug", list(rest), parent=context)
        name, command, rest = command.resolve_command(context, list(rest))
    context = command.make_context(name, list(rest), parent=context)
    sources = inspect.getclosurevars(inspect.unwrap(command.callback)).nonlocals.get("sources", {})
    for owner, source in sources.items():
        source.build(owner, dict(context.params))


@pytest.mark.parametrize(("page", "words"), ALL, ids=[f"{page}-{n}" for n, (page, _) in enumerate(ALL)])
def test_the_program_takes_it(page: str, words: list[str]) -> None:
    parsed(words)


WRONG = (
    "augment a.jpg -o b --kk 3", "augment a.jpg -o b --k -1", "augment a.jpg", "agument a.jpg -o b",
    "augment a.jpg -o b --solver heun", "fewshot embedd pets", "ui --port 99999",
)  # fmt: skip


@pytest.mark.parametrize("wrong", WRONG)
def test_wrong_commands_are_noticed(wrong: str) -> None:
    with pytest.raises((typer.BadParameter.__base__, ConfigError)):
        parsed(["onesdaug", *shlex.split(wrong)])


def test_every_option_in_prose_exists() -> None:
    """`--name` in the running text is an option of some command; other programs' are named here."""
    others = {"--help", "--install-completion", "--max-", "--precision", "--warm", "--smoke"}
    group: Any = typer.main.get_command(app)
    known = set(others)

    def collect(command: Any) -> None:
        known.update(flag for each in command.params for flag in (*each.opts, *each.secondary_opts))
        for inner in getattr(command, "commands", {}).values():
            collect(inner)

    for name in COMMANDS:
        context = group.make_context("onesdaug", [name], resilient_parsing=True)
        collect(group.resolve_command(context, [name])[1])
    for page, text in PAGES.items():
        for span in re.findall(r"(?<!`)`([^`\n]+)`(?!`)", text):
            if not re.match(r"python|pytest|ssh|npm|pip|hf |[A-Z_]+=", span):
                flags = {flag.replace("_", "-") for flag in re.findall(r"(?<![\w-])--[a-z][\w-]*", span)}
                assert flags <= known, f"{page}: `{span}`"


def test_every_reason_is_needed() -> None:
    told = {why for page, words in ALL if (why := reason(page, words))}
    assert set(REASONS.values()) == told


RUN = sorted({page for page, words in ALL if not reason(page, words)})


@pytest.mark.usefixtures("one_step")
@pytest.mark.parametrize("page", RUN)
def test_commands_work(
    page: str,
    place: Path,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """All of a page's in order, in one folder."""
    bank().save(place / "BANK")
    stand_ins = tiny_models(request) if "/models/" in PAGES[page] else {}
    for words in (words for block in blocks(page, "sh") for words in commands(block)):
        if not reason(page, words):
            monkeypatch.setattr(sys, "argv", [stand_ins.get(word, word) for word in words])
            with pytest.raises(SystemExit) as done:
                main()
            assert not done.value.code, f"{shlex.join(words)}\n{capsys.readouterr()}"


def test_settings_files_can_be_read() -> None:
    for block in (block for page in PAGES for block in blocks(page, "toml", "yaml")):
        found = tomllib.loads(block.code) if block.language == "toml" else yaml.safe_load(block.code)
        assert found, block.page
