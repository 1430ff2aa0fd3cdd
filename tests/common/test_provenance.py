"""What is written down about where a number comes from."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from onesdaug import __version__
from onesdaug.common import provenance


def test_the_command_names_no_folder_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["/usr/bin/onesdaug", "augment", "/home/me/my cat.png", "-o", "views/cats"])
    assert provenance.command() == "onesdaug augment 'my cat.png' -o views/cats"


def test_the_commit_is_the_named_one_or_gits_or_the_release(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONESDAUG_COMMIT", "abc")
    assert provenance.commit() == "abc"
    monkeypatch.delenv("ONESDAUG_COMMIT")

    def no_git(*_: object, **__: object) -> None:
        raise subprocess.CalledProcessError(128, "git")

    monkeypatch.setattr(subprocess, "run", no_git)
    assert provenance.commit() == f"release {__version__}"


def test_a_machine_is_named_with_its_versions() -> None:
    told = provenance.describe_machine(torch.device("cpu"))
    assert told["device"] and told["torch"] == torch.__version__ and told["python"].startswith("3.")
