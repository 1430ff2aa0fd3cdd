"""Stage 1: train the backbone as a classifier of the base classes, with quarter turns as a second question."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from onesdaug.data.dataset import Dataset
from onesdaug.data.registry import load_path
from onesdaug.encoders.load import build_backbone
from onesdaug.encoders.preprocess import Preprocess
from onesdaug.errors import DataError
from onesdaug.fewshot.heads import ProtoNet
from onesdaug.fewshot.recipes import PretrainConfig
from onesdaug.fewshot.stage import FewShotStage, train_stage
from onesdaug.generators.pocket.photo_table import is_novel
from onesdaug.training.augment import mixed
from onesdaug.training.stage import mix, mixed_precision, own_randomness


def pretrain(
    config: PretrainConfig,
    train: Dataset,
    val: Dataset,
    out: Path,
    device: str | torch.device = "cpu",
    **settings: Any,
) -> dict[str, Any]:
    """Train, keep what validation likes best, write the checkpoint `out`; returns its card. See `train_stage`."""
    return train_stage(Pretraining(config, train, val, torch.device(device)), out, **settings)


def with_more(train: Dataset, more: Path, val: Dataset, cache: Path | None = None) -> Dataset:
    """The base classes and further pictures; classes that accuracy is measured on are refused."""
    found = load_path(more, train.images.shape[1], cache)
    if wrong := sorted(name for name in found.class_names if is_novel(name) or name in val.class_names):
        raise DataError(f"{more}: leave out {', '.join(wrong[:5])}: validation or test classes must not be trained on")
    return train.joined(found)


class BaseClassifier(nn.Module):
    """A backbone, a linear layer over the base classes, and one over the four quarter turns."""

    def __init__(self, config: PretrainConfig, n_classes: int) -> None:
        super().__init__()
        self.encoder = build_backbone(config.backbone, seed=config.seed)
        with own_randomness(mix(config.seed, n_classes)):
            self.classifier = nn.Linear(self.encoder.dim, n_classes)
            self.turns = nn.Linear(self.encoder.dim, 4)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        features = self.encoder(x)
        return self.classifier(features), self.turns(features)


class Pretraining(FewShotStage):
    kind, unit, epochs_field = "pretrain", "images", "epochs"
    config: PretrainConfig
    model: BaseClassifier

    def __init__(self, config: PretrainConfig, train: Dataset, val: Dataset, device: torch.device) -> None:
        self.model = BaseClassifier(config, train.n_classes).to(device)
        self.model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        edits = {"rotate": config.rotate, "warp": config.warp, "edits": config.edits, "erase": config.erase}
        super().__init__(config, self.model.encoder.default_preprocess, train, val, device, **edits)
        self.backbone, self.per_step, self.facts = config.backbone, config.batch, {"head": None}
        self.labels = torch.from_numpy(train.labels).to(device)
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
        self.model.encoder.anneal(2 * step / self.steps)  # DropBlock comes in over the first half
        images, turns = self.batch(rows)
        labels, kept = self.labels[rows], None
        if c.mix:
            images, kept = mixed(images, c.mix)
        with mixed_precision(self.device):
            logits, turn_logits = self.model(images)
        loss = self._classes(logits.float(), labels, kept)
        if c.rotate:
            loss = loss + c.rotation_weight * F.cross_entropy(turn_logits.float(), turns)
        return loss

    def _classes(self, logits: Tensor, labels: Tensor, kept: Tensor | None) -> Tensor:
        """`kept`: the share of each picture that is its own; the rest is its neighbour's in the batch."""
        smooth = self.config.label_smoothing
        if kept is None:
            return F.cross_entropy(logits, labels, label_smoothing=smooth)
        own, other = (
            F.cross_entropy(logits, of, label_smoothing=smooth, reduction="none") for of in (labels, labels.roll(1))
        )
        return (kept * own + (1 - kept) * other).mean()

    def train_step(self, optimizer: torch.optim.Optimizer, step: int) -> Tensor:
        if not self.config.clip:
            return super().train_step(optimizer, step)
        optimizer.zero_grad(set_to_none=True)
        loss = self.loss(step)
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(self.model.parameters(), self.config.clip)
        optimizer.step()
        return loss

    def scores(self, model: nn.Module) -> dict[str, float]:
        assert isinstance(model, BaseClassifier)
        features = self.val_features(model.encoder)
        cosine, euclid = (self.accuracy(features, ProtoNet(metric)) for metric in ("cosine", "euclidean"))
        # nearest mean by cosine is what predicts accuracy after meta-training; norms are not trained for yet
        return {
            "score": sum(cosine.values()) / len(cosine),
            **{f"cosine_{k}shot": v for k, v in cosine.items()},
            **{f"euclidean_{k}shot": v for k, v in euclid.items()},
        }

    def optimizer(self) -> torch.optim.Optimizer:
        groups = [{"params": list(self.model.parameters()), "lr": self.config.lr}]
        if self.config.optimizer == "adamw":  # decay is for matrices, not for biases, norms, positions and tokens
            matrices = [p for name, p in self.model.named_parameters() if p.ndim > 1 and not _is_place(name)]
            known = {id(p) for p in matrices}
            others = [p for p in self.model.parameters() if id(p) not in known]
            groups = [{"params": matrices, "lr": self.config.lr}]
            groups.append({"params": others, "lr": self.config.lr, "weight_decay": 0.0})
        return self.build_optimizer(groups, adam=self.config.optimizer == "adam")

    def parts(self) -> dict[str, nn.Module]:
        return {"encoder": self.model.encoder}

    def final_scores(self) -> dict[str, float]:
        """Evaluation may see the whole frame (resize 84) or FEAT's centre (92, crop 84): validation says which.

        The same for other crops, in proportion. Random crops make objects look larger in training than whole images
        do, which is why the closer look can win. A `resize` given in the arguments is kept.
        """
        found: dict[float, tuple[Preprocess, dict[str, float]]] = {}
        crop = self.preprocess.crop
        for resize in (self.config.resize,) if self.config.resize else (round(crop * 92 / 84), crop):
            self.preprocess = replace(self.preprocess, resize=resize)
            scores = self.scores(self.model)
            found[scores["score"]] = (self.preprocess, scores)
        self.preprocess, scores = found[max(found)]
        return scores


def _is_place(name: str) -> bool:
    return any(word in name for word in ("position", "cls_token"))
