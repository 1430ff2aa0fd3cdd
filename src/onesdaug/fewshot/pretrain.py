"""Stage 1: train the backbone as a classifier of the base classes, with quarter turns as a second question."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from onesdaug.common.provenance import commit, describe_machine
from onesdaug.data.dataset import Dataset
from onesdaug.data.device_augment import DeviceAugment
from onesdaug.encoders.checkpoint import save_checkpoint
from onesdaug.encoders.load import build_backbone
from onesdaug.encoders.preprocess import Preprocess
from onesdaug.encoders.res12 import Res12
from onesdaug.fewshot.checkpoint import describe_data
from onesdaug.fewshot.heads import ProtoNet
from onesdaug.fewshot.recipes import PretrainConfig
from onesdaug.fewshot.validate import Validator
from onesdaug.training.budget import fit_to_budget
from onesdaug.training.loop import Log, Loop, build_optimizer, mix, mixed_precision, say


class BaseClassifier(nn.Module):
    """A backbone, a linear layer over the base classes, and one over the four quarter turns."""

    def __init__(self, config: PretrainConfig, n_classes: int) -> None:
        super().__init__()
        self.encoder = build_backbone(config.backbone, seed=config.seed)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(mix(config.seed, n_classes))
            self.classifier = nn.Linear(self.encoder.dim, n_classes)
            self.turns = nn.Linear(self.encoder.dim, 4)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        features = self.encoder(x)
        return self.classifier(features), self.turns(features)


class Pretraining:
    """The data on the device and the loss of one step; `run` does the rest."""

    def __init__(self, config: PretrainConfig, train: Dataset, val: Dataset, device: torch.device) -> None:
        self.config, self.device = config, device
        self.images = torch.from_numpy(train.images).to(device)
        self.labels = torch.from_numpy(train.labels).to(device)
        self.model = BaseClassifier(config, train.n_classes).to(device)
        self.model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        preprocess = self.model.encoder.default_preprocess
        self.preprocess = replace(preprocess, resize=config.resize) if config.resize else preprocess
        self.augment = DeviceAugment(
            self.preprocess.crop, config.crop_scale, jitter=config.jitter, rotate=config.rotate
        )
        self.validator = Validator(val, self.preprocess, device, config)
        self.steps_per_epoch = max(1, len(train) // config.batch)
        self._order: tuple[int, Tensor] | None = None

    def batch_rows(self, step: int) -> Tensor:
        """Each epoch is a permutation of its own, drawn from (seed, epoch)."""
        epoch, place = divmod(step, self.steps_per_epoch)
        if self._order is None or self._order[0] != epoch:
            stream = torch.Generator().manual_seed(mix(self.config.seed, 1, epoch))
            self._order = (epoch, torch.randperm(len(self.images), generator=stream).to(self.device))
        return self._order[1][place * self.config.batch : (place + 1) * self.config.batch]

    def loss(self, step: int) -> Tensor:
        c = self.config
        rows = self.batch_rows(step)
        if isinstance(self.model.encoder, Res12):  # DropBlock comes in over the first half
            self.model.encoder.anneal(2 * step / (c.epochs * self.steps_per_epoch))
        images, turns = self.augment(self.images[rows])
        images = self.preprocess.normalise(images).contiguous(memory_format=torch.channels_last)
        with mixed_precision(self.device):
            logits, turn_logits = self.model(images)
        loss = F.cross_entropy(logits.float(), self.labels[rows], label_smoothing=c.label_smoothing)
        if c.rotate:
            loss = loss + c.rotation_weight * F.cross_entropy(turn_logits.float(), turns)
        return loss

    def scores(self, model: nn.Module) -> dict[str, float]:
        assert isinstance(model, BaseClassifier)
        features = self.validator.embed(model.encoder)
        cosine = self.validator.accuracy(features, ProtoNet("cosine"))
        euclid = self.validator.accuracy(features, ProtoNet("euclidean"))
        # nearest mean by cosine is what predicts accuracy after meta-training; norms are not trained for yet
        return {
            "score": sum(cosine.values()) / len(cosine),
            **{f"cosine_{k}shot": v for k, v in cosine.items()},
            **{f"euclidean_{k}shot": v for k, v in euclid.items()},
        }

    def optimizer(self) -> torch.optim.Optimizer:
        c = self.config
        groups = [{"params": list(self.model.parameters()), "lr": c.lr}]
        return build_optimizer(c, groups, adam=c.optimizer == "adam")


def pretrain(
    config: PretrainConfig,
    train: Dataset,
    val: Dataset,
    out: Path,
    data_name: str = "",
    device: torch.device | str = "cpu",
    half: bool = False,
    seconds: float | None = None,
    deadline: float | None = None,
    save_seconds: float = 60.0,
    log: Log = say,
) -> dict[str, Any]:
    """Train, keep what validation likes best, write the checkpoint `out`; returns its card.

    `seconds` sets the number of epochs to what fits; `deadline` (time.monotonic) stops a run that must be resumed.
    """
    device = torch.device(device)
    if device.type == "cuda":
        torch.backends.cudnn.benchmark = True
    stage = Pretraining(config, train, val, device)
    state = out.with_name(f"{out.name}.state") / "state.pt"
    if seconds is not None:
        epochs, every = fit_to_budget(stage, seconds, state.with_name("plan.json"), log)
        warmup = min(config.warmup_epochs, epochs / 10)
        stage.config = config = replace(config, epochs=epochs, eval_every=every, warmup_epochs=warmup)
    loop = Loop(
        stage.model.train(), stage.optimizer(), config, stage.steps_per_epoch,
        config.epochs * stage.steps_per_epoch, state, save_seconds, log,
    )  # fmt: skip
    began, first = time.monotonic(), loop.progress.step
    progress = loop.run(stage.loss, stage.scores, deadline)
    spent = max(1e-9, time.monotonic() - began)
    stage.model.load_state_dict(loop.best)
    preprocess, validation = best_frame(stage, val)
    card = {
        "kind": "pretrain",
        "backbone": config.backbone,
        "head": None,
        "preprocess": preprocess.to_dict(),
        "data": describe_data(data_name, train, val),
        "arguments": config.to_dict(),
        "commit": commit(),
        "validation": {**validation, "step": progress.best_step, "episodes": config.num_eval_episodes},
        "seconds": round(progress.seconds, 1),
        "images_per_second": round((progress.step - first) * config.batch / spent),
        "machine": describe_machine(device),
        "history": progress.history,
    }
    tensors = {f"encoder.{k}": v for k, v in stage.model.encoder.state_dict().items()}
    return save_checkpoint(out, tensors, card, half)


def best_frame(stage: Pretraining, val: Dataset) -> tuple[Preprocess, dict[str, float]]:
    """Evaluation may see the whole frame (resize 84) or FEAT's centre (92, crop 84): validation says which.

    Random crops make objects look larger in training than whole images do, which is why the closer look can win.
    A `resize` given in the arguments is kept.
    """
    c = stage.config
    found: dict[float, tuple[Preprocess, dict[str, float]]] = {}
    for resize in (c.resize,) if c.resize else (92, 84):
        preprocess = replace(stage.preprocess, resize=resize)
        stage.validator.preprocess = preprocess
        scores = stage.scores(stage.model)
        found[scores["score"]] = (preprocess, scores)
    return found[max(found)]
