"""Train and tune the pocket generators on a lent GPU machine that keeps nothing and is lent for minutes.

Here (ONESDAUG_DATA set):  python benchmarks/h200_pocket.py prepare       fills carry/1 … carry/5
There, call after call:    python benchmarks/h200_pocket.py run --take carry/2 --job train:pocket …

Jobs: `train:NAME` (resumes), `back:NAME+NAME` (its weights come back), `sweep:FILE` (settings in a JSON file of
`benchmarks/plans`, on validation classes), `test:FILE` (the released settings, on the test classes, once),
`sheet:FILE` (pictures to look at), `speed:FILE`. What comes back is small: weights, per-episode accuracies, logs.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import time
import traceback
import types
from dataclasses import replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT)]

import numpy as np  # noqa: E402
import torch  # noqa: E402
from torch import Tensor  # noqa: E402

from benchmarks.h200_log import start_log  # noqa: E402
from onesdaug.data.dataset import Dataset  # noqa: E402
from onesdaug.data.registry import load_split  # noqa: E402
from onesdaug.generators.pocket.recipe import RECIPES  # noqa: E402
from onesdaug.generators.pocket.smoke import SMOKE  # noqa: E402
from onesdaug.training.loop import OutOfTime  # noqa: E402

CLASSIFIERS = ("mini-protonet-convnet", "mini-protonet-res12", "mini-feat-res12")


class Run:
    """One call on the device machine: where things lie and what has been logged."""

    def __init__(self, work: Path, out: Path, smoke: bool, limit: float) -> None:
        self.work, self.out, self.smoke = work, out, smoke
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.began = time.monotonic()
        self.deadline = self.began + limit
        self.splits: dict[str, Dataset] = {}
        self.log = start_log(out / "log.txt")

    def split(self, name: str) -> Dataset:
        """Decoded once per machine: later calls read the arrays."""
        if name not in self.splits:
            data = load_split("miniimagenet", name, self.work / "data", cache=self.work / "cache")
            self.splits[name] = data.take(8, 4) if self.smoke else data
            self.log(f"{name}: {self.splits[name].images.shape} {self.splits[name].fingerprint}")
        return self.splits[name]

    def train(self, name: str) -> None:
        from onesdaug.generators.pocket.training import train

        recipe = SMOKE if self.smoke else RECIPES[name]
        init = None
        if name == "pocket-imagenet":
            init = self.work / "pocket"
            if self.smoke:
                network = replace(SMOKE.network, global_dim=1280, local_dim=1280)
                recipe = replace(SMOKE, condition="efficientnet-lite0", network=network)
        facts = {"machine": {"device": str(self.device) if self.device.type == "cpu" else
                             torch.cuda.get_device_name(), "torch": torch.__version__},
                 "commit": os.environ.get("ONESDAUG_COMMIT", "unknown")}  # fmt: skip
        card = train(
            recipe, self.split("train"), self.work / name, init=init, data_name="miniimagenet",
            device=self.device, deadline=self.deadline, facts=facts,
        )  # fmt: skip
        self.log(f"{name}: {card['parameters']} in {card['seconds']} s")

    def bring_back(self, names: list[str]) -> None:
        for name in names:
            if (self.work / name / "card.json").is_file():
                shutil.copytree(self.work / name, self.out / name, dirs_exist_ok=True)

    # ---- evaluation -------------------------------------------------------------------------------------------

    def part(self, split: str, per_class: int | None) -> Dataset:
        data = self.split(split)
        return data if per_class is None or self.smoke else data.sample(per_class)

    def classifiers(self) -> dict[str, Any]:
        from onesdaug.encoders.load import load_encoder
        from onesdaug.fewshot.heads import load_head

        return {
            name: (load_encoder(self.work / "data" / "fewshot" / name, self.device),
                   load_head(self.work / "data" / "fewshot" / name))
            for name in CLASSIFIERS if (self.work / "data" / "fewshot" / name).is_dir()
        }  # fmt: skip

    def embed(self, encoder: Any, images: Tensor) -> Tensor:
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.device.type == "cuda"):
            return encoder.embed(images, 1024).float()

    def source(self, setting: dict[str, Any]) -> Any:
        from onesdaug.augment.config import AugmentConfig
        from onesdaug.augment.operator import Augmenter
        from onesdaug.ensemble.traditional import CropFlip

        if setting["model"] == "crop-flip":
            return CropFlip(**setting.get("config", {}))
        config = AugmentConfig(**setting.get("config", {}), mode=setting.get("mode"))
        if setting["model"] == "shape":
            return Augmenter(None, config, device=self.device, batch_size=2048)
        from onesdaug.generators.pocket import Pocket

        generator = Pocket.from_pretrained(self.work / setting["model"], device=self.device)
        if setting.get("weights"):  # an earlier stage's weights instead of the finished ones
            both = torch.load(self.work / f"{setting['model']}.state" / setting["weights"], map_location="cpu")
            generator.denoiser.load_state_dict(_under(both, "denoiser."))
            generator.tokens.load_state_dict(_under(both, "tokens."))
            generator.to(generator.device, generator.dtype)
        return Augmenter(generator, config, batch_size=2048)

    def views(self, setting: dict[str, Any], images: Tensor, ids: tuple[str, ...], k: int, chunk: int = 1024) -> Any:
        """Chunks (rows, views of those rows)."""
        source = self.source(setting)
        for start in range(0, len(images), chunk):
            rows = slice(start, start + chunk)
            yield rows, source.tensors(images[rows], k, seeds=[f"0:{i}" for i in ids[rows]])

    def evaluate(self, file: str, split: str) -> None:
        """Every setting of the file on the same episodes; accuracies per episode go to $OUT."""
        from onesdaug.fewshot.bank import BankInfo, FeatureBank
        from onesdaug.fewshot.evaluate import Task, ViewUse, accuracies, features_for

        plan = json.loads((ROOT / file).read_text())
        data = self.part(split, plan.get("per_class"))
        images = torch.from_numpy(np.array(data.images)).permute(0, 3, 1, 2).to(self.device).float() / 255
        classifiers = self.classifiers()
        keep = plan.get("classifiers", list(classifiers))
        classifiers = {k: v for k, v in classifiers.items() if k in keep}
        labels = torch.from_numpy(np.array(data.labels))
        info = BankInfo(data.class_names, data.ids, data.fingerprint, "", {"source": "sweep", "k": plan["k"]}, 0, "")
        originals = {name: self.embed(encoder, images).cpu() for name, (encoder, _) in classifiers.items()}
        shots = plan.get("shots", [1])
        episodes = {
            s: Task(
                shot=s, query=15 if not self.smoke else 3, episodes=plan["episodes"], seed=plan.get("seed", 0)
            ).sample(labels)
            for s in shots
        }
        rows: list[dict[str, Any]] = []
        arrays: dict[str, np.ndarray] = {}
        self.log(f"{split}: {len(data)} images, classifiers {list(classifiers)}")
        for number, setting in enumerate(plan["settings"]):
            if time.monotonic() > self.deadline:
                self.log(f"time is up after {number} settings")
                break
            try:
                began = time.monotonic()
                features: dict[str, list[Tensor]] = {name: [] for name in classifiers}
                for _, made in self.views(setting, images, data.ids, plan["k"]):
                    for name, (encoder, _) in classifiers.items():
                        features[name].append(
                            self.embed(encoder, made.flatten(0, 1)).unflatten(0, made.shape[:2]).cpu()
                        )
                if self.device.type == "cuda":
                    torch.cuda.synchronize()
                spent = time.monotonic() - began
                row: dict[str, Any] = {"setting": setting, "seconds": round(spent, 2)}
                for name, (_, head) in classifiers.items():
                    stacked = torch.cat([originals[name][:, None], torch.cat(features[name])], dim=1)
                    bank = FeatureBank(stacked, labels, info)
                    if number == 0 or plan.get("keep_banks"):
                        torch.save(stacked.half(), self.work / f"{split}-{setting['name']}-{name}.pt")
                    for shot in shots:
                        for k in plan.get("uses", [plan["k"]]):
                            base = f"{name}/{shot}shot/base"
                            if base not in arrays:
                                arrays[base] = accuracies(
                                    head, features_for(bank, episodes[shot], ViewUse()), episodes[shot]
                                )
                            mine = accuracies(head, features_for(bank, episodes[shot], ViewUse(k, k)), episodes[shot])
                            arrays[f"{name}/{shot}shot/{setting['name']}/k{k}"] = mine
                            row[f"{name}/{shot}shot/k{k}"] = round(100 * float(mine.mean()), 2)
                rows.append(row)
                shown = " ".join(f"{k.removeprefix('mini-')} {v}" for k, v in row.items() if "shot" in k)
                self.log(f"{setting['name']}: {shown} ({spent:.1f} s)")
            except Exception:
                self.log(f"{setting['name']} failed\n{traceback.format_exc()}")
            finally:
                bases = {k: round(100 * float(v.mean()), 2) for k, v in arrays.items() if k.endswith("base")}
                self.log(f"baselines {bases}")
                name = Path(file).stem
                (self.out / f"{name}.json").write_text(
                    json.dumps(
                        {"split": split, "data": data.fingerprint, "plan": plan, "rows": rows, "baselines": bases},
                        indent=1,
                    )
                )
                np.savez_compressed(
                    self.out / f"{name}.npz", **{k.replace("/", "|"): v.astype(np.float32) for k, v in arrays.items()}
                )

    def sheet(self, file: str) -> None:
        """Views of a few random validation images, to be looked at and not kept: rows of original and views."""
        from onesdaug.data.pixels import to_pil

        plan = json.loads((ROOT / file).read_text())
        data = self.part("val", 1)
        images = torch.from_numpy(np.array(data.images[:12])).permute(0, 3, 1, 2).to(self.device).float() / 255
        for setting in plan["settings"]:
            made = self.source(setting).tensors(images, 4, seeds=list(data.ids[:12]))
            grid = torch.cat([images[:, None], made.to(images)], dim=1)  # (12, 5, 3, H, W)
            side = grid.shape[-1]
            grid = grid.reshape(6, 10, 3, side, side).permute(2, 0, 3, 1, 4).reshape(3, 6 * side, 10 * side)
            to_pil(grid[None].cpu())[0].save(self.out / f"sheet-{setting['name']}.jpg", quality=88)

    def speed(self, file: str) -> None:
        """Views per second of the whole operator, from images on the device to views on the device."""
        setting = json.loads((ROOT / file).read_text())["settings"][0]
        source = self.source(setting)
        for batch in (256, 512):
            source.batch_size = 4 * batch
            images = torch.rand(batch, 3, 84, 84, device=self.device)
            for _ in range(3):
                source.tensors(images, 4)
            torch.cuda.synchronize()
            began, count = time.monotonic(), 0
            while time.monotonic() - began < 4:
                source.tensors(images, 4)
                count += 4 * batch
            torch.cuda.synchronize()
            self.log(f"speed: {count / (time.monotonic() - began):.0f} views/s, {4 * batch} at once")


def _under(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}


def prepare(data: Path, carry: Path) -> None:
    """Folders that fit what one call may carry, in the order they are needed."""
    mini, fewshot = data / "miniimagenet", ROOT / "artifacts" / "fewshot"
    plan: dict[str, list[tuple[Path, str]]] = {
        "1": [(mini / f"train-{i}.zip", "miniimagenet") for i in range(6)],
        "2": [(mini / f"train-{i}.zip", "miniimagenet") for i in (6, 7)],
        "3": [(mini / "val.zip", "miniimagenet"), *((fewshot / name, "fewshot") for name in CLASSIFIERS[:2])],
        "4": [(fewshot / CLASSIFIERS[2], "fewshot")],
        "5": [(mini / "test.zip", "miniimagenet")],
    }  # fmt: skip
    for name, items in plan.items():
        for source, folder in items:
            target = carry / name / folder / source.name
            target.parent.mkdir(parents=True, exist_ok=True)
            if source.is_dir():
                shutil.copytree(source, target, dirs_exist_ok=True)
            else:
                shutil.copyfile(source, target)
        size = sum(p.stat().st_size for p in (carry / name).rglob("*") if p.is_file())
        print(f"carry/{name}: {size / 2**20:.1f} MiB")


def _missing(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    return types.SimpleNamespace


def carried_packages(folder: Path) -> None:
    """What the device machine lacks, at the end of the path; kornia wants its image codecs only to read files."""
    if folder.is_dir():
        sys.path.append(str(folder))
        try:
            import kornia_rs  # noqa: F401
        except ImportError:
            stand_in = types.ModuleType("kornia_rs")
            stand_in.__file__ = __file__
            stand_in.__getattr__ = _missing  # type: ignore[method-assign]
            sys.modules["kornia_rs"] = stand_in


def run(args: argparse.Namespace) -> int:
    task = Run(args.work, Path(os.environ.get("OUT", args.work / "out")), args.smoke, args.limit)
    for folder in args.take:
        shutil.copytree(folder, args.work / "data", dirs_exist_ok=True)
    carried_packages(args.work / "data" / "site")
    task.log(f"torch {torch.__version__} on {task.device}, python {sys.version.split()[0]}, jobs {args.job}")
    status = 0
    for job in args.job:
        kind, _, what = job.partition(":")
        try:
            if kind == "train":
                task.train(what)
            elif kind == "sweep":
                task.evaluate(what, "val")
            elif kind == "test":
                task.evaluate(what, "test")
            elif kind == "sheet":
                task.sheet(what)
            elif kind == "speed":
                task.speed(what)
            elif kind == "back":
                task.bring_back(what.split("+"))
            elif kind == "decode":
                task.split(what)
            elif kind == "check":
                from onesdaug.augment.operator import Augmenter

                print(Augmenter.from_pretrained("shape").tensors(torch.rand(2, 3, 84, 84), 2).shape)
        except OutOfTime as late:
            task.log(f"{job}: {late}")
            status = 3
            break
        except Exception:  # minutes are lent once: what does not depend on this job still runs
            task.log(f"{job} failed\n{traceback.format_exc()}")
            status = 4
    task.log(f"finished with {status}")
    return status


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=["prepare", "run"])
    parser.add_argument("--take", nargs="*", type=Path, default=[])
    parser.add_argument("--job", nargs="*", default=[])
    parser.add_argument("--work", type=Path, default=Path("/tmp/pocket"))
    parser.add_argument("--limit", type=float, default=560.0, help="seconds after which training stops to be resumed")
    parser.add_argument("--smoke", action="store_true", help="the same path on a few images")
    args = parser.parse_args()
    if args.action == "prepare":
        prepare(Path(os.environ["ONESDAUG_DATA"]), ROOT / "carry")
        return 0
    return run(args)


if __name__ == "__main__":
    sys.exit(main())
