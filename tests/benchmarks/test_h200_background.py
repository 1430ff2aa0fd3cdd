"""Runs that live on when their call ends: what they say and leave is seen by the calls after it."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import pytest

from benchmarks.h200_background import detach, told_when_ended, watch

SCRIPT = """
import argparse, os, sys
from pathlib import Path
sys.path.insert(0, {root!r})
from benchmarks.h200_background import told_when_ended

def run(args):
    print("drawn by", args.model, flush=True)
    out = Path(os.environ["OUT"])
    out.mkdir(parents=True)
    (out / "results.txt").write_text("42")
    if args.model == "broken":
        raise ValueError("no such model")
    return 0

parser = argparse.ArgumentParser()
parser.add_argument("--work", type=Path)
parser.add_argument("--model")
parser.add_argument("--name")
sys.exit(told_when_ended(parser.parse_args(), run))
"""


@pytest.mark.parametrize(("model", "how"), [("pocket", "ended with 0"), ("broken", "ended with an error")])
def test_a_run_that_is_left_alone_is_found_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], model: str, how: str
) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT.format(root=str(Path(__file__).resolve().parents[2])))
    monkeypatch.setattr(sys, "argv", ["script", "--work", str(tmp_path), "--detach", model, "--model", model])
    monkeypatch.setattr("benchmarks.h200_background.PAUSE", 0.1)
    monkeypatch.setenv("OUT", str(tmp_path / "home"))
    detach(argparse.Namespace(work=tmp_path, detach=model), script)  # a name that another argument has as well
    watch(tmp_path, [model], 60.0)
    said = capsys.readouterr().out
    assert f"drawn by {model}" in said and f"{model}: {how}" in said
    assert (tmp_path / "home" / f"{model}-results.txt").read_text() == "42"


def test_what_is_not_done_at_the_limit_is_still_running(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    watch(tmp_path, ["mine"], 0.0)
    assert "mine: still running" in capsys.readouterr().out


def test_the_end_says_the_status(tmp_path: Path) -> None:
    assert told_when_ended(argparse.Namespace(work=tmp_path, name="mine"), lambda _: 3) == 3
    assert (tmp_path / "mine.ended").read_text() == "3"
