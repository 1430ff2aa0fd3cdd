"""A newcomer with a vision-language model of their own: from a function to a POPE table, as docs/vlm.md shows it.

Only what docs/vlm.md and the commands' own output say is used; no source is read.
"""

from __future__ import annotations

import csv
import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

from PIL import Image

ROOT = Path(__file__).resolve().parents[2]
ASK = "onesdaug pope --images photos --questions questions.json --vlm my_vlm.py:answer"
COMMANDS = {
    "help": "onesdaug pope --help",
    "try": f"{ASK} --k 0 --limit 2 -o runs/try",
    "run": f"{ASK} --model pocket --k 2 -o runs/mine",
    "again": f"{ASK} --model pocket --k 2 -o runs/mine --parser exact",
    "tables": "onesdaug report runs/mine -o pope.html --latex pope.tex --csv pope.csv",
}


def write_files(folder: Path) -> None:
    """What the user has: pictures, questions about them, and the function, copied from the document."""
    (folder / "photos").mkdir()
    rows = []
    for name, colour in {"red": (200, 40, 30), "green": (40, 180, 60), "blue": (30, 60, 210)}.items():
        Image.new("RGB", (48, 32), colour).save(folder / "photos" / f"{name}.png")
        for thing, at_home in (("tomato", "red"), ("sky", "blue")):
            row = {"question_id": len(rows) + 1, "image": f"{name}.png", "label": "yes" if name == at_home else "no"}
            rows.append({**row, "text": f"Is there a {thing} in the image?"})
    (folder / "questions.json").write_text("".join(json.dumps(row) + "\n" for row in rows))
    document = (ROOT / "docs" / "vlm.md").read_text(encoding="utf-8")
    function = document.split("```python\n# my_vlm.py\n")[1].split("```")[0]
    (folder / "my_vlm.py").write_text(function)


def run(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """The installed program, as a shell would start it."""
    program, *arguments = shlex.split(command)
    where = [str(Path(sys.executable).parent / program), *arguments]
    done = subprocess.run(where, cwd=folder, env={**os.environ, "COLUMNS": "100"}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    return done


def test_from_a_function_to_a_table(tmp_path: Path) -> None:
    write_files(tmp_path)
    said = {name: run(command, tmp_path) for name, command in COMMANDS.items()}
    for word in ("file.py:object", "question_id, image, text and label"):
        assert word in " ".join(said["help"].stdout.replace("│", " ").split())
    assert "plain, greedy, K=0" in said["try"].stdout
    for name in ("run", "again"):
        table = said[name].stdout
        assert max(map(len, table.splitlines())) <= 100
        assert all(f"plain, greedy, K={k}" in table for k in range(3))
    assert "onesdaug report runs/mine --latex" in said["run"].stderr  # the way on is told
    assert "views" not in said["again"].stderr.split("runs/mine:")[0]  # nothing is drawn or asked again
    rows = list(csv.DictReader((tmp_path / "pope.csv").open()))
    accuracy = {row["row"]: row["value"] for row in rows if row["column"] == "accuracy"}
    assert accuracy["plain, greedy, K=0"] == "66.67"  # red pictures are no sky, blue ones no tomato
    latex = (tmp_path / "pope.tex").read_text()
    assert r"\begin{tabular}" in latex and "plain, greedy, K=2 & " in latex
    assert "plain, greedy, K=2" in (tmp_path / "pope.html").read_text()


def test_it_is_short_and_the_document_shows_it() -> None:
    assert len(COMMANDS) <= 10
    document = (ROOT / "docs" / "vlm.md").read_text(encoding="utf-8")
    for name, command in COMMANDS.items():
        assert name == "help" or f"    {command}\n" in document
