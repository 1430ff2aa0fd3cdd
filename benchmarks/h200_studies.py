"""Every study on a lent GPU machine that keeps nothing, in calls that are bounded in time and leave what is done.

Here (ONESDAUG_DATA set):  python benchmarks/h200_studies.py prepare [WHAT]            fills carry/1 … carry/5
There, call after call:    python3 benchmarks/h200_studies.py take carry/1             until all of them are there
                           python3 benchmarks/h200_studies.py run banks+compiled score+solvers … --limit 560
Or in the background:      python3 benchmarks/h200_studies.py run compiled score … --limit 900 --detach NAME
                           python3 benchmarks/h200_studies.py watch NAME … --limit 60   its log, its results so far

WHAT is `studies` (carry/5 is pocket-imagenet); `pope`, for the detector that --detector, a folder of onnx_torch.py,
holds (`run pope`); `all`, what both and photo need (carry/all-1 …, carry/lite2); or `table-3`, for the backbones that
h200_transformers.py trains or that --checkpoints holds. Of generators that are named all rows are compiled:
`run compiled score --studies transformers --models photo-128 --tag photo`. With --per-class 20 (what episodes need)
few views are drawn, which fills the compiler's caches beforehand. What was said about POPE's photographs comes home
beside the result, and --said carries it to the next machine, which goes on from there.

The machine holds what was taken outside the tree (--work). Between two calls it is given back after seconds: have the
next call ready. Jobs, each a process of its own that resumes; those joined by + run side by side (worth it for what
waits on the CPU only: two that draw views slow each other down). `banks` draws the rows of the stored results as they
were drawn (not compiled), `compiled` all others (compiled: the same views up to rounding, in less than half the time),
`plain` those without a generator alone, `score` writes the studies' JSON from the banks, `solvers` the validation
study of solvers, `birds` that of pocket's settings for CUB, `efficiency` the timings, `demo` the demo's banks,
`faithful` how faithful the views are of all generators that were taken (`photo`'s folders and carry/2), `bench` how
fast ours are (`warm` fills the compiler's caches for it). Results go to $OUT as one archive after every job.
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
from contextlib import suppress
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.h200_background import detach, told_when_ended, watch  # noqa: E402

STUDIES = ("headline", "tuned", "main", "grid", "ablation", "theory", "fine-grained", "transformers")
PLAN = "benchmarks/plans/solvers-validation.toml"
BIRDS = "benchmarks/plans/cub-validation-pocket.toml"
POPE = "benchmarks/plans/pope-detector.toml"
RELEASED = ("pocket", "pocket-imagenet")
TIMED = ("photo", "pocket", "pocket-imagenet")
# their rows whose numbers are stored: drawn exactly as they were
STORED = {"crop-flip", "generated", "full", "weight-0.3", "no-condition", "no-tweak", "shape", "oracle",
          "noise-0.2", "noise-0.7", "noise-1.0"}  # fmt: skip


def prepare(data: Path, args: argparse.Namespace) -> None:
    from benchmarks.h200_carry import PACKAGES, PARCELS, cut_down, pack

    what = args.jobs[0] if args.jobs else "studies"
    pack(args.carry, PARCELS[what](data, args), PACKAGES)
    if what == "pope" and args.photographs:
        cut_down(args.carry / "pope-1", args.photographs)


def take(folder: Path, work: Path) -> None:
    shutil.copytree(folder, work, dirs_exist_ok=True)
    for wheel in sorted((work / "wheels").glob("*.whl")):
        shutil.unpack_archive(wheel, work / "site", "zip")
    shutil.rmtree(work / "wheels", ignore_errors=True)
    for said in work.glob("said.tar.*"):
        shutil.unpack_archive(said, work / "banks", filter="data")
        said.unlink()
    for package in sorted((work / "repo" / "packages").glob("*/pyproject.toml")):
        register(package, work / "site")
    (work / "taken" / folder.name).mkdir(parents=True, exist_ok=True)  # whole: a run in the background may wait for it
    print(sorted(path.name for path in work.iterdir()))


def taken(work: Path) -> bool:
    """Whether this machine has the code at all; said at once, because a fresh one looks like the one before."""
    here = (work / "repo").is_dir()
    if not here:
        print(f"nothing was taken on this machine: {work / 'repo'} is not there; `take` all folders first, the one "
              "that ends with 1 before the others", file=sys.stderr)  # fmt: skip
    return here


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


def ours(work: Path) -> list[str]:
    packages = sorted((work / "repo" / "packages").glob("*/src"))
    return [str(path) for path in (work / "repo" / "src", *packages, work / "repo")]


def on_path(work: Path) -> None:
    """The copied code first, carried packages last: what the machine has itself wins over them."""
    sys.path[:0] = ours(work)
    sys.path.append(str(work / "site"))
    os.chdir(work / "repo")
    if (work / "commit.txt").is_file():
        os.environ.setdefault("ONESDAUG_COMMIT", (work / "commit.txt").read_text())
    for name in ("data", "fewshot", "banks", "results"):
        (work / name).mkdir(exist_ok=True)
        with suppress(FileExistsError):  # there already, or made just now by a run beside this one
            Path(name).symlink_to(work / name)


def make_banks(args: argparse.Namespace, compiled: bool, plain: bool = False) -> None:
    """The banks of the studies; of the stored rows where nothing is compiled, of all others where it is.

    Generators that are named are new: nothing of theirs is stored. `plain`: of the rows without one alone; beside it
    they come last, and are found done.
    """
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
            generators=tuple(args.models or RELEASED),
            per_class=args.per_class,
            commit=commit(),
        )
    )
    wants = [want for study in map(load_study, args.studies) for want in kind_named(study.kind).banks(study, context)]
    wants = sorted([want for want in wants if not (plain and want.generator)], key=lambda want: not want.generator)
    known = ("",) if args.models else ("", *RELEASED)
    stored = [want for want in wants if want.row.id in STORED and want.generator in known]
    stored = [want for want in stored if want.seed == 0 and not want.split]
    with shown(timed=True):
        everything = args.models or plain
        context.banks.make([want for want in wants if want not in stored or everything] if compiled else stored)


def study(*words: str) -> None:
    from onesdaug.cli import main as cli

    sys.argv = ["onesdaug", "study", "run", *words, "-o", "results", "--work", "banks", "--root", "data",
                "--checkpoints", "fewshot", "--no-report"]  # fmt: skip
    try:
        cli()
    except SystemExit as ended:
        if ended.code:
            raise


def models(args: argparse.Namespace) -> list[str]:
    words = [word for name in args.models for word in ("--model", name)]
    return [*words, "--tag", args.tag] if args.tag else words


def few(args: argparse.Namespace) -> list[str]:
    return ["--per-class", str(args.per_class)] if args.per_class else []


def pope(work: Path) -> None:
    os.environ["DETECTOR"] = str(work / "detector")
    study(POPE)


def faithful() -> None:
    """All generators that were taken, side by side."""
    from benchmarks import faithfulness

    os.environ["ONESDAUG_DATA"] = "data"
    output = "results/faithfulness-generators.json"
    sys.argv = ["benchmarks/faithfulness.py", "--compare", "--per-class", "100", "-k", "4", "--cache", "banks/cache",
                "--encoder", "fewshot/mini-protonet-res12", "--output", output]  # fmt: skip
    faithfulness.main()


def bench(work: Path, seconds: int, *flags: str) -> None:
    """Views a second; a process of its own for each, which finds the code by itself."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(ours(work)), "OUT": str(work / "results")}
    script = work / "repo" / "benchmarks" / "h200_bench.py"
    words = [sys.executable, str(script), "--site", str(work / "site"), "--limit", str(seconds), *flags, *TIMED]
    subprocess.run(words, check=True, env=environment)


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


