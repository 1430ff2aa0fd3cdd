"""Pictures and numbers by which a person follows the training of a generator, as it goes."""

from __future__ import annotations

import itertools
import json
import shlex
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks.pocket_judge import Judge, said
from onesdaug.augment.config import AugmentConfig, preset
from onesdaug.augment.operator import Augmenter
from onesdaug.common.provenance import commit, describe_machine
from onesdaug.data.dataset import Dataset
from onesdaug.data.pixels import to_pil
from onesdaug.encoders.checkpoint import save_checkpoint
from onesdaug.generators.pocket.condition import measure
from onesdaug.generators.pocket.photo_training import PhotoTraining
from onesdaug.generators.pocket.photographs import floats, name_number
from onesdaug.generators.pocket.train_photo import psnr

LEVELS = (0.5, 0.7, 0.85)
SHOWN, MEASURED = 6, 24


def autoencoder_sheet(task: PhotoTraining, path: Path, log: Any, judge: Judge | None = None) -> None:
    """Six held-out photographs above what the autoencoder makes of them; what that costs, where there is a judge."""
    model = task.autoencoder.to(task.device).eval()
    held = task.photographs.held
    with torch.no_grad():
        x = floats(held[:SHOWN])
        _save([x, model.decode(model.encode(x)).clamp(0, 1)], path)
        many = model.encode(floats(held[:100]))
    deviations = [round(float(value), 2) for value in many.std((0, 2, 3))]
    log(f"{path.stem}: {psnr(model, held):.2f} dB on {len(held)}, deviations of the latents {deviations}")
    if judge is not None:
        log(f"{path.stem}: round trip {said(judge.round_trip(model, task.recipe.network.size))}")


def first_of(held: Dataset) -> Tensor:
    """The photographs that are looked at."""
    first = sorted(range(len(held)), key=lambda row: name_number(held.ids[row]))[:MEASURED]
    return floats(torch.from_numpy(held.images[first])).contiguous()


class Look:
    """Views of held-out photographs: self at three noise levels, and class from the condition alone.

    Under each other with the originals in sheet-STAGE-STEP.jpg. Scores are the cosines of the condition encoder's
    features between views and originals, and where there is a judge what classifiers gain from views of validation
    classes, drawn small. The weights as they are go to NAME.part/STAGE: they can be carried home, and are a finished
    stage when they are put among those.
    """

    def __init__(self, task: PhotoTraining, x: Tensor, work: Path, stage: str, judge: Judge | None = None) -> None:
        self.task, self.work, self.stage, self.judge = task, work, stage, judge
        self.x = x.to(task.device)

    @torch.no_grad()
    def __call__(self, model: Any, step: int) -> dict[str, float]:
        with torch.autocast(self.task.device.type, dtype=torch.bfloat16, enabled=self.task.device.type == "cuda"):
            rows, found = self.seen(model)
        if rows:
            _save([self.x[:SHOWN], *(row[:SHOWN] for row in rows)], self.work / f"sheet-{self.stage}-{step:06d}.jpg")
        stage = {
            "steps": step, "batch": self.task.recipe.stage(self.stage).batch, "seconds": 0.0, "images_per_second": 0,
            "history": [found], **self.task.settled(self.stage),
        }  # fmt: skip
        place = self.work / f"{self.task.state.stem}.part" / self.stage
        save_checkpoint(place, model.state_dict(), {"kind": "stage", "stage": stage}, half=True)
        return found

    def seen(self, model: Any) -> tuple[list[Tensor], dict[str, float]]:
        """Rows of views, and scores."""
        rows, found = [], {}
        for level in LEVELS:
            views = self.views(model, preset("photo", noise_level=level))[:, 0]
            found[f"cosine-{level:g}"] = float(self._cosine(views))
            rows.append(views)
        if self.judge is not None and self.task.table.small is not None:
            for level, scale in ((1.0, 4.0), (1.0, 10.0), (0.85, 8.0)):
                config = preset("photo-accuracy", noise_level=level, guidance=scale, steps=8)
                views = self.views(model, config, self.judge.x, self.task.recipe.small)
                gains = self.judge.gains(views)
                found.update({f"class-{level:g}-{scale:g} {what}": gain for what, gain in gains.items()})
        return [*rows, self.views(model, preset("photo-accuracy", guidance=3.0, steps=8))[:, 0]], found

    def views(
        self, model: Any, config: AugmentConfig, x: Tensor | None = None, side: int | None = None, k: int = 1
    ) -> Tensor:
        """(N, k, 3, H, W) of the photographs that are looked at, or of others."""
        generator = self.task.generator(model, guides=self.stage == "guidance", side=side)
        return Augmenter(generator, config).tensors(self.x if x is None else x, k=k)

    def to_try(self) -> Iterator[tuple[int | None, AugmentConfig]]:
        """Sides and settings that presets may be chosen from, the likeliest first: time may be up before the last."""
        small = self.task.recipe.small
        for scale in (16.0, 8.0, 4.0):
            yield small, preset("photo-accuracy", guidance=scale, steps=8)
        for mode, level, scale in itertools.product(("class", "self"), (0.95, 0.85), (16.0, 8.0)):
            yield small, preset("photo-accuracy", noise_level=level, guidance=scale, steps=12, mode=mode)
        for scale in (16.0, 4.0):
            yield small, preset("photo-accuracy", guidance=scale, steps=8, mode="self")
        for scale, steps in itertools.product((16.0, 8.0), (4, 2)):
            yield small, preset("photo-accuracy", guidance=scale, steps=steps)
        for scale in (16.0, 4.0):
            yield None, preset("photo-accuracy", guidance=scale, steps=8)
        for mode, scale in itertools.product(("class", "self"), (16.0, 8.0, 4.0)):
            yield small, preset("photo-accuracy", noise_level=0.7, guidance=scale, steps=12, mode=mode)
        for scale in (8.0, 16.0):
            yield None, preset("photo-accuracy", noise_level=0.7, guidance=scale, steps=12)

    def _cosine(self, views: Tensor) -> Tensor:
        ours, theirs = (measure(self.task.encoder, x)[0] for x in (views, self.x))
        return F.cosine_similarity(ours, theirs).mean()


