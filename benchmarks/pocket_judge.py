"""What classifiers of validation classes say of a pocket generator, part by part: where is quality lost, or gained?

    ONESDAUG_DATA=… python benchmarks/pocket_judge.py [GENERATOR …] [--per-class 30] [--views pocket pocket-faithful]

Of each generator (a name or a folder): its condition encoder alone, by nearest class mean; its autoencoder's round
trip, as if it were a view; and the views of some presets. Gains are points of 5-way accuracy of the released
classifiers when half of the weight is a view's, on the same episodes. `h200_photo.py` asks the same while it trains.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
if __name__ == "__main__":
    sys.path[:0] = [str(ROOT / "src"), str(ROOT)]

import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from torch import Tensor, nn  # noqa: E402

from benchmarks.ridge_forecast import as_bank  # noqa: E402
from onesdaug.common.provenance import commit, describe_machine  # noqa: E402
from onesdaug.data.dataset import Dataset  # noqa: E402
from onesdaug.encoders.load import load_encoder  # noqa: E402
from onesdaug.fewshot.evaluate import Task, ViewUse, accuracies, features_for  # noqa: E402
from onesdaug.fewshot.heads import Head, ProtoNet, load_head  # noqa: E402
from onesdaug.generators.pocket.condition import measure  # noqa: E402
from onesdaug.generators.pocket.photographs import floats  # noqa: E402
from onesdaug.training.stage import mixed_precision  # noqa: E402

CLASSIFIERS = ("mini-protonet-convnet", "mini-protonet-res12", "mini-feat-res12")
SHOTS = (1, 5)
CHUNK = 256


class Judge:
    """Some images of validation classes as the classifiers see them; asked with pictures in [0, 1]."""

    def __init__(
        self, data: Dataset, folders: Sequence[Path], device: torch.device, episodes: int = 600, query: int = 15
    ) -> None:
        self.device, self.fingerprint = device, data.fingerprint
        self.x = floats(torch.tensor(data.images)).contiguous().to(device)
        self.labels = torch.tensor(data.labels)
        self.tasks = [Task(5, shot, query, episodes, seed=0) for shot in SHOTS]
        self.classifiers = {folder.name: (load_encoder(folder, device), load_head(folder)) for folder in folders}
        self.originals = {name: self._features(name, self.x) for name in self.classifiers}

    def encoder(self, condition: nn.Module, size: int) -> dict[str, float]:
        """Accuracy of its own, percent, on pictures as a generator of this size shows them to it."""
        features = self._each(self.at(size), lambda x: measure(condition, x)[0])
        return {shot: alone for shot, (alone, _) in self._scores(features, features, None).items()}

    def gains(self, views: Tensor) -> dict[str, float]:
        """Of each classifier and shot, points; views (N, K, 3, h, w) of all images."""
        found = {}
        for name, (_, head) in self.classifiers.items():
            seen = self._features(name, views.flatten(0, 1)).unflatten(0, views.shape[:2]).mean(1)
            for shot, (before, after) in self._scores(self.originals[name], seen, head).items():
                found[f"{name.removeprefix('mini-')} {shot}"] = round(after - before, 2)
        return found

    def round_trip(self, autoencoder: nn.Module, size: int) -> dict[str, float]:
        """The gains of what the autoencoder gives back of every picture, and its decibels."""
        x = self.at(size)
        made = self._each(x, lambda part: autoencoder.decode(autoencoder.encode(part)).clamp(0, 1))  # type: ignore[operator]
        error = (made - x.cpu()).square().mean((1, 2, 3)).clamp(min=1e-10)
        return {"dB": round(float(-10 * error.log10().mean()), 2), **self.gains(made[:, None])}

    def at(self, size: int) -> Tensor:
        """The pictures as a generator of this size gets them."""
        return F.interpolate(self.x, (size, size), mode="bicubic", align_corners=False, antialias=True).clamp(0, 1)

    def _features(self, name: str, images: Tensor) -> Tensor:
        encoder = self.classifiers[name][0]
        return self._each(images, lambda part: encoder.embed(part, CHUNK))

    @torch.no_grad()
    def _each(self, images: Tensor, of: Callable[[Tensor], Tensor]) -> Tensor:
        with mixed_precision(self.device):
            return torch.cat([of(part.to(self.device)).float().cpu() for part in torch.split(images, CHUNK)])

    def _scores(self, own: Tensor, views: Tensor, head: Head | None) -> Mapping[str, tuple[float, float]]:
        """Accuracies in percent, alone and with the view."""
        bank, scored = as_bank(own, views, self.labels, "judge"), {}
        for task in self.tasks:
            episodes = task.sample(self.labels)
            plain, mixed = (  # not `evaluate`: its intervals need scipy, which lent machines may not have
                100 * float(accuracies(head or ProtoNet("cosine"), features_for(bank, episodes, use), episodes).mean())
                for use in (ViewUse(), ViewUse(1, 1))
            )
            scored[f"{task.shot}shot"] = (plain, mixed)
        return scored


def said(found: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {value:+.2f}" for name, value in found.items())


def main() -> None:
    from onesdaug.augment.config import preset
    from onesdaug.augment.operator import Augmenter
    from onesdaug.data.registry import load_split
    from onesdaug.generators.load import find_generator

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("generator", nargs="*", default=["pocket"])
    parser.add_argument("--per-class", type=int, default=30)
    parser.add_argument("--classifiers", nargs="+", default=CLASSIFIERS)
    parser.add_argument("--views", nargs="*", default=[], metavar="PRESET")
    parser.add_argument("--k", type=int, default=2)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--output", type=Path)
    args = parser.parse_args()
    data = load_split("miniimagenet", "val").sample(args.per_class)
    folders = [ROOT / "artifacts" / "fewshot" / name for name in args.classifiers]
    judge = Judge(data, folders, torch.device(args.device))
    record: dict[str, Any] = {
        "command": shlex.join(["python", "benchmarks/pocket_judge.py", *sys.argv[1:]]), "commit": commit(),
        "machine": describe_machine(judge.device), "data": data.fingerprint, "images": len(data), "rows": {},
    }  # fmt: skip
    for name in args.generator:
        generator = find_generator(name).from_pretrained(name, device=args.device)
        found = {"encoder": judge.encoder(generator.condition, generator.size),
                 "round trip": judge.round_trip(generator.autoencoder, generator.size)}  # fmt: skip
        for setting in args.views:
            drawing = Augmenter(generator, preset(setting))
            found[f"views, {setting}"] = judge.gains(drawing.tensors(judge.x, k=args.k, seeds=list(data.ids)))
        record["rows"][Path(name).name] = found
        for what, values in found.items():
            print(f"{name}, {what}: {said(values)}", flush=True)
    if args.output:
        args.output.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
