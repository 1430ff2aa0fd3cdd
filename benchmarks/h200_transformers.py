"""Table 3 on a lent GPU machine that keeps nothing: ViT-Small and Swin-Tiny, trained without ImageNet weights.

Here (ONESDAUG_DATA set; --tiny is a folder of zip files of Tiny-ImageNet without miniImageNet's validation and test
classes, made by photo_data.py):

    python benchmarks/h200_studies.py prepare table-3 --tiny FOLDER           fills carry/table-1 …, carry/lite2

There, each folder in a call of its own; all of these calls in one go: a machine that is not asked for half a minute is
given back with all that is on it. What networks are trained from comes first, so that training, which lives on in the
background, begins while the other folders are on their way (lite2 is the last one):

    python3 benchmarks/h200_studies.py take carry/table-1                     and so on, to the last with training data
    python3 benchmarks/h200_transformers.py table vit-small=430 swin-tiny=rest --train 1060 --limit 1640
    python3 benchmarks/h200_studies.py take carry/table-6                     and so on
    python3 benchmarks/h200_transformers.py watch --limit 560                 again until all was brought and it ended

NAME=SECONDS trains as many epochs as fit, NAME=rest in what is left of --train; a run that was stopped goes on with
the same command on the same machine, and what is trained is not trained again. Meanwhile everything that draws is
compiled. Then all generators (--models) draw and are scored side by side, each into results/ under its own name.
`watch` prints what was logged and brings it to $OUT: results, and the networks (half precision, files below 16 MiB,
as many as a call may bring), which belong in carry/transformers: from there `prepare table-3` carries them to the
next machine, where only what is named is trained. So the two cards in benchmarks/results came about: Swin-Tiny by
`vit-small=280 swin-tiny=rest --train 1060`, then ViT-Small anew by `vit-small=rest --train 850 --limit 1500`. Test
classes are not looked at in training. `profile swin-tiny`: where a step's time goes, for the seconds that are left at
the end.
`--smoke`: a few pictures.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tarfile
import time
import traceback
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from itertools import pairwise
from multiprocessing import get_context
from pathlib import Path
from typing import Any, TypeAlias

HERE = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(HERE)]

from benchmarks.h200_carry import LITE2  # noqa: E402
from benchmarks.h200_studies import taken  # noqa: E402

Started: TypeAlias = "subprocess.Popen[bytes]"

NAME = "transformers"
MODELS = ("photo-128", "pocket", "pocket-imagenet")
FEW = 20  # images of each class: what episodes need
SMOKE: dict[str, Any] = {"epochs": 1, "batch": 8, "num_eval_episodes": 10, "eval_query": 3, "eval_every": 1}
LOOK = 60.0  # seconds between two times that results are brought
SPARE = 0.92  # of what is left of the time for training: a step takes a little longer than when it was measured


def on_path(work: Path) -> None:
    root = work / "repo" if (work / "repo").is_dir() else HERE
    sys.path[:0] = [str(root / "src"), str(root)]
    sys.path.append(str(work / "site"))
    if (work / "commit.txt").is_file():
        os.environ.setdefault("ONESDAUG_COMMIT", (work / "commit.txt").read_text())


def load(args: argparse.Namespace) -> tuple[Any, Any]:
    """Base classes with Tiny-ImageNet's, and validation classes; decoded once, by all cores."""
    from onesdaug.data.registry import load_split
    from onesdaug.fewshot.pretrain import with_more

    cache, data = args.work / "cache", args.work / "data"
    for place in (*((data / "miniimagenet", split) for split in ("train", "val")), (data / "tiny", "")):
        decode_once(args.work, *place, cache)
    train, val = (load_split("miniimagenet", split, data, cache=cache) for split in ("train", "val"))
    train = with_more(train, data / "tiny", val, cache)
    return (train.take(6, 4), val.take(8, 5)) if args.smoke else (train, val)


