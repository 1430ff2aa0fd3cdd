"""Train the released few-shot checkpoints on a lent GPU machine that keeps nothing and is lent for minutes.

Here (ONESDAUG_DATA set):    python benchmarks/h200_fewshot.py prepare        fills carry/a, carry/b
There, call after call:      python benchmarks/h200_fewshot.py run --take carry/a --stages cub-convnet,…
Here again:                  python benchmarks/h200_fewshot.py unpack FILES_AT        fills carry/candidates
                             python benchmarks/h200_fewshot.py release

Stages skip what is done and resume what was cut off; `name=seconds` trains as many epochs as fit instead of the
recipe's. `release` scores candidates on the whole validation split and writes `artifacts/fewshot`. Test classes are
never looked at here: that is `benchmarks/fewshot_accuracy.py`.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tarfile
import time
import traceback
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT)]

import torch  # noqa: E402

from benchmarks.average import average  # noqa: E402
from benchmarks.h200_log import start_log  # noqa: E402
from onesdaug.data.dataset import Dataset  # noqa: E402
from onesdaug.data.registry import load_split  # noqa: E402
from onesdaug.encoders.checkpoint import load_checkpoint, save_checkpoint  # noqa: E402
from onesdaug.fewshot.meta import meta_train  # noqa: E402
from onesdaug.fewshot.pretrain import pretrain  # noqa: E402
from onesdaug.fewshot.recipes import META, PRETRAIN, MetaConfig, PretrainConfig  # noqa: E402
from onesdaug.training.loop import OutOfTime  # noqa: E402

PART = 15 * 2**20  # what comes back is at most 16 MiB a file
GRACE = 15.0  # seconds beyond a stage's own
VAL_PER_CLASS = 300  # of miniImageNet's 600: what travels is limited too

# name: (data, starts from, recipe)
STAGES: dict[str, tuple[str, str | None, PretrainConfig | MetaConfig]] = {
    "cub-convnet": ("cub", None, PRETRAIN["cub", "convnet"]),
    "cub-protonet-convnet": ("cub", "cub-convnet", META["cub", "convnet", "protonet"]),
    "cub-feat-convnet": ("cub", "cub-convnet", META["cub", "convnet", "feat"]),
    "mini-res12": ("miniimagenet", None, PRETRAIN["miniimagenet", "res12"]),
    "mini-protonet-res12": ("miniimagenet", "mini-res12", META["miniimagenet", "res12", "protonet"]),
    "mini-feat-res12": ("miniimagenet", "mini-res12", META["miniimagenet", "res12", "feat"]),
    "mini-convnet": ("miniimagenet", None, PRETRAIN["miniimagenet", "convnet"]),
    "mini-protonet-convnet": ("miniimagenet", "mini-convnet", META["miniimagenet", "convnet", "protonet"]),
}
# Released weights that are an average: {candidate: share}. Shares were chosen on validation classes.
AVERAGES: dict[str, dict[str, float]] = {
    "mini-protonet-res12": {"mini-protonet-res12": 0.5, "mini-res12": 0.5},
    "mini-feat-res12": {"mini-feat-res12": 0.5, "mini-res12": 0.5},
    "mini-protonet-convnet": {"mini-protonet-convnet": 0.8, "mini-convnet": 0.2},
}
# Trained with Euclidean distances, released with cosine, at the temperature that fits: validation prefers it.
HEADS: dict[str, dict[str, Any]] = {"mini-protonet-res12": {"metric": "cosine", "temperature": 0.0625}}


class Run:
    """One call on the device machine: where things lie, what has been logged, the data sets read so far."""

    def __init__(self, work: Path, out: Path, smoke: bool) -> None:
        self.work, self.out, self.smoke = work, out, smoke
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.data: dict[str, tuple[Dataset, Dataset]] = {}
        self.log = start_log(out / "log.txt")

    def load(self, name: str) -> tuple[Dataset, Dataset]:
        if name not in self.data:
            train, val = (load_split(name, split, self.work / "data") for split in ("train", "val"))
            if self.smoke:
                train, val = train.take(8, 5), val.take(8, 5)
            self.data[name] = train, val
            self.log(f"{name}: train {train.images.shape} {train.fingerprint}, val {val.images.shape}")
        return self.data[name]

    def shrink(self, config: PretrainConfig | MetaConfig) -> PretrainConfig | MetaConfig:
        """The same path on two CPU cores."""
        if not self.smoke:
            return config
        if isinstance(config, PretrainConfig):
            return replace(config, epochs=1, lr=0.002, batch=20, num_eval_episodes=20, eval_query=3)
        return replace(config, max_epoch=1, tasks=1, query=2, episodes_per_epoch=2, num_eval_episodes=20, eval_query=3)

    def stage(self, name: str, seconds: float | None) -> dict[str, Any]:
        """One checkpoint, half precision; with `seconds`, as many epochs as fit."""
        out = self.work / "released" / name
        if (out / "card.json").is_file():
            self.log(f"{name}: done already")
            return dict(json.loads((out / "card.json").read_text()))
        data, init, recipe = STAGES[name]
        train, val = self.load(data)
        self.log(f"== {name} on {self.device}")
        config = self.shrink(recipe)
        common: dict[str, Any] = {
            "data_name": data, "device": self.device, "half": True, "seconds": seconds, "save_seconds": 90,
            "deadline": None if seconds is None or self.smoke else time.monotonic() + seconds * 1.05 + GRACE,
        }  # fmt: skip
        if isinstance(config, PretrainConfig):
            card = pretrain(config, train, val, out, **common)
        else:
            card = meta_train(config, self.work / "released" / str(init), train, val, out, **common)
        self.log(f"{name}: {summary(card)}")
        return card

    def bundle(self, names: list[str]) -> None:
        """Released checkpoints as one tar in parts small enough to come back; written anew after every stage."""
        for old in self.out.glob("bundle.part*"):
            old.unlink()
        packed = self.work / "bundle.tar"
        with tarfile.open(packed, "w") as tar:
            for name in names:
                if (self.work / "released" / name).is_dir():
                    tar.add(self.work / "released" / name, arcname=name)
        with packed.open("rb") as handle:
            for i, chunk in enumerate(iter(lambda: handle.read(PART), b"")):
                (self.out / f"bundle.part{i:02d}").write_bytes(chunk)


def summary(card: dict[str, Any]) -> str:
    scores = {k: round(v, 2) for k, v in card["validation"].items() if isinstance(v, float)}
    rate = card.get("images_per_second") or card.get("episodes_per_second")
    return f"{scores} in {card['seconds']} s, {rate}/s, resize {card['preprocess']['resize']}"


def prepare(data: Path, carry: Path) -> None:
    """Two folders that fit what one call may carry; validation images are the first of each class."""
    mini, cub = data / "miniimagenet", data / "cub"
    plan: dict[str, list[Path]] = {
        "a": [cub / "train.zip", cub / "val.zip", *(mini / f"train-{i}.zip" for i in range(3))],
        "b": [mini / f"train-{i}.zip" for i in range(3, 8)],
    }
    for name, files in plan.items():
        for source in files:
            target = carry / name / source.parent.name / source.name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target)
    with (
        zipfile.ZipFile(mini / "val.zip") as full,
        zipfile.ZipFile(carry / "b" / "miniimagenet" / "val.zip", "w") as few,
    ):
        for member in _first_of_each_class(full.namelist(), VAL_PER_CLASS):
            few.writestr(member, full.read(member))
    for name in plan:
        size = sum(p.stat().st_size for p in (carry / name).rglob("*") if p.is_file())
        print(f"carry/{name}: {size / 2**20:.1f} MiB")


def _first_of_each_class(names: list[str], count: int) -> Iterator[str]:
    seen: dict[str, int] = {}
    for name in names:
        kind = name.split("/")[0]
        seen[kind] = seen.get(kind, 0) + 1
        if seen[kind] <= count:
            yield name


def run(args: argparse.Namespace) -> int:
    task = Run(args.work, Path(os.environ.get("OUT", args.work / "out")), args.smoke)
    for folder in args.take:
        shutil.copytree(folder, args.work / "data", dirs_exist_ok=True)
    task.log(f"torch {torch.__version__} on {task.device}, stages {args.stages}")
    status, done = 0, []
    for item in filter(None, args.stages.split(",")):
        name, _, seconds = item.partition("=")
        try:
            task.stage(name, float(seconds) if seconds else None)
        except OutOfTime as late:  # its state is kept: the next call goes on with it
            task.log(f"{name}: {late}")
            status = 3
        except Exception:  # minutes are lent once: what does not depend on this stage still runs
            task.log(f"{name} failed\n{traceback.format_exc()}")
            status = 4
        else:
            done.append(name)
            task.bundle(done)
    task.log(f"finished with {status}")
    return status


def unpack(folder: Path, to: Path) -> None:
    to.mkdir(parents=True, exist_ok=True)
    joined = to / ".bundle.tar"
    with joined.open("wb") as handle:
        for piece in sorted(folder.glob("bundle.part*")):
            handle.write(piece.read_bytes())
    with tarfile.open(joined) as tar:
        tar.extractall(to, filter="data")
    joined.unlink()
    print("\n".join(f"{p.name}: {summary(json.loads((p / 'card.json').read_text()))}" for p in sorted(to.iterdir())))


def release(candidates: Path, to: Path, names: list[str]) -> None:
    """Candidates become what is committed: half precision, scored on the whole validation split."""
    from fewshot_accuracy import ORDER, measure

    for name in names or ORDER:
        shares = AVERAGES.get(name, {name: 1.0})
        loaded = {part: load_checkpoint(candidates / part) for part in shares}
        tensors = average([(loaded[part][0], share) for part, share in shares.items()])
        card = loaded[name][1]
        if len(shares) > 1:
            card["average_of"] = [
                {"name": part, "weights": loaded[part][1]["weights"], "share": share} for part, share in shares.items()
            ]
        if name in HEADS:
            card["head"]["trained_with"] = card["head"]["settings"]
            card["head"]["settings"] = HEADS[name]
        save_checkpoint(to / name, tensors, card, half=True)
        precision = "bfloat16" if card["backbone"] == "res12" else "float32"  # float32 takes twice as long
        found = measure(to / name, "val", ROOT / ".cache" / "fewshot", precision=precision)
        accuracy = {shot: found[shot]["accuracy"] for shot in ("1shot", "5shot")}
        described = {key: found[key] for key in ("episodes", "seed", "precision", "data")}
        card["validation"] = {"full": accuracy | described, "while_training": card["validation"]}
        save_checkpoint(to / name, tensors, card, half=True)
        print(f"{name}: {accuracy}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=["prepare", "run", "unpack", "release"])
    parser.add_argument("path", nargs="?", type=Path, help="unpack: the folder with what came back")
    parser.add_argument(
        "--take", nargs="*", type=Path, default=[], help="carried folders to copy into the work folder"
    )
    parser.add_argument("--stages", default="", help="run: name or name=seconds; release: name; comma between")
    parser.add_argument("--work", type=Path, default=Path("/tmp/fsl"))
    parser.add_argument("--candidates", type=Path, default=ROOT / "carry" / "candidates")
    parser.add_argument("--smoke", action="store_true", help="the same path on a few images")
    args = parser.parse_args()
    if args.action == "prepare":
        prepare(Path(os.environ["ONESDAUG_DATA"]), ROOT / "carry")
    elif args.action == "unpack":
        unpack(args.path, args.candidates)
    elif args.action == "release":
        release(args.candidates, ROOT / "artifacts" / "fewshot", [*filter(None, args.stages.split(","))])
    else:
        return run(args)
    return 0


if __name__ == "__main__":
    sys.exit(main())
