"""Train a generator on a lent GPU machine that keeps nothing, in pieces that are carried home: photo, or pocket.

Here (ONESDAUG_DATA set; --coco and --tiny are what photo_data.py made; ENDED is what `watch` brought home):

    python benchmarks/h200_photo.py prepare --coco FOLDER --tiny FOLDER [--state ENDED/photo.state]   carry/photo-00, …

There, every call with one of these folders (each fits beside the checkout), the first of them first. The machine is
given back after half a minute without a call: write all calls down before the first, and make them one after another.

    python3 benchmarks/h200_photo.py take carry/photo-00 [--probe STAGE …]   code and packages; compiles meanwhile
    python3 benchmarks/h200_photo.py take carry/photo-01                     and so on; decodes in the background

`run` needs photo-00 and, for the autoencoder, some photographs: that learns from those that are there when it begins.
The denoiser waits for all that were prepared and encodes them as they come, so `run` goes before them, detached:

    python3 benchmarks/h200_photo.py run --until denoiser-1 --seconds denoiser=rest --limit 1380 --detach
    python3 benchmarks/h200_photo.py watch --limit 500                       again until it says that all was brought

`watch` prints what was logged and brings to $OUT, eight files a call, finished stages, pictures and the log; `--part`
the weights of the unfinished piece, which are a stage when ENDED/photo.part/STAGE is moved into photo.state. `--until
denoiser-2 polish` trains both. `--seconds STAGE=N` sets how long a stage takes, compiling included; `rest` is what
the limit leaves. --limit stops what is unfinished. `--sweep SECONDS` then tries settings on validation classes,
and for half as long on CUB's. `--smoke` does all of it on a CPU in a minute. Then, here:

    python benchmarks/h200_photo.py write PLACE --until guidance      PLACE from the stages in PLACE.state

With `--recipe pocket` in every call the next pocket is trained: no --coco, folders carry/pocket-00, … Where that goes
on from the embedded pocket, its polish wants another to judge it, too: `prepare --judge FOLDER`, a pocket of before.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import time
import traceback
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parents[1]


def prepare(args: argparse.Namespace) -> None:
    on_path(None)
    from benchmarks.photo_carry import pack

    pack(args.carry, args.recipe, args.coco, args.tiny, args.state, args.shards, args.judge)


def on_path(work: Path | None) -> None:
    """The code of the work folder, or of the checkout; carried packages last: what the machine has wins over them."""
    root = HERE if work is None or not (work / "repo").is_dir() else work / "repo"
    sys.path[:0] = [str(root / "src"), str(root)]
    if work is not None:
        sys.path.append(str(work / "site"))
        if (work / "commit.txt").is_file():
            os.environ.setdefault("ONESDAUG_COMMIT", (work / "commit.txt").read_text())
        os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(work / "inductor"))


def take(args: argparse.Namespace) -> int:
    """Copy a folder out of the tree, unpack what is packed, and use the time until the next call."""
    shutil.copytree(args.folder, args.work, dirs_exist_ok=True, copy_function=_whole)
    for wheel in sorted((args.work / "wheels").glob("*.whl")):
        shutil.unpack_archive(wheel, args.work / "site", "zip")
    shutil.rmtree(args.work / "wheels", ignore_errors=True)
    from benchmarks.photo_carry import mark_brought

    mark_brought(args.work, [args.work / path.relative_to(args.folder) for path in args.folder.glob("*.state/*/*")])
    if args.probe:
        detached(args, "probe", *args.probe)
    for archive in sorted((args.folder / "data").glob("*/*.zip")):
        detached(args, "decode", str(args.work / "data" / archive.parent.name / archive.name))
    print(sorted(path.name for path in (args.work / "data").rglob("*.zip")))
    for log in sorted(args.work.glob("probe-*.log")):
        _show(log)
    return 0


def _whole(source: str, target: str) -> None:
    """A file appears when all of it is there: others look for it."""
    shutil.copyfile(source, f"{target}.part")
    Path(f"{target}.part").replace(target)


def detached(args: argparse.Namespace, action: str, *more: str) -> None:
    """A process that lives on when this call ends; what it says goes to ACTION.log in the work folder.

    Probes of several stages may run side by side: each has a log of its own.
    """
    name = f"probe-{more[0]}" if action == "probe" else action
    script = args.work / "repo" / "benchmarks" / Path(__file__).name
    words = [sys.executable, str(script if script.is_file() else __file__), action, *more, "--work", str(args.work)]
    words += ["--recipe", args.recipe, *(["--smoke"] if args.smoke else [])]
    with (args.work / f"{name}.log").open("a") as log:
        process = subprocess.Popen(words, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True)
    (args.work / f"{name}.pid").write_text(str(process.pid))


def decode(args: argparse.Namespace) -> int:
    from benchmarks.photo_tasks import decoded

    began, archive = time.monotonic(), Path(args.folder)
    try:
        print(f"{archive.name}: {len(decoded(args, archive))} in {time.monotonic() - began:.0f} s", flush=True)
    finally:
        archive.with_suffix(".done").touch()
    return 0


def probe(args: argparse.Namespace) -> int:
    from benchmarks.photo_probe import measure_stages
    from benchmarks.photo_tasks import of_noise

    measure_stages(of_noise(args), args.stages, args.work, 2 if args.smoke else 20)
    return 0


def run(args: argparse.Namespace) -> int:
    if args.detach:
        (args.work / "ended").unlink(missing_ok=True)
        more = ["--until", *args.until, "--limit", str(args.limit), "--compile", args.compile]
        more += ["--sweep", str(args.sweep)]
        detached(args, "run", *more, *(["--seconds", *args.seconds] if args.seconds else []))
        return 0
    import torch

    from benchmarks.h200_log import start_log
    from benchmarks.photo_tasks import device_of
    from onesdaug.training.loop import OutOfTime

    end, status = time.monotonic() + args.limit, 0
    log = start_log(args.work / "train.txt")
    log(f"torch {torch.__version__} on {device_of()}")
    try:
        train(args, end, log)
    except OutOfTime as late:
        log(str(late))
        status = 3
    except Exception:
        log(traceback.format_exc())
        status = 4
    log(f"ended with {status}")
    (args.work / "ended").write_text(str(status))
    return status


def train(args: argparse.Namespace, end: float, log: Any) -> None:
    from benchmarks.photo_look import autoencoder_sheet, sweep
    from benchmarks.photo_probe import end_probe, pays
    from benchmarks.photo_tasks import judge_of, training, watching
    from onesdaug.generators.pocket.photo_training import AUTOENCODER, chain

    task = training(args, args.work / args.recipe, log, end)
    for last in args.until:
        for name in task.until(last):
            if name in task.stages:
                continue
            new, kind = not task.is_finished(name), chain(name)
            if new and kind == "denoiser":
                rest(args, task, end, name)
            if new and kind != "autoencoder":
                task.look = watching(args, task, name)
            if new and kind in ("autoencoder", "denoiser"):
                end_probe(args.work, "autoencoder" if name in AUTOENCODER else "denoiser")
            seconds = task.recipe.stage(name).seconds or 0.0
            task.compiled = new and (
                args.compile == "on" or (args.compile == "auto" and pays(args.work, name, seconds))
            )
            log(f"{name}, compiled {task.compiled}")
            task.one(name)
            if new and kind == "autoencoder":
                judge = judge_of(args.work, args.smoke)
                autoencoder_sheet(task, args.work / f"sheet-{name}.jpg", log, judge)
    for number, judged in enumerate(("judge", "judge-cub") if args.sweep else ()):
        look, judge = watching(args, task, args.until[-1]), judge_of(args.work, args.smoke, judged)
        if judge is not None:
            path = args.work / f"{judged.replace('judge', 'sweep')}.json"
            sweep(look, judge, task.denoiser, path, time.monotonic() + args.sweep / (1 + number), log)


def rest(args: argparse.Namespace, task: Any, end: float, name: str) -> None:
    """Build what the stage learns from; then give it the time that the limit and later stages leave, if it is to."""
    stage = name.partition("-")[0]
    _ = task.table
    if f"{stage}=rest" in args.seconds:
        after = task.order[task.order.index(name) + 1 :]
        later = [task.recipe.stage(other).seconds for other in after if other in args.until]
        chosen = args.work / f"rest-{name}.txt"  # a stage that was stopped goes on with the time it had
        if not chosen.is_file():  # looking on takes seconds of each stage that its budget does not know of
            chosen.write_text(f"{max(20.0, end - time.monotonic() - sum(later) - 30 * len(later) - 30):.0f}")
        task.recipe = task.recipe.with_seconds({stage: float(chosen.read_text())})


def watch(args: argparse.Namespace) -> int:
    """What was logged since, until the end or the limit; what is finished goes to $OUT."""
    from benchmarks.photo_carry import bring

    end, log, seen = time.monotonic() + args.limit, args.work / "train.txt", 0
    out = Path(os.environ.get("OUT", args.work / "out"))
    out.mkdir(parents=True, exist_ok=True)
    while True:
        text = log.read_text() if log.is_file() else ""
        print(text[seen:], end="", flush=True)
        seen = len(text)
        if (args.work / "ended").is_file() or time.monotonic() > end:
            break
        time.sleep(5)
    bring(args.work, out, "part" if args.part else "state", args.recipe)
    _show(args.work / "run.log")
    print("ended" if (args.work / "ended").is_file() else "still running")
    return 0


def write(args: argparse.Namespace) -> int:
    """The generator's folder from the stages that are there or were brought home: PLACE.state/…; its name is PLACE."""
    on_path(args.work if args.work.is_dir() else None)
    from benchmarks.photo_tasks import seen, training

    out = args.folder.absolute()
    task = training(args, out)
    for name in task.until(args.until[-1]):
        task.one(name)
    learned = {name for stage in task.stages.values() for name in stage.get("data", {}).get("classes", [])}
    card = task.write(out, seen(args.recipe, learned), int8=args.int8)
    print(f"{out}: {card['weights']}, {sum(path.stat().st_size for path in out.iterdir()) / 1e6:.1f} MB")
    return 0


