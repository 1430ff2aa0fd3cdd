"""Train ViT-Small and Swin-Tiny on a lent GPU machine that keeps nothing, for Table 3: no ImageNet weights.

Here (ONESDAUG_DATA set; --tiny is a folder of zip files of Tiny-ImageNet without miniImageNet's validation and test
classes, made by photo_data.py):

    python benchmarks/h200_studies.py prepare table-3 --tiny FOLDER           fills carry/table-1 …, carry/lite2

There, each folder in a call of its own, then the training, which lives on when its call ends:

    python3 benchmarks/h200_studies.py take carry/table-1                     and so on
    python3 benchmarks/h200_transformers.py run vit-small=420 swin-tiny=620 --limit 1200 --detach
    python3 benchmarks/h200_transformers.py watch --limit 560                 again until it says that all was brought
    python3 benchmarks/h200_studies.py run compiled score --studies transformers --models photo-128 --tag photo

NAME=SECONDS trains as many epochs as fit; a run that was stopped goes on with the same command on the same machine.
`watch` prints what was logged and brings finished checkpoints to $OUT (half precision, files below 16 MiB, as many as
a call may bring), which belong in carry/transformers: from there `prepare table-3` carries them to the next machine.
The studies look for them where they were trained. While they are, `run compiled --per-class 20 …` compiles what draws.
Test classes are not looked at in training. `--smoke`: a few pictures.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
import traceback
from dataclasses import replace
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(HERE)]

from benchmarks.h200_studies import taken  # noqa: E402

NAME = "transformers"


def on_path(work: Path) -> None:
    root = work / "repo" if (work / "repo").is_dir() else HERE
    sys.path[:0] = [str(root / "src"), str(root)]
    sys.path.append(str(work / "site"))
    if (work / "commit.txt").is_file():
        os.environ.setdefault("ONESDAUG_COMMIT", (work / "commit.txt").read_text())


def load(args: argparse.Namespace) -> tuple[Any, Any]:
    """Base classes with Tiny-ImageNet's, and validation classes; decoded once."""
    from onesdaug.data.registry import load_split
    from onesdaug.fewshot.pretrain import with_more

    cache = args.work / "cache"
    train, val = (load_split("miniimagenet", split, args.work / "data", cache=cache) for split in ("train", "val"))
    train = with_more(train, args.work / "data" / "tiny", val, cache)
    return (train.take(6, 4), val.take(8, 5)) if args.smoke else (train, val)


def run(args: argparse.Namespace) -> int:
    if args.detach:
        (args.work / "ended").unlink(missing_ok=True)
        words = [word for word in sys.argv[1:] if word != "--detach"]
        with (args.work / "run.log").open("a") as log:
            quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": log, "stdin": subprocess.DEVNULL}
            subprocess.Popen([sys.executable, __file__, *words], start_new_session=True, **quiet)
        return 0
    end, status = time.monotonic() + args.limit, 0
    import torch

    from benchmarks.h200_log import start_log

    log = start_log(args.work / "train.txt")
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        train, val = load(args)
        log(f"torch {torch.__version__} on {device}: {len(train)} images of {train.n_classes} classes, {len(val)}")
        for item in args.what:
            name, _, seconds = item.partition("=")
            log(f"mini-{name}: {one(args, name, float(seconds), (train, val), end, device)}")
    except Exception as error:  # minutes are lent once: what is finished is brought home
        from onesdaug.training.loop import OutOfTime

        status = 3 if isinstance(error, OutOfTime) else 4
        log(str(error) if status == 3 else traceback.format_exc())
    log(f"ended with {status}")
    (args.work / "ended").write_text(str(status))
    return status


def one(args: argparse.Namespace, name: str, seconds: float, data: tuple[Any, Any], end: float, device: Any) -> str:
    """One network, its checkpoint in half precision; what is there already is not trained again."""
    from onesdaug.fewshot.pretrain import pretrain
    from onesdaug.fewshot.recipes import plain_recipe

    place, out = (args.work / folder / f"mini-{name}" for folder in ("fewshot", f"{NAME}.done"))
    if not (place / "card.json").is_file():
        config, how = plain_recipe(name), {"seconds": seconds, "deadline": end, "save_seconds": 120}
        if args.smoke:
            few = {"epochs": 1, "batch": 8, "num_eval_episodes": 10, "eval_query": 3, "eval_every": 1}
            config, how = replace(config, **few), {}  # type: ignore[arg-type]
        started = out.with_name(f"{out.name}.begun")
        pretrain(config, *data, started, data_name="miniimagenet", device=device, half=True, **how)
        started.rename(out)  # whole: `watch` may look at any time
        place.parent.mkdir(exist_ok=True)
        place.symlink_to(out.absolute())  # where the studies look
    card = json.loads((place / "card.json").read_text())
    scores = {key: round(value, 2) for key, value in card["validation"].items() if isinstance(value, float)}
    return f"{scores} in {card['seconds']} s, {card['images_per_second']}/s, {card['arguments']['epochs']} epochs"


def watch(args: argparse.Namespace) -> None:
    """What was logged since, until the end or the limit; what is finished goes to $OUT."""
    from benchmarks.h200_log import follow
    from benchmarks.photo_carry import bring

    out = Path(os.environ.get("OUT", args.work / "out"))
    out.mkdir(parents=True, exist_ok=True)
    follow(args.work, args.limit, 1 if args.smoke else 5)
    bring(args.work, out, "done", NAME)
    print((args.work / "run.log").read_text()[-1500:] if (args.work / "run.log").is_file() else "")
    print("ended" if (args.work / "ended").is_file() else "still running")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=["run", "watch"])
    parser.add_argument("what", nargs="*", help="run: vit-small=SECONDS swin-tiny=SECONDS")
    parser.add_argument("--work", type=Path, default=Path.home() / "onesdaug-work")
    parser.add_argument(
        "--limit", type=float, default=560.0, help="seconds of this call, or of a run that is detached"
    )
    parser.add_argument("--detach", action="store_true", help="run: in the background")
    parser.add_argument("--smoke", action="store_true", help="the same path on a few pictures")
    args = parser.parse_args()
    if not taken(args.work):
        return 2
    on_path(args.work)
    actions: dict[str, Any] = {"run": run, "watch": watch}
    return actions[args.action](args) or 0


if __name__ == "__main__":
    sys.exit(main())
