"""Train the few-shot checkpoints on a lent GPU machine that keeps nothing and is lent for minutes.

Here (ONESDAUG_DATA set):    python benchmarks/h200_fewshot.py prepare        fills carry/a, carry/b, carry/c
There, three calls:          python benchmarks/h200_fewshot.py run --take carry/a --stages cub-convnet=30,…
Here again:                  python benchmarks/h200_fewshot.py unpack FILES_AT --to artifacts/fewshot
                             python benchmarks/h200_fewshot.py test CHECKPOINT… --data cub

Stages skip what is done and resume what was cut off. Choices are made on validation classes; `test` only reports.
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
sys.path.insert(0, str(ROOT / "src"))

import torch  # noqa: E402

from onesdaug.data.dataset import Dataset  # noqa: E402
from onesdaug.data.registry import load_split  # noqa: E402
from onesdaug.encoders.load import load_encoder  # noqa: E402
from onesdaug.errors import OnesdaugError  # noqa: E402
from onesdaug.fewshot.checkpoint import load_head  # noqa: E402
from onesdaug.fewshot.heads import ProtoNet  # noqa: E402
from onesdaug.fewshot.loop import OutOfTime  # noqa: E402
from onesdaug.fewshot.meta import meta_train  # noqa: E402
from onesdaug.fewshot.pretrain import pretrain  # noqa: E402
from onesdaug.fewshot.recipes import META, PRETRAIN, MetaConfig, PretrainConfig  # noqa: E402
from onesdaug.fewshot.validate import Validator  # noqa: E402

PART = 15 * 2**20  # what comes back is at most 16 MiB a file
VAL_PER_CLASS = 300  # of miniImageNet's 600: what travels is limited too

_CONV, _CONV_PROTO, _CONV_FEAT = PRETRAIN["convnet"], META["convnet", "protonet"], META["convnet", "feat"]
_RES12_PROTO, _RES12_FEAT = META["res12", "protonet"], META["res12", "feat"]
# name: (data, starts from, candidates); the candidate with the best validation score is released
STAGES: dict[str, tuple[str, str | None, list[PretrainConfig] | list[MetaConfig]]] = {
    "probe-res12": ("cub", None, [PRETRAIN["res12"]]),  # does Res12 run there, and how fast; not kept
    "cub-convnet": ("cub", None, [_CONV, replace(_CONV, weight_decay=1e-4)]),
    "cub-protonet-convnet": (
        "cub", "cub-convnet",
        [_CONV_PROTO, replace(_CONV_PROTO, lr=1e-3), replace(_CONV_PROTO, use_euclidean=False, lr=1e-3)],
    ),
    "cub-feat-convnet": ("cub", "cub-convnet", [_CONV_FEAT, replace(_CONV_FEAT, lr=1e-3, balance=0.1)]),
    "mini-res12": ("miniimagenet", None, [PRETRAIN["res12"]]),
    "mini-protonet-res12": ("miniimagenet", "mini-res12", [_RES12_PROTO, replace(_RES12_PROTO, lr=4e-3)]),
    "mini-feat-res12": ("miniimagenet", "mini-res12", [_RES12_FEAT, replace(_RES12_FEAT, lr=2.5e-3, balance=0.01)]),
    "mini-convnet": ("miniimagenet", None, [_CONV, replace(_CONV, weight_decay=1e-4)]),
    "mini-protonet-convnet": ("miniimagenet", "mini-convnet", [_CONV_PROTO, replace(_CONV_PROTO, lr=1e-3)]),
    "mini-convnet-long": ("miniimagenet", None, [replace(_CONV, crop_scale=(0.5, 1.0), jitter=0.2)]),
    "mini-protonet-convnet-long": (
        "miniimagenet", "mini-convnet-long",
        [replace(_CONV_PROTO, use_euclidean=False, lr=2e-3), replace(_CONV_PROTO, lr=2e-3)],
    ),
    "mini-feat-res12-long": ("miniimagenet", "mini-res12", [replace(_RES12_FEAT, lr=5e-3, balance=0.01)]),
}  # fmt: skip


class Run:
    """One call on the device machine: where things lie, what has been logged, the data sets read so far."""

    def __init__(self, work: Path, out: Path, smoke: bool) -> None:
        self.work, self.out, self.smoke = work, out, smoke
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.began = time.monotonic()
        self.data: dict[str, tuple[Dataset, Dataset]] = {}
        out.mkdir(parents=True, exist_ok=True)

    def log(self, text: str) -> None:
        line = f"[{time.monotonic() - self.began:6.1f}] {text}"
        print(line, flush=True)
        with (self.out / "log.txt").open("a") as handle:
            handle.write(line + "\n")

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
            return replace(config, lr=0.002, batch=20, num_eval_episodes=20, eval_query=3)
        return replace(config, tasks=1, query=2, episodes_per_epoch=2, num_eval_episodes=20, eval_query=3)

    def stage(self, name: str, seconds: float, grace: float = 15.0) -> dict[str, Any]:
        """All candidates of a stage within its seconds; the best is released, half precision."""
        released = self.work / "released" / name
        if (released / "card.json").is_file():
            self.log(f"{name}: done already")
            return dict(json.loads((released / "card.json").read_text()))
        data, init, candidates = STAGES[name]
        train, val = self.load(data)
        cards: list[tuple[float, Path, dict[str, Any]]] = []
        for i, config in enumerate(candidates):
            assert isinstance(config, PretrainConfig | MetaConfig)
            out = self.work / "candidates" / f"{name}-{i}"
            share = seconds / len(candidates)
            deadline = None if self.smoke else time.monotonic() + share * 1.05 + grace
            self.log(f"== {name} candidate {i}: {share:.0f} s on {self.device}")
            shrunk = self.shrink(config)
            common: dict[str, Any] = {
                "data_name": data, "device": self.device, "half": True, "seconds": share, "deadline": deadline,
                "save_seconds": 90, "log": self.log,
            }  # fmt: skip
            try:
                if (out / "card.json").is_file():
                    card = json.loads((out / "card.json").read_text())
                elif isinstance(shrunk, PretrainConfig):
                    card = pretrain(shrunk, train, val, out, **common)
                else:
                    card = meta_train(shrunk, self.work / "released" / str(init), train, val, out, **common)
            except (OutOfTime, OnesdaugError) as error:
                self.log(f"{name} candidate {i}: {error}")
                if not cards and i == len(candidates) - 1:
                    raise
                continue  # a candidate that diverges or is late must not cost the others
            cards.append((card["validation"]["score"], out, card))
            self.log(f"{name} candidate {i}: {summary(card)}")
        score, best, card = max(cards, key=lambda c: c[0])
        released.parent.mkdir(parents=True, exist_ok=True)
        shutil.copytree(best, released)
        self.log(f"{name}: released candidate {best.name} with validation score {score:.2f}")
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

    def test(self, folders: list[Path], data: str, root: Path, episodes: int) -> dict[str, Any]:
        """Test classes, full precision, every shot; nothing is chosen here."""
        torch.backends.cudnn.allow_tf32 = False
        split = load_split(data, "test", root)
        split = split.take(8, 5) if self.smoke else split
        results: dict[str, Any] = {}
        for folder in folders:
            encoder = load_encoder(folder, self.device)
            head = load_head(folder) or ProtoNet("cosine")
            protocol = MetaConfig(num_eval_episodes=episodes, eval_query=3 if self.smoke else 15)
            judge = Validator(split, encoder.preprocess, self.device, protocol, seed=0)
            rows = [
                encoder.embed(judge.images[i : i + 256].permute(0, 3, 1, 2)) for i in range(0, len(judge.images), 256)
            ]
            features = torch.cat(rows)
            results[folder.name] = {"data": data, "fingerprint": split.fingerprint, "episodes": episodes}
            for shot in (1, 5):
                logits, targets = judge.logits(features, head.to(self.device), shot)
                hits = 100 * (logits.argmax(-1) == targets).double().mean(1)
                ci = 1.96 * float(hits.std(correction=0)) / episodes**0.5
                results[folder.name][f"{shot}shot"] = [round(float(hits.mean()), 3), round(ci, 3)]
            self.log(f"TEST {folder.name}: {results[folder.name]}")
        return results


def summary(card: dict[str, Any]) -> str:
    scores = {k: round(v, 2) for k, v in card["validation"].items() if isinstance(v, float)}
    rate = card.get("images_per_second") or card.get("episodes_per_second")
    return f"{scores} in {card['seconds']} s, {rate}/s, resize {card['preprocess']['resize']}"


def prepare(data: Path, carry: Path, smoke: bool) -> None:
    """Three folders that fit what one call may carry; validation images are the first of each class."""
    mini, cub = data / "miniimagenet", data / "cub"
    plan: dict[str, list[Path]] = {
        "a": [cub / "train.zip", cub / "val.zip", *(mini / f"train-{i}.zip" for i in range(3))],
        "b": [mini / f"train-{i}.zip" for i in range(3, 8)],
        "c": [mini / "test.zip"],
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
            task.stage(name, float(seconds))
        except OutOfTime as late:  # its state is kept: the next call goes on with it
            task.log(f"{name}: {late}")
            status = 3
        except Exception:  # minutes are lent once: what does not depend on this stage still runs
            task.log(f"{name} failed\n{traceback.format_exc()}")
            status = 4
        else:
            if not name.startswith("probe"):
                done.append(name)
            task.bundle(done)
    if args.test:
        folders = [args.work / "released" / n for n in STAGES if (args.work / "released" / n).is_dir()]
        mini = [f for f in folders if f.name.startswith("mini")]
        results = task.test(mini, "miniimagenet", args.work / "data", args.episodes)
        (task.out / "results.json").write_text(json.dumps(results, indent=2) + "\n")
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


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=["prepare", "run", "unpack", "test"])
    parser.add_argument("paths", nargs="*", type=Path)
    parser.add_argument(
        "--take", nargs="*", type=Path, default=[], help="carried folders to copy into the work folder"
    )
    parser.add_argument("--stages", default="", help="name=seconds, comma between")
    parser.add_argument("--work", type=Path, default=Path("/tmp/fsl"))
    parser.add_argument("--to", type=Path, default=ROOT / "artifacts" / "fewshot")
    parser.add_argument("--data", default="miniimagenet")
    parser.add_argument("--episodes", type=int, default=10_000)
    parser.add_argument(
        "--test", action="store_true", help="after the stages: accuracy on miniImageNet's test classes"
    )
    parser.add_argument("--smoke", action="store_true", help="the same path on a few images")
    args = parser.parse_args()
    root = Path(os.environ.get("ONESDAUG_DATA", "."))
    if args.action == "prepare":
        prepare(root, ROOT / "carry", args.smoke)
    elif args.action == "unpack":
        unpack(args.paths[0], args.to)
    elif args.action == "test":
        print(json.dumps(Run(args.work, args.work / "out", False).test(args.paths, args.data, root, args.episodes)))
    else:
        return run(args)
    return 0


if __name__ == "__main__":
    sys.exit(main())
