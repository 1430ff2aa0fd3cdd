"""What both stages of few-shot training share: the data on the device, validation, and the checkpoint they end in.

Validation embeds the images of the validation classes once; then episodes are tensor algebra.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from onesdaug.common.provenance import commit, describe_machine
from onesdaug.data.dataset import Dataset
from onesdaug.data.pixels import on_device
from onesdaug.encoders.base import Backbone
from onesdaug.encoders.checkpoint import join, save_checkpoint
from onesdaug.encoders.preprocess import Preprocess
from onesdaug.fewshot.episodes import sample_episodes
from onesdaug.fewshot.heads import Head
from onesdaug.fewshot.recipes import Optimisation
from onesdaug.training.augment import DeviceAugment
from onesdaug.training.loop import fit
from onesdaug.training.stage import Stage, mixed_precision

TEMPERATURES = tuple(2.0**k for k in range(-6, 11))
VALIDATION_SEED = 1


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
        **edits: Any,
    ) -> None:  # fmt: skip
        """`edits`: what `DeviceAugment` does beyond crops, flips and colours."""
        self.config, self.device, self.train, self.val = config, device, train, val
        self.images, self.val_images = (on_device(data.images, device) for data in (train, val))
        self.preprocess = replace(preprocess, resize=config.resize) if config.resize else preprocess
        plain = DeviceAugment(self.preprocess.crop, config.crop_scale, jitter=config.jitter)
        self.augment = replace(plain, **{name: value for name, value in edits.items() if value})
        way, query, count = config.eval_way, config.eval_query, config.num_eval_episodes
        self.val_episodes = {
            shot: sample_episodes(val.labels, way, shot, query, count, VALIDATION_SEED) for shot in config.eval_shots
        }

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
        """SGD with Nesterov's momentum, Adam, or AdamW where that is asked for; each group carries its own `lr`."""
        c, fused = self.config, self.device.type == "cuda"  # fused: one kernel for all tensors
        if c.optimizer == "adamw":
            return torch.optim.AdamW(groups, lr=c.lr, weight_decay=c.weight_decay, fused=fused)
        if adam:  # without weight decay, as FEAT: inside Adam it would be scaled like a gradient
            return torch.optim.Adam(groups, lr=c.lr, fused=fused)
        return torch.optim.SGD(
            groups, lr=c.lr, momentum=c.momentum, weight_decay=c.weight_decay, nesterov=c.momentum > 0, fused=fused
        )

    @abstractmethod
    def parts(self) -> dict[str, nn.Module]:
        """The modules that the checkpoint keeps."""

    def final_scores(self) -> dict[str, float]:
        return self.scores(self.model)

    # ---- validation: networks are left in eval mode -----------------------------------------------------------------

    @torch.inference_mode()
    def val_features(self, encoder: nn.Module, batch: int = 512) -> Tensor:
        encoder.eval()
        features = []
        with mixed_precision(self.device):
            for images in torch.split(self.val_images, batch):
                seen = self.preprocess(images.permute(0, 3, 1, 2))
                features.append(encoder(seen.contiguous(memory_format=torch.channels_last)).float())
        return torch.cat(features)

    @torch.inference_mode()
    def _logits(self, features: Tensor, head: Head, shot: int, chunk: int = 500) -> tuple[Tensor, Tensor]:
        """Logits (E,Q,N) and targets (Q,) of all episodes of one shot."""
        head.eval()
        episodes = self.val_episodes[shot]
        sides = episodes.support.to(self.device), episodes.query.flatten(1).to(self.device)
        chunks = zip(*(torch.split(rows, chunk) for rows in sides), strict=True)
        logits = [head(features[support], features[query]) for support, query in chunks]
        return torch.cat(logits), episodes.targets.to(self.device)

    def accuracy(self, features: Tensor, head: Head) -> dict[int, float]:
        """Percent, per shot."""
        found = {}
        for shot in self.val_episodes:
            logits, targets = self._logits(features, head, shot)
            found[shot] = 100 * float((logits.argmax(-1) == targets).float().mean())
        return found

    def best_temperature(self, features: Tensor, head: Head) -> float:
        """The power of two that calibrates the logits of temperature 1 best (lowest loss), first shot only."""
        logits, targets = self._logits(features, head, self.config.eval_shots[0])
        raw, repeated = logits.flatten(0, 1).float(), targets.repeat(len(logits))
        return min(TEMPERATURES, key=lambda t: float(F.cross_entropy(raw / t, repeated)))


def train_stage(
    stage: FewShotStage, out: Path, data_name: str = "", half: bool = False, **settings: Any
) -> dict[str, Any]:
    """Train (`settings`: see `fit`) and write the checkpoint `out`, in half precision if asked; returns its card."""
    loop = fit(stage, out.with_name(f"{out.name}.state"), stage.kind, **settings)
    progress, config = loop.progress, stage.config
    encoder = stage.parts()["encoder"]
    built = encoder.architecture if isinstance(encoder, Backbone) else None
    scores: dict[str, Any] = {**stage.final_scores(), "step": progress.best_step}
    if progress.start:
        scores["before"] = progress.start
    facts = stage.facts
    if progress.step < stage.steps:
        facts = facts | {"cut": {"step": progress.step, "of": stage.steps}}
    card = {
        "kind": stage.kind,
        "backbone": stage.backbone,
        **({"architecture": dict(built)} if built is not None else {}),
        "preprocess": stage.preprocess.to_dict(),
        "data": {"name": data_name, "train": _describe(stage.train), "val": _describe(stage.val)},
        "arguments": config.to_dict(),
        "commit": commit(),
        "validation": {**scores, "episodes": config.num_eval_episodes},
        "seconds": round(progress.seconds, 1),
        f"{stage.unit}_per_second": round(loop.steps_per_second * stage.per_step, 1),
        "machine": describe_machine(stage.device),
        "history": progress.history,
        **facts,
    }
    return save_checkpoint(out, join(stage.parts()), card, half)


def _describe(data: Dataset) -> dict[str, Any]:
    return {"fingerprint": data.fingerprint, "classes": data.n_classes, "images": len(data)}
