"""The command line starts at once: nothing heavy is imported to show help."""

from __future__ import annotations

import resource
import subprocess
import sys

import pytest


def cpu_seconds(*command: str) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *command], check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


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
def test_help_takes_at_most_twice_what_its_libraries_take(arguments: list[str]) -> None:
    """About half a second on a quiet core; a slow or busy machine slows both sides alike."""
    ours = ["-c", "from onesdaug.cli import main; main()", *arguments]
    libraries = ["-c", "import typer.rich_utils; from pydantic import BaseModel, Field, TypeAdapter, ValidationError"]
    spent = [(cpu_seconds(*ours), cpu_seconds(*libraries)) for _ in range(3)]
    assert min(mine for mine, _ in spent) < 2 * min(theirs for _, theirs in spent)


@pytest.mark.parametrize("statement", ["import onesdaug", "import onesdaug.cli"])
def test_import_loads_nothing_heavy(statement: str) -> None:
    heavy = (
        "{'torch', 'diffusers', 'transformers', 'kornia', 'numpy', 'PIL', 'pydantic', 'matplotlib', 'ray', 'fastapi', "
        "'gradio'}"
    )
    code = f"{statement}; import sys; found = {heavy} & set(sys.modules); assert not found, found"
    subprocess.run([sys.executable, "-c", code], check=True)
