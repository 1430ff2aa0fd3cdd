"""Options made from models: a field is a flag; errors name flags; old spellings work; help names what there is."""

from __future__ import annotations

import importlib
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import pytest
import typer
from pydantic import BaseModel, Field
from typer.testing import CliRunner, Result

from onesdaug import cli
from onesdaug.augment.config import AugmentConfig
from onesdaug.augment.presets import PRESETS, PURPOSES, purpose
from onesdaug.augment.shape import ShapeTweak
from onesdaug.cli.augment import CONFIG, TWEAK
from onesdaug.cli.options import From, options, spelling
from onesdaug.common.registry import BACKBONES, GENERATORS, HEADS, SOLVERS, VIEWS
from onesdaug.errors import ConfigError


class Model(BaseModel):
    steps: int = Field(20, ge=1, le=1000, description="Steps of a full run")
    solver: Literal["ddim", "dpm++"] = Field("ddim", description="How steps are made")
    mode: Literal["self", "class"] | None = Field(None, description="self or class")
    span: tuple[float, float] = (0.0, 1.0)
    flip: bool = True
    quick: bool = False


@dataclass(frozen=True)
class Plain:
    """As recipes are: no pydantic in them."""

    shot: Annotated[tuple[int, ...], "Images per class"] = (1,)
    files: tuple[Path, ...] = ()
    way: int = 5

    def __post_init__(self) -> None:
        if self.way < max(self.shot):
            raise ConfigError(f"way {self.way} is less than {max(self.shot)}")


def run(source: From, *arguments: str) -> tuple[Result, Any]:
    app, got = typer.Typer(), []

    def command(*, made: Any, name: str = "x") -> None:
        got.append(made)

    command.__annotations__["made"] = Annotated[Any, source]
    app.command(context_settings=spelling(old_steps="steps"))(options(command))
    result = CliRunner().invoke(app, arguments)
    return result, got[0] if got else None


def test_the_command_gets_a_validated_model() -> None:
    assert run(From(Model))[1] == Model()
    flags = ["--steps", "3", "--solver", "dpm++", "--span", "0.5", "1", "--no-flip", "--quick", "--mode", "self"]
    made = run(From(Model), *flags)[1]
    assert made == Model(steps=3, solver="dpm++", span=(0.5, 1.0), flip=False, quick=True, mode="self")
    assert run(From(Model, {"steps": "count"}, prefix="m-"), "--count", "3", "--m-mode", "class")[1].steps == 3


def test_of_a_partial_model_only_what_was_given() -> None:
    assert run(From(Model, partial=True))[1] == {}
    assert run(From(Model, partial=True), "--no-flip", "--steps", "20")[1] == {"steps": 20, "flip": False}
    # way and shot together are for the command to check, once it knows both
    assert run(From(Plain, partial=True), "--shot", "9")[1] == {"shot": (9,)}


def test_dataclasses_are_models_too() -> None:
    assert run(From(Plain), "--shot", "1,5", "--shot", "3", "--files", "a,b")[1] == Plain((1, 5, 3), (Path("a,b"),))
    assert str(run(From(Plain), "--way", "0")[0].exception) == "way 0 is less than 1"
    assert "--shot: must be a valid integer" in str(run(From(Plain), "--shot", "1,x")[0].exception)


def test_every_wrong_value_is_named_with_its_flag_and_what_is_allowed() -> None:
    result, _ = run(From(Model, {"steps": "count"}), "--count", "0", "--solver", "euler", "--mode", "both")
    assert isinstance(result.exception, ConfigError)
    assert str(result.exception).splitlines() == [
        "--count: must be greater than or equal to 1, got 0",
        "--solver: must be ddim or dpm++, got 'euler'",
        "--mode: must be self or class, got 'both'",
    ]


def test_help_says_what_the_model_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "150")
    shown = run(From(Model, panel="Mine"), "--help")[0].output
    assert "Steps of a full run (1 to 1000). [default: 20]" in shown and "─ Mine ─" in shown
    assert "How steps are made (ddim, dpm++)." in shown and "self or class." in shown
    assert "--no-flip" in shown and "--no-quick" not in shown


def test_old_spellings_and_underscores() -> None:
    assert run(From(Model), "--old-steps", "4")[1].steps == run(From(Model), "--old_steps", "4")[1].steps == 4
    assert "old-steps" not in run(From(Model), "--help")[0].output


def test_a_setting_of_the_operator_is_a_flag_by_itself() -> None:
    assert set(CONFIG.fields) == set(AugmentConfig.model_fields) - {"shape"}
    assert set(TWEAK.fields) == set(ShapeTweak.model_fields)

    class Larger(AugmentConfig):
        churn: float = Field(0.0, ge=0, description="New noise at every step")

    assert run(From(Larger, without=("shape",), partial=True), "--churn", "0.5")[1] == {"churn": 0.5}