JOBS: dict[str, Callable[[argparse.Namespace], None]] = {
    "banks": lambda args: make_banks(args, False),
    "compiled": lambda args: make_banks(args, True),
    "plain": lambda args: make_banks(args, True, plain=True),
    "score": lambda args: study(*args.studies, *models(args), *few(args)),
    "solvers": lambda args: study(PLAN, "--split", "val", "--per-class", "120", *models(args)),
    "birds": lambda args: study(BIRDS, "--split", "val", *models(args)),
    "efficiency": lambda args: study("efficiency", *models(args)),
    "demo": lambda _: demo(),
    "faithful": lambda _: faithful(),
    "pope": lambda args: pope(args.work.absolute()),
    "warm": lambda args: bench(args.work.absolute(), 300, "--warm"),
    "bench": lambda args: bench(args.work.absolute(), 150),
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
        words = ["--work", str(args.work), "--studies", *args.studies, "--models", *args.models, "--tag", args.tag]
        words += few(args)
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
        if (args.work / "banks" / "pope").is_dir():
            with tarfile.open(out / "said.tar.gz", "w:gz") as archive:
                archive.add(args.work / "banks" / "pope", "pope")
    return status


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=["prepare", "take", "run", "watch", "alone"])
    parser.add_argument("jobs", nargs="*", help="jobs, the folder to take, what to prepare, or runs to watch")
    parser.add_argument("--work", type=Path, default=Path.home() / "onesdaug-work")
    parser.add_argument("--studies", nargs="+", default=list(STUDIES))
    parser.add_argument("--models", nargs="*", default=[], help="generators other than the released ones")
    parser.add_argument("--tag", default="", help="written into the names of the results")
    parser.add_argument("--per-class", type=int, help="compiled, plain, score: so few images of each class")
    parser.add_argument("--carry", type=Path, default=ROOT / "carry")
    parser.add_argument("--checkpoints", type=Path, default=ROOT / "carry" / "transformers",
                        help="prepare table-3: networks that were trained before")  # fmt: skip
    parser.add_argument("--tiny", type=Path, help="prepare table-3: Tiny-ImageNet's pictures, to train networks from")
    parser.add_argument("--detector", type=Path, help="prepare pope, all: a folder of onnx_torch.py convert")
    parser.add_argument("--said", type=Path, help="prepare pope, all: said.tar.* of an earlier machine")
    parser.add_argument("--photographs", type=int, help="prepare pope: so few, to try it on a CPU")
    parser.add_argument("--limit", type=float, default=560.0, help="seconds for all jobs of this call")
    parser.add_argument("--detach", metavar="NAME", help="run: in the background, under this name")
    parser.add_argument("--name", help=argparse.SUPPRESS)  # of a run that is detached
    args = parser.parse_args()
    if args.action == "prepare":
        prepare(Path(os.environ["ONESDAUG_DATA"]), args)
    elif args.action == "take":
        take(Path(args.jobs[0]), args.work)
    elif args.action in ("run", "watch") and not taken(args.work):
        return 2
    elif args.action == "watch":
        watch(args.work, args.jobs, args.limit)
    elif args.detach:
        detach(args, Path(__file__))
    elif args.action == "run":
        return told_when_ended(args, run) if args.name else run(args)
    else:
        on_path(args.work)
        JOBS[args.jobs[0]](args)
        print(json.dumps({"job": args.jobs[0], "done": True}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
