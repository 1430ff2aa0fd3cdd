"""A walk: files that a user writes, and at most ten commands typed beside them, in a folder of their own."""

from __future__ import annotations

import runpy
import shlex
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from onesdaug.cli import main

MOST = 10


def photographs(folder: Path, classes: tuple[str, ...], each: int, side: int = 32) -> None:
    """Pictures per class: a bright shape on noise; what they have in common is where it is and its colour."""
    rng = np.random.default_rng(0)
    for number, name in enumerate(classes):
        (folder / name).mkdir(parents=True)
        for i in range(each):
            pixels = rng.integers(0, 140, (side, side, 3))
            corner = 4 * number + rng.integers(0, 3, 2)
            pixels[corner[0] : corner[0] + 12, corner[1] : corner[1] + 12, number % 3] = 250
            Image.fromarray(pixels.astype(np.uint8)).save(folder / name / f"{i}.png")


def take(
    place: Path,
    files: dict[str, str],
    commands: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> list[str]:
    """Write the files, run the commands one after the other, and give back what each printed."""
    lines = [line for line in commands.strip().splitlines() if line]
    assert len(lines) <= MOST
    for name, text in files.items():
        (place / name).write_text(text)
    monkeypatch.chdir(place)
    monkeypatch.setattr(sys, "path", [str(place), *sys.path])
    capsys.readouterr()
    printed = []
    for line in lines:
        program, *words = shlex.split(line)
        if program == "python":
            monkeypatch.setattr(sys, "argv", words)
            runpy.run_path(words[0], run_name="__main__")
        else:
            monkeypatch.setattr(sys, "argv", [program, *words])
            with pytest.raises(SystemExit) as done:
                main()
            assert not done.value.code, f"{line}\n{capsys.readouterr()}"
        printed.append(capsys.readouterr().out)
    return printed
