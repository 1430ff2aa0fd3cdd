"""Train ViT-Small and Swin-Tiny on a lent GPU machine that keeps nothing: plain classifiers, no ImageNet weights.

Here (ONESDAUG_DATA set; --tiny is a folder of zip files of Tiny-ImageNet without miniImageNet's validation and test
classes):

    python benchmarks/h200_transformers.py prepare --tiny FOLDER              fills carry/vit-1 …

There, every call with one of these folders, then the training, which lives on when its call ends:

    python3 benchmarks/h200_transformers.py take carry/vit-1                  and so on; decodes meanwhile
    python3 benchmarks/h200_transformers.py run vit-small=660 swin-tiny=660 --limit 1440 --detach
    python3 benchmarks/h200_transformers.py watch --limit 560                 again until it says that all was brought

NAME=SECONDS trains as many epochs as fit; a run that was stopped goes on with the same command on the same machine.
`watch` prints what was logged and brings finished checkpoints to $OUT (half precision, files below 16 MiB, as many as
a call may bring), which belong in carry/transformers. Test classes are never looked at. `--smoke`: a few pictures.
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

from benchmarks import h200_carry as carry  # noqa: E402
from benchmarks import h200_studies  # noqa: E402

NAME = "transformers"
PACKAGES = ("pydantic", "pydantic_core", "annotated-types", "typing-inspection", "typing-extensions", "rich",
            "safetensors", "markdown-it-py", "mdurl", "pygments")  # fmt: skip


def prepare(args: argparse.Namespace) -> None:
    """Six folders: code with the validation classes, then the pictures to learn from."""
    data = Path(os.environ["ONESDAUG_DATA"])
    mini = [f"miniimagenet/train-{number}.zip" for number in range(8)]
    tiny = [[(path, f"data/tiny/{path.name}")] for path in sorted(args.tiny.glob("*.zip"))]
    code = [item for item in carry.code() if item[1] in ("repo/src", "repo/benchmarks")]
    parts = [code + carry.of(data, "miniimagenet/val.zip"), carry.of(data, *mini[:6])]
    parts += [carry.of(data, *mini[6:]) + tiny[-1], *tiny[:-1]]
    carry.pack(args.carry, {f"vit-{number}": items for number, items in enumerate(parts, 1)}, PACKAGES)


def on_path(work: Path) -> None:
    root = work / "repo" if (work / "repo").is_dir() else HERE
    sys.path[:0] = [str(root / "src"), str(root)]
    sys.path.append(str(work / "site"))
    if (work / "commit.txt").is_file():
        os.environ.setdefault("ONESDAUG_COMMIT", (work / "commit.txt").read_text())


def take(args: argparse.Namespace) -> None:
    h200_studies.take(Path(args.what[0]), args.work)
    import transformers

    print(f"transformers {transformers.__version__}")


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
        words = [sys.executable, __file__, "run", *args.what, "--limit", str(args.limit), "--work", str(args.work)]
        with (args.work / "run.log").open("a") as log:
            smoke = ["--smoke"] if args.smoke else []
            quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": log, "stdin": subprocess.DEVNULL}
            subprocess.Popen([*words, *smoke], start_new_session=True, **quiet)
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

    out = args.work / f"{NAME}.done" / f"mini-{name}"
    if not (out / "card.json").is_file():
        config, how = plain_recipe(name), {"seconds": seconds, "deadline": end, "save_seconds": 120}
        if args.smoke:
            few = {"epochs": 1, "batch": 8, "num_eval_episodes": 10, "eval_query": 3, "eval_every": 1, "compile": None}
            config, how = replace(config, **few), {}  # type: ignore[arg-type]
        started = out.with_name(f"{out.name}.begun")
        pretrain(config, *data, started, data_name="miniimagenet", device=device, half=True, **how)
        started.rename(out)  # whole: `watch` may look at any time
    card = json.loads((out / "card.json").read_text())
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
    parser.add_argument("action", choices=["prepare", "take", "run", "watch"])
    parser.add_argument("what", nargs="*", help="take: a folder; run: vit-small=SECONDS swin-tiny=SECONDS")
    parser.add_argument("--tiny", type=Path)
    parser.add_argument("--carry", type=Path, default=HERE / "carry")
    parser.add_argument("--work", type=Path, default=Path.home() / "transformers-work")
    parser.add_argument(
        "--limit", type=float, default=560.0, help="seconds of this call, or of a run that is detached"
    )
    parser.add_argument("--detach", action="store_true", help="run: in the background")
    parser.add_argument("--smoke", action="store_true", help="the same path on a few pictures")
    args = parser.parse_args()
    args.work.mkdir(parents=True, exist_ok=True)
    on_path(args.work)
    if args.action in ("run", "watch") and not h200_studies.taken(args.work):
        return 2
    actions: dict[str, Any] = {"prepare": prepare, "take": take, "run": run, "watch": watch}
    return actions[args.action](args) or 0


if __name__ == "__main__":
    sys.exit(main())
