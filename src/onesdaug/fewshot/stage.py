"""What both stages of few-shot training share: the data on the device, validation, and the checkpoint they end in."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from onesdaug.common.provenance import commit, describe_machine
from onesdaug.data.dataset import Dataset
from onesdaug.data.device_augment import DeviceAugment
from onesdaug.encoders.checkpoint import join, save_checkpoint
from onesdaug.encoders.preprocess import Preprocess
from onesdaug.fewshot.recipes import Optimisation
from onesdaug.fewshot.validate import Validator
from onesdaug.training.loop import fit
from onesdaug.training.stage import Log, Stage, say


class FewShotStage(Stage):
    kind: str
    unit: str  # what a step is counted in
    per_step: int  # how many of them it takes
    epochs_field: str  # the setting that holds the number of epochs
    config: Optimisation
    backbone: str
    facts: dict[str, Any]  # what the card says of this stage alone

    def __init__(
        self, config: Optimisation, preprocess: Preprocess, train: Dataset, val: Dataset, device: torch.device,
        rotate: float = 0.0,
    ) -> None:  # fmt: skip
        self.config, self.device, self.train, self.val = config, device, train, val
        self.images = torch.from_numpy(train.images).to(device)
        self.preprocess = replace(preprocess, resize=config.resize) if config.resize else preprocess
        self.augment = DeviceAugment(self.preprocess.crop, config.crop_scale, jitter=config.jitter, rotate=rotate)
        self.validator = Validator(val, self.preprocess, device, config)

    @property
    def steps(self) -> int:
        return int(getattr(self.config, self.epochs_field)) * self.steps_per_epoch

    def set_epochs(self, epochs: int, eval_every: int) -> None:
        changes: dict[str, Any] = {self.epochs_field: epochs, "eval_every": eval_every}
        self.config = replace(self.config, warmup_epochs=min(self.config.warmup_epochs, epochs / 10), **changes)

    def batch(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Training images, augmented and normalised, and how far each was turned."""
        images, turns = self.augment(self.images[rows])
        return self.preprocess.normalise(images).contiguous(memory_format=torch.channels_last), turns

    def build_optimizer(self, groups: list[dict[str, Any]], adam: bool) -> torch.optim.Optimizer:
        """SGD with Nesterov's momentum, or Adam; each group carries its own `lr`."""
        c, fused = self.config, self.device.type == "cuda"  # fused: one kernel for all tensors
        if adam:  # without weight decay, as FEAT: inside Adam it would be scaled like a gradient
            return torch.optim.Adam(groups, lr=c.lr, fused=fused)
        return torch.optim.SGD(
            groups, lr=c.lr, momentum=c.momentum, weight_decay=c.weight_decay, nesterov=c.momentum > 0, fused=fused
        )

    def parts(self) -> dict[str, nn.Module]:
        """The modules that the checkpoint keeps."""
        raise NotImplementedError

    def final_scores(self) -> dict[str, float]:
        return self.scores(self.model)


def train_stage(
    stage: FewShotStage,
    out: Path,
    data_name: str = "",
    half: bool = False,
    seconds: float | None = None,
    deadline: float | None = None,
    save_seconds: float = 60.0,
    log: Log = say,
) -> dict[str, Any]:
    """Train (`seconds`, `deadline`: see `fit`), write the checkpoint `out`, in half precision if asked; its card."""
    folder = out.with_name(f"{out.name}.state")
    loop = fit(stage, folder, stage.kind, seconds=seconds, deadline=deadline, save_seconds=save_seconds, log=log)
    progress, config = loop.progress, stage.config
    scores: dict[str, Any] = {**stage.final_scores(), "step": progress.best_step}
    if progress.start:
        scores["before"] = progress.start
    card = {
        "kind": stage.kind,
        "backbone": stage.backbone,
        "preprocess": stage.preprocess.to_dict(),
        "data": {"name": data_name, "train": _describe(stage.train), "val": _describe(stage.val)},
        "arguments": config.to_dict(),
        "commit": commit(),
        "validation": {**scores, "episodes": config.num_eval_episodes},
        "seconds": round(progress.seconds, 1),
        f"{stage.unit}_per_second": round(loop.steps_per_second * stage.per_step, 1),
        "machine": describe_machine(stage.device),
        "history": progress.history,
        **stage.facts,
    }
    return save_checkpoint(out, join(stage.parts()), card, half)


def _describe(data: Dataset) -> dict[str, Any]:
    return {"fingerprint": data.fingerprint, "classes": data.n_classes, "images": len(data)}
