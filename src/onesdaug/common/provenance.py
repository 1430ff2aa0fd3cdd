"""Where a number comes from: the commit, the machine and the command that made it."""

from __future__ import annotations

import os
import platform
import shlex
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from onesdaug import __version__
from onesdaug.common.progress import printable

if TYPE_CHECKING:
    import torch


def commit() -> str:
    """`ONESDAUG_COMMIT` if set (a copied tree's own git may lag behind), else git's, with a plus for changed files."""
    if named := os.environ.get("ONESDAUG_COMMIT"):
        return named
    here = Path(__file__).parent
    try:
        head = subprocess.run(
            ["git", "describe", "--always", "--abbrev=12", "--dirty=+", "--exclude=*"],
            cwd=here, capture_output=True, text=True, timeout=10, check=True,
        )  # fmt: skip
        return head.stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return f"release {__version__}"


def describe_machine(device: torch.device) -> dict[str, str]:
    import torch

    name = torch.cuda.get_device_name(device) if device.type == "cuda" else platform.processor() or "cpu"
    return {"device": name, "torch": torch.__version__, "python": platform.python_version()}


def command() -> str:
    """What the user typed, without folders that name the machine."""
    words = [Path(word).name if Path(word).is_absolute() else word for word in sys.argv[1:]]
    return printable(shlex.join(["onesdaug", *words]))  # JSON takes no name that is no text
