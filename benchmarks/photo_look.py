"""Pictures and numbers by which a person follows the training of the generator of photographs, as it goes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from onesdaug.augment.config import preset
from onesdaug.augment.operator import Augmenter
from onesdaug.data.dataset import Dataset
from onesdaug.data.pixels import to_pil
from onesdaug.encoders.checkpoint import save_checkpoint
from onesdaug.generators.pocket.condition import measure
from onesdaug.generators.pocket.photo_training import PhotoTraining
from onesdaug.generators.pocket.photographs import floats, name_number
from onesdaug.generators.pocket.train_photo import psnr

LEVELS = (0.5, 0.7, 0.85)
SHOWN, MEASURED = 6, 24


def autoencoder_sheet(task: PhotoTraining, path: Path, log: Any) -> None:
    """Six held-out photographs above what the autoencoder makes of them."""
    model = task.autoencoder.to(task.device).eval()
    held = task.photographs.held
    with torch.no_grad():
        x = floats(held[:SHOWN])
        _save([x, model.decode(model.encode(x)).clamp(0, 1)], path)
        many = model.encode(floats(held[:100]))
    deviations = [round(float(value), 2) for value in many.std((0, 2, 3))]
    log(f"{path.stem}: {psnr(model, held):.2f} dB on {len(held)}, deviations of the latents {deviations}")


class Look:
    """Views of held-out photographs: self at three noise levels, and class from the condition alone.

    Under each other with the originals in sheet-STAGE-STEP.jpg. Scores are the cosines of the condition encoder's
    features between views and originals. The weights as they are go to photo.part/STAGE: they can be carried home,
    and are a finished stage when they are put among those.
    """

    def __init__(self, task: PhotoTraining, held: Dataset, work: Path, stage: str) -> None:
        self.task, self.work, self.stage = task, work, stage
        first = sorted(range(len(held)), key=lambda row: name_number(held.ids[row]))[:MEASURED]
        self.x = floats(torch.from_numpy(held.images[first])).contiguous().to(task.device)

    @torch.no_grad()
    def __call__(self, model: Any, step: int) -> dict[str, float]:
        generator = self.task.generator(model, guides=self.stage == "guidance")
        rows, found = [self.x[:SHOWN]], {}
        with torch.autocast(self.task.device.type, dtype=torch.bfloat16, enabled=self.task.device.type == "cuda"):
            for level in LEVELS:
                views = self._views(generator, "photo", noise_level=level)
                found[f"cosine-{level:g}"] = float(self._cosine(views))
                rows.append(views[:SHOWN])
            rows.append(self._views(generator, "photo-accuracy", guidance=3.0)[:SHOWN])
        _save(rows, self.work / f"sheet-{self.stage}-{step:06d}.jpg")
        stage = {
            "steps": step, "batch": self.task.recipe.stage(self.stage).batch, "seconds": 0.0, "images_per_second": 0,
            "history": [found], **self.task.settled(self.stage),
        }  # fmt: skip
        save_checkpoint(
            self.work / "photo.part" / self.stage, model.state_dict(), {"kind": "stage", "stage": stage}, half=True
        )
        return found

    def _views(self, generator: Any, name: str, **more: Any) -> Tensor:
        return Augmenter(generator, preset(name, **more)).tensors(self.x, k=1)[:, 0]

    def _cosine(self, views: Tensor) -> Tensor:
        ours, theirs = (measure(self.task.encoder, x)[0] for x in (views, self.x))
        return F.cosine_similarity(ours, theirs).mean()


def _save(rows: list[Tensor], path: Path) -> None:
    sheet = torch.cat([torch.cat(list(row.float()), dim=2) for row in rows], dim=1)
    to_pil(sheet[None].cpu())[0].save(path, quality=90)
