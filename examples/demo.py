"""`make demo`: views of sample photographs (or of IMAGES=...), the accuracy they bring, and one HTML page of both.

The photographs come with scikit-image, the generator with this package, the feature banks with this repository:
nothing is fetched. Whatever fails costs only its own part: the page is written all the same, the exit code is 1.
"""

from __future__ import annotations

import shlex
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from onesdaug.data.samples import CREDITS, sample_photographs
from onesdaug.errors import OnesdaugError
from onesdaug.report.embedded import TASK, Evaluation, evaluate_folder
from onesdaug.report.page import FULL_FIGURES, Page, write
from onesdaug.report.pictures import Gallery, gallery
from onesdaug.report.table import terminal_table

ROOT = Path(__file__).resolve().parents[1]
OUT = Path("demo-output")
BANKS = ROOT / "artifacts" / "demo"
K = 4


def photograph_files(folder: Path) -> list[str]:
    """The sample photographs as files, as a user would have them."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, image in sample_photographs().items():
        if not (folder / f"{name}.png").exists():
            image.save(folder / f"{name}.png")
    return [str(folder / f"{name}.png") for name in CREDITS]


def make_views(images: Sequence[str], out: Path, model: str, preset: str) -> tuple[int, str]:
    """Run the command line as a user would; its exit code, and the command with bare file names for the page."""
    options = ["--model", model, "--preset", preset, "--k", str(K), "--sheet"]
    # besides: the tweaks are kept for the page, and views of an earlier demo make way for these
    command = [*options, "--save-aug", "--overwrite"]
    print(f"$ onesdaug augment {shlex.join([*images, '-o', str(out), *command])}", flush=True)
    code = subprocess.call([sys.executable, "-m", "onesdaug", "augment", *command, "-o", str(out), "--", *images])
    names = [Path(image).name for image in images[:4]] + ["…"] * (len(images) > 4)
    return code, f"onesdaug augment {shlex.join(names)} -o views {shlex.join(options)}"


def look(images: Sequence[str], out: Path, code: int, credits: dict[str, str]) -> Gallery:
    """The pictures of the page; with nothing made, the reason instead."""
    if code not in (0, 1):  # 1: some inputs failed, the others are there
        return Gallery(problems=(f"no views were made (onesdaug augment ended with code {code}, see its message)",))
    try:
        return gallery(out, images, K, credits)
    except (OnesdaugError, OSError) as error:
        return Gallery(problems=(f"the views could not be shown: {error}",))


def score(banks: Path, episodes: int) -> Evaluation:
    """The table, printed; with no banks, one line that says what to do."""
    from dataclasses import replace

    from rich.console import Console

    # a pipe or a file gets whole lines; only a terminal narrows the table
    screen = Console() if sys.stdout.isatty() else Console(width=120)
    began = time.perf_counter()
    try:
        found = evaluate_folder(banks, replace(TASK, episodes=episodes))
    except OnesdaugError as error:
        found = Evaluation((), (str(error).replace(f"{ROOT}/", ""),))
    if found.blocks:
        screen.print(terminal_table(found.blocks))
        rows = sum(len(block.rows) for block in found.blocks)
        print(f"± is a 95 % interval over episodes; {rows} rows in {time.perf_counter() - began:.1f} s")
        print(f"on a small part of the test split; the whole split's figures are in {FULL_FIGURES}")
    for line in found.problems:
        print(line)
    return found


def main(
    images: Sequence[str],
    model: str = "pocket",
    preset: str = "pocket-faithful",  # views to look at; the table below uses those tuned for accuracy
    out: Path = OUT,
    banks: Path = BANKS,
    episodes: int = 2000,
) -> int:
    import torch

    from onesdaug.common.provenance import commit, describe_machine

    credits = {} if images else CREDITS
    images = list(images) or photograph_files(out / "photos")
    views = out / f"views-{model}"
    code, command = make_views(images, views, model, preset)
    shown = look(images, views, code, credits)
    found = score(banks, episodes)
    machine = describe_machine(torch.device("cpu"))
    page = Page(command, shown, found.blocks, found.problems, commit(), machine)
    print(f"page: {write(page, out / 'index.html').resolve()}")
    return 1 if code or shown.problems or found.problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