def decode_once(work: Path, place: Path, split: str, cache: Path) -> None:
    """Leave decoded pictures where `load_members` looks for them: over small files its threads wait for each other."""
    import numpy as np

    from onesdaug.data.decode import cache_file, keep
    from onesdaug.data.registry import BENCHMARKS
    from onesdaug.data.sources import fingerprint

    members, size = members_of(place, split), BENCHMARKS["miniimagenet"].size
    stored = cache_file(cache, fingerprint(members), size)
    if stored.is_file():
        return
    workers = os.cpu_count() or 1
    bounds = [len(members) * part // workers for part in range(workers + 1)]
    with ProcessPoolExecutor(workers, get_context("spawn"), on_path, (work,)) as pool:
        parts = [pool.submit(decoded, place, split, size, *ends) for ends in pairwise(bounds)]
        keep(np.concatenate([part.result() for part in parts]), stored)


def members_of(place: Path, split: str) -> list[Any]:
    from onesdaug.data.registry import split_members
    from onesdaug.data.sources import find_members

    return split_members(place.name, split, place.parent) if split else find_members(place)


def decoded(place: Path, split: str, size: int, start: int, stop: int) -> Any:
    from onesdaug.data.decode import decode

    return decode(members_of(place, split)[start:stop], size, workers=1).images


def network(text: str) -> tuple[str, float | None]:
    """NAME=SECONDS, or NAME=rest; a name alone is the same."""
    from onesdaug.fewshot.recipes import TRANSFORMERS

    name, _, seconds = text.partition("=")
    rest = seconds in ("", "rest")
    if name not in TRANSFORMERS or not (rest or seconds.isdecimal()):
        raise ValueError(f"{text}: want NAME=SECONDS or NAME=rest, NAME one of {', '.join(TRANSFORMERS)}")
    return name, None if rest else float(seconds)


def run(args: argparse.Namespace) -> int:
    """Train one network after the other; what goes wrong with one leaves its time to the next."""
    end, status = time.monotonic() + args.train, 0
    import torch

    from benchmarks.h200_log import start_log

    log = start_log(args.work / "train.txt")
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    data = load(args)
    log(f"torch {torch.__version__} on {device}: {len(data[0])} images of {data[0].n_classes} classes, {len(data[1])}")
    for name, seconds in map(network, args.what):
        budget = SPARE * (end - time.monotonic()) if seconds is None else seconds
        try:
            log(f"mini-{name}: {one(args, name, budget, data, end, device)}")
        except Exception:
            status = 4
            log(f"mini-{name}: {traceback.format_exc()}")
    log(f"trained: {status}")
    return status


def one(args: argparse.Namespace, name: str, seconds: float, data: tuple[Any, Any], end: float, device: Any) -> str:
    """One network, its checkpoint in half precision; what is there already is not trained again."""
    from onesdaug.fewshot.pretrain import pretrain
    from onesdaug.fewshot.recipes import plain_recipe

    place, out = (args.work / folder / f"mini-{name}" for folder in ("fewshot", f"{NAME}.done"))
    if not (place / "card.json").is_file():
        config, how = plain_recipe(name), {"seconds": seconds, "deadline": end, "cut": True, "save_seconds": 300}
        if args.smoke:
            config, how = replace(config, **SMOKE), {}
        started = out.with_name(f"{out.name}.begun")
        pretrain(config, *data, started, data_name="miniimagenet", device=device, half=True, **how)
        started.rename(out)  # whole: `watch` may look at any time
        place.parent.mkdir(exist_ok=True)
        place.symlink_to(out.absolute())  # where the studies look
    card = json.loads((place / "card.json").read_text())
    scores = {key: round(value, 2) for key, value in card["validation"].items() if isinstance(value, float)}
    return f"{scores} in {card['seconds']} s, {card['images_per_second']}/s, {card['arguments']['epochs']} epochs"


def profile(args: argparse.Namespace) -> None:
    """Where the time of a training step goes, kernel by kernel; while nothing else runs."""
    import torch
    from torch.profiler import ProfilerActivity

    from onesdaug.fewshot.pretrain import Pretraining
    from onesdaug.fewshot.recipes import plain_recipe

    cuda, (train, val) = torch.cuda.is_available(), load(args)
    device, clock = torch.device("cuda" if cuda else "cpu"), f"self_{'cuda' if cuda else 'cpu'}_time_total"
    for name, _ in map(network, args.what):
        config = replace(plain_recipe(name), **(SMOKE if args.smoke else {}))
        stage = Pretraining(config, train, val, device)
        optimizer, steps = stage.optimizer(), 1 if args.smoke else 8
        stage.train_mode()
        for step in range(steps):  # kernels are chosen in the first
            stage.train_step(optimizer, step)
        activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if cuda else [])]
        with torch.profiler.profile(activities=activities) as found:
            for step in range(steps):
                stage.train_step(optimizer, step)
            if cuda:
                torch.cuda.synchronize()
        print(f"{name}: {steps} steps of {config.batch}")
        print(found.key_averages().table(sort_by=clock, row_limit=40, max_name_column_width=60))


def table(args: argparse.Namespace) -> int:
    """Train while what draws is compiled; then draw and score, a process for each generator and one for the rest."""
    from benchmarks.h200_log import start_log

    end, log = time.monotonic() + args.limit, start_log(args.work / "table.txt")
    common = ["--work", str(args.work), *(["--smoke"] if args.smoke else [])]
    training = start("run", *args.what, "--train", args.train, *common)
    while training.poll() is None and not warm_may_begin(args):
        time.sleep(1)
    warm = {} if args.smoke else studies(args, 200, ["compiled"], "warm", ["--per-class", str(FEW)])
    put_behind(warm.values())
    status = training.wait()
    log(f"trained: {status}")
    for process in warm.values():
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait()  # what draws next writes to the same places
    few = ["--per-class", str(FEW)] if args.smoke else []
    left = max(10, int(end - time.monotonic()))
    drawing = studies(args, left, ["compiled", "score"], "table", few)
    drawing["plain"] = start_studies(args, left, ["plain"], "table-plain", few)
    for name, process in drawing.items():
        log(f"{name}: ended with {process.wait()}, {end - time.monotonic():.0f} s left")
        status = status or process.returncode
    return status