def help_of(*command: str) -> str:
    result = CliRunner().invoke(cli.app, [*command, "--help"], env={"COLUMNS": "200"})
    assert result.exit_code == 0, result.output
    return result.output


def test_the_list_of_commands_says_what_they_say() -> None:
    for name, line in cli.COMMANDS.items():
        assert line in help_of(name)
        assert importlib.import_module(f"onesdaug.cli.{name}").app is not None


def test_help_names_everything_there_is() -> None:
    from onesdaug.cli.generator import RecipeName
    from onesdaug.generators.pocket.recipe import RECIPES
    from onesdaug.generators.pocket.smoke import STAGED

    for command in (["augment"], ["bench"], ["fewshot", "embed"]):
        shown = " ".join(re.sub("[│|]", " ", help_of(*command)).split())
        assert set(PURPOSES) >= {*PRESETS} and all(purpose(name) in shown for name in PRESETS), command
    assert set(get_args(RecipeName)) == {*RECIPES, *STAGED, "smoke"}
    tables = {
        ("augment",): (GENERATORS, SOLVERS), ("bench",): (GENERATORS,), ("study", "run"): (GENERATORS,),
        ("pope",): (GENERATORS, PRESETS), ("fewshot", "embed"): (BACKBONES, VIEWS), ("fewshot", "evaluate"): (HEADS,),
        ("fewshot", "train"): (HEADS,),
    }  # fmt: skip
    for names, known in tables.items():
        shown = help_of(*names)
        assert all(name in shown for table in known for name in table), names


@pytest.mark.parametrize(
    ("command", "old"),
    [
        (["augment", "gone.png"], ["--out", "x"]),
        (["report", "gone"], ["--out", "x"]),
        (["fewshot", "train"], ["--data", "/gone", "--out", "x"]),
        (["generator", "train"], ["--data", "/gone", "--out", "x", "--limit", "1"]),
        (["study", "run", "gone"], ["--generator", "pocket"]),
    ],
)
def test_commands_of_before_are_still_understood(command: list[str], old: list[str], tmp_path: Path) -> None:
    """They get as far as their inputs, which are not there."""
    result = CliRunner().invoke(cli.app, [*command, *old])
    assert "gone" in str(result.exception) or "gone" in result.output, result.output
    assert "No such option" not in result.output


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        ("onesdaug fewsh", "fewshot"), ("onesdaug augment --noise-l", "--noise-level"), ("onesdaug x y", ""),
        ("onesdaug augment --preset pocket-fai", "pocket-faithful"), ("onesdaug pope --preset vl", "vlm"),
        ("onesdaug augment --solver ddpm-", "ddpm-ancestral"), ("onesdaug bench --model sd", "sd15"),
        ("onesdaug study run --model sh", "shape"), ("onesdaug study run abl", "ablation"),
        ("onesdaug fewshot train --head fe", "feat"), ("onesdaug fewshot evaluate --head meta", "meta-baseline"),
        ("onesdaug fewshot train --recipe rel", "released"), ("onesdaug generator train --recipe sm", "smoke"),
        ("onesdaug fewshot embed --encoder res", "res12"), ("onesdaug augment --fit cr", "crop"),
    ],
)  # fmt: skip
def test_a_shell_completes_commands_flags_and_names(words: str, wanted: str) -> None:
    asked = {"_ONESDAUG_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(len(words.split()) - 1)}
    result = CliRunner().invoke(cli.app, [], prog_name="onesdaug", env=asked)
    assert not isinstance(result.exception, ImportError) and wanted in result.output


def commands() -> Iterator[tuple[list[str], Any]]:
    for name in cli.COMMANDS:
        found = typer.main.get_command(importlib.import_module(f"onesdaug.cli.{name}").app)
        if hasattr(found, "commands"):
            yield from (([name, inner], command) for inner, command in found.commands.items())
        else:
            yield [name], found


@pytest.mark.parametrize(("names", "command"), [*commands()])
def test_every_help_has_two_examples_that_are_understood(names: list[str], command: Any) -> None:
    title, *lines = (command.epilog or "").split("\n\n")
    assert title == "Examples:" and len(lines) >= 2
    for line in lines:
        program, *words = shlex.split(line.partition(" | ")[0])
        assert [program, *words[: len(names)]] == ["onesdaug", *names]
        assert command.make_context(line, words[len(names) :])  # parsed, not run
    shown = " ".join(help_of(*names).split())
    assert all(line in shown for line in lines)
