"""The command line starts at once: nothing heavy is imported to show help, and little is done."""

from __future__ import annotations

import subprocess
import sys

import pytest

MAIN = "from onesdaug.cli import main; main()"
LIBRARIES = "import typer.rich_utils; from pydantic import BaseModel, Field, TypeAdapter, ValidationError"
HEAVY = (
    "{'torch', 'diffusers', 'transformers', 'kornia', 'numpy', 'PIL', 'matplotlib', 'ray', 'fastapi', 'gradio', "
    "'httpx'}"
)
COUNTED = f"""
import cProfile, contextlib, pstats, sys
profile = cProfile.Profile()
with contextlib.suppress(SystemExit):
    profile.runcall(exec, sys.argv.pop(1), {{}})
assert not (found := {HEAVY} & set(sys.modules)), found
print(pstats.Stats(profile).total_calls, file=sys.stderr)
"""


def calls(code: str, *arguments: str) -> int:
    """How many functions it calls: the same number on any machine, however slow or busy."""
    command = [sys.executable, "-c", COUNTED, code, *arguments]
    return int(subprocess.run(command, check=True, capture_output=True, text=True).stderr)


@pytest.fixture(scope="module")
def libraries() -> int:
    return calls(LIBRARIES)


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["augment", "--help"],
        ["pope", "--help"],
        ["study", "--help"],
        ["serve", "--help"],
        ["ui", "--help"],
        ["--version"],
    ],
)
def test_help_does_little_beside_loading_its_libraries(arguments: list[str], libraries: int) -> None:
    """At three times their calls `augment --help` would take the half second it may (2.6 times: 0.43 s)."""
    assert calls(MAIN, *arguments) < 3 * libraries


@pytest.mark.parametrize("statement", ["import onesdaug", "import onesdaug.cli"])
def test_import_loads_nothing_heavy(statement: str) -> None:
    code = f"{statement}; import sys; found = ({HEAVY} | {{'pydantic'}}) & set(sys.modules); assert not found, found"
    subprocess.run([sys.executable, "-c", code], check=True)