def warm_may_begin(args: argparse.Namespace) -> bool:
    """All that draws is there, and training knows how fast it is, which is measured alone."""
    done = args.work / f"{NAME}.done"
    measured = any(done.glob("*.state/*.plan.json")) or any(done.glob("*/card.json"))
    return measured and (args.smoke or (args.work / "taken" / LITE2).is_dir())


def studies(
    args: argparse.Namespace, limit: int, jobs: Sequence[str], tag: str, more: Sequence[str]
) -> dict[str, Started]:
    """These jobs by every generator, side by side."""
    return {
        model: start_studies(args, limit, jobs, f"{tag}-{model}", [*more, "--models", model, "--tag", model])
        for model in args.models
    }


def put_behind(processes: Iterable[Started]) -> None:
    """Let training go first: its steps wait for the one core that launches them."""
    for process in processes:
        os.setpriority(os.PRIO_PGRP, process.pid, 19)


def start_studies(
    args: argparse.Namespace, limit: int, jobs: Sequence[str], name: str, more: Sequence[str]
) -> Started:
    words = [*jobs, "--studies", NAME, "--limit", limit, "--work", args.work, *more]
    threads = max(1, (os.cpu_count() or 1) // (len(args.models) + 1))  # more than there are cores would spin
    environment = os.environ | {"OUT": str(args.work / "out" / name), "OMP_NUM_THREADS": str(threads)}
    return start("run", *words, script="h200_studies.py", log=args.work / f"{name}.log", env=environment)


def start(*words: Any, script: str = "h200_transformers.py", log: Path | None = None, **how: Any) -> Started:
    """A script beside this one, in a process group of its own."""
    line = [sys.executable, str(HERE / "benchmarks" / script), *map(str, words)]
    if log is None:
        return subprocess.Popen(line, start_new_session=True, **how)
    with log.open("a") as said:
        return subprocess.Popen(line, start_new_session=True, stdout=said, stderr=said, **how)


def detached(args: argparse.Namespace) -> int:
    """The same call in a session of its own, which says when it ends; by the code that was taken, for the checkout
    is replaced whenever another call begins."""
    (args.work / "ended").unlink(missing_ok=True)
    with (args.work / "run.log").open("a") as log:
        quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": log, "stdin": subprocess.DEVNULL}
        script = args.work / "repo" / "benchmarks" / Path(__file__).name
        subprocess.Popen([sys.executable, str(script), *sys.argv[1:], "--here"], start_new_session=True, **quiet)
    return 0


def whole_table(args: argparse.Namespace) -> int:
    status: int | None = None
    try:
        status = table(args)
    finally:
        (args.work / "ended").write_text("an error" if status is None else str(status))
    return status


def watch(args: argparse.Namespace) -> None:
    """What was logged since, until the end or the limit; results go to $OUT as they come, then finished networks."""
    from benchmarks.h200_log import follow
    from benchmarks.photo_carry import bring

    out, end = Path(os.environ.get("OUT", args.work / "home")), time.monotonic() + args.limit
    out.mkdir(parents=True, exist_ok=True)
    seen = 0
    while True:
        left = end - time.monotonic()
        seen = follow(args.work, min(left, LOOK), 1 if args.smoke else 5, seen)
        if (args.work / "results").is_dir():  # now: a call that runs into its limit brings what lies there
            with tarfile.open(out / "results.tar.gz", "w:gz") as archive:
                archive.add(args.work / "results", "results")
        if (args.work / "ended").is_file() or left < LOOK:
            break
    bring(args.work, out, "done", NAME, beside=len(list(out.glob("results.*"))))
    for log in sorted((*args.work.glob("table*"), args.work / "run.log")):
        print(f"--- {log.name}\n{log.read_text(errors='replace')[-500:] if log.is_file() else ''}")
    print("ended" if (args.work / "ended").is_file() else "still running")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=["table", "run", "watch", "profile"])
    parser.add_argument("what", nargs="*", help="table, run: vit-small=SECONDS swin-tiny=rest; profile: swin-tiny")
    parser.add_argument("--work", type=Path, default=Path.home() / "onesdaug-work")
    parser.add_argument("--train", type=float, default=1060.0, help="seconds for all training")
    parser.add_argument("--limit", type=float, default=560.0, help="seconds of this call; table: of all of it")
    parser.add_argument("--models", nargs="+", default=list(MODELS), help="table: the generators")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)  # not in the background
    parser.add_argument("--smoke", action="store_true", help="the same path on a few pictures")
    args = parser.parse_args()
    if not taken(args.work):
        return 2
    on_path(args.work)
    try:
        list(map(network, args.what))  # now: nobody waits for what runs in the background
    except ValueError as error:
        parser.error(str(error))
    actions: dict[str, Any] = {"run": run, "watch": watch, "profile": profile}
    actions["table"] = whole_table if args.here else detached
    return actions[args.action](args) or 0


if __name__ == "__main__":
    sys.exit(main())