# how thumbnails are drawn while a denoiser is followed: all of it is said here, for presets change
THUMBNAIL_WAYS: dict[str, dict[str, Any]] = {
    "self-0.7": {"mode": "self", "noise_level": 0.7, "guidance": 4.0, "steps": 20},
    "class-0.85": {"mode": "class", "noise_level": 0.85, "guidance": 8.0, "steps": 12},
    "class-1": {"mode": "class", "noise_level": 1.0, "guidance": 8.0, "steps": 8},
}


class ThumbnailLook(Look):
    """The same for thumbnails, of validation classes. Scores are what classifiers gain, or an encoder's accuracy."""

    def __init__(self, task: PhotoTraining, judge: Judge | None, work: Path, stage: str) -> None:
        super().__init__(task, judge.x if judge else torch.empty(0), work, stage, judge)
        self.settings = {name: preset("pocket-accuracy", **way) for name, way in THUMBNAIL_WAYS.items()}

    def seen(self, model: Any) -> tuple[list[Tensor], dict[str, float]]:
        if self.judge is None:
            return [], {}
        if self.stage == "encoder":
            return [], self.judge.encoder(model.encoder, self.task.recipe.network.size)
        rows = [self.views(model, config)[:, 0] for config in self.settings.values()]
        found = {
            f"{name} {what}": gain
            for name, row in zip(self.settings, rows, strict=True)
            for what, gain in self.judge.gains(row[:, None]).items()
        }
        return rows, found

    def to_try(self) -> Iterator[tuple[int | None, AugmentConfig]]:
        for scale in (8.0, 4.0, 16.0):
            yield None, preset("pocket-accuracy", mode="class", noise_level=1.0, guidance=scale, steps=4)
        for level in (0.3, 0.5, 0.7):  # for birds
            yield None, preset("pocket-accuracy", mode="self", noise_level=level, guidance=4.0, steps=20)
        for level, mode, scale in itertools.product((0.95, 0.85, 0.7), ("class", "self"), (8.0, 4.0)):
            yield None, preset("pocket-accuracy", mode=mode, noise_level=level, guidance=scale, steps=12)
        for level, mode in itertools.product((0.85, 0.7, 0.5), ("class", "self")):
            yield None, preset("pocket-accuracy", mode=mode, noise_level=level, guidance=4.0, steps=12, shape=None)
        for mode, scale, steps in (("class", 8.0, 8), ("class", 2.0, 4), ("self", 4.0, 4)):
            yield None, preset("pocket-accuracy", mode=mode, noise_level=1.0, guidance=scale, steps=steps)


@torch.no_grad()
def sweep(look: Look, judge: Judge, model: Any, path: Path, end: float, log: Any, k: int = 2) -> None:
    """What classifiers gain on validation classes from views of many settings, until time is up."""
    task, rows = look.task, list[dict[str, Any]]()
    words = [word for word in sys.argv[1:] if word not in ("--work", str(path.parent))]  # no machine's path
    record = {
        "command": shlex.join(["python", "benchmarks/h200_photo.py", *words]), "commit": commit(),
        "machine": describe_machine(task.device), "stage": look.stage, "data": judge.fingerprint,
        "images": len(judge.x), "episodes": judge.tasks[0].episodes, "k": k, "rows": rows,
    }  # fmt: skip
    highest = task.recipe.guidance.guidance if look.stage == "guidance" else float("inf")
    for side, config in look.to_try():
        if time.monotonic() > end:
            break
        if config.guidance > highest:
            continue
        with torch.autocast(task.device.type, dtype=torch.bfloat16, enabled=task.device.type == "cuda"):
            gains = judge.gains(look.views(model, config, judge.x, side, k))
        chosen = {name: getattr(config, name) for name in ("mode", "noise_level", "guidance", "steps")}
        chosen["tweak"] = config.shape is not None
        rows.append({"side": side or task.recipe.network.size, **chosen, "gains": gains})
        log(f"{rows[-1]}")
        path.write_text(json.dumps(record, indent=1) + "\n")


def _save(rows: list[Tensor], path: Path) -> None:
    sheet = torch.cat([torch.cat(list(row.float()), dim=2) for row in rows], dim=1)
    to_pil(sheet[None].cpu())[0].save(path, quality=90)