def _show(path: Path) -> None:
    if path.is_file():
        print(f"--- {path.name}\n{path.read_text()[-1500:]}")


ACTIONS = {"prepare": prepare, "take": take, "decode": decode, "probe": probe, "run": run, "watch": watch,
           "write": write}  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=sorted(ACTIONS))
    parser.add_argument("folder", nargs="*", help="take: what was carried; decode: a zip file; probe: stages")
    parser.add_argument("--recipe", choices=["photo", "pocket"], default="photo")
    parser.add_argument("--coco", type=Path)
    parser.add_argument("--tiny", type=Path)
    parser.add_argument("--shards", type=int, help="prepare: only so many of the zip files of --coco")
    parser.add_argument(
        "--state", type=Path, help="prepare: finished stages from an earlier machine, or what was written"
    )
    parser.add_argument(
        "--judge", type=Path, help="prepare: the pocket whose encoder judges a polish, if not the embedded one"
    )
    parser.add_argument("--carry", type=Path, default=HERE / "carry")
    parser.add_argument("--work", type=Path, default=Path.home() / "photo-work")
    parser.add_argument("--probe", nargs="+", metavar="STAGE", help="take: also compile these in the background")
    parser.add_argument("--int8", action="store_true", help="write: the denoiser's matrices in bytes")
    parser.add_argument("--part", action="store_true", help="watch: bring the unfinished piece instead")
    parser.add_argument("--until", nargs="+", default=["decoder"], metavar="STAGE", help="the last stage to run")
    parser.add_argument("--seconds", nargs="*", default=[], metavar="STAGE=SECONDS")
    parser.add_argument("--limit", type=float, default=560.0, help="seconds of this call")
    parser.add_argument("--compile", choices=["auto", "on", "off"], default="auto")
    parser.add_argument("--sweep", type=float, default=0.0, help="run: then try settings for so many seconds")
    parser.add_argument("--detach", action="store_true", help="run: in the background")
    parser.add_argument("--smoke", action="store_true", help="the same path, tiny")
    args = parser.parse_args()
    args.stages, args.folder = args.folder, Path(args.folder[0]) if args.folder else None
    if args.action in ("run", "watch") and not args.work.is_dir():
        # lent machines go back when idle for seconds: to wait here would spend minutes on a fresh one
        print(f"nothing was taken on this machine (no {args.work}): it is a fresh one; take carry/… again")
        return 2
    if args.action not in ("prepare", "write"):
        args.work.mkdir(parents=True, exist_ok=True)
        on_path(args.work)
    return ACTIONS[args.action](args) or 0


if __name__ == "__main__":
    sys.exit(main())
