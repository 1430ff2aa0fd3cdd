"""Stage 2: episodic meta-training of a backbone with a head, from pretrained weights or from scratch."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from onesdaug.common.progress import log
from onesdaug.data.dataset import Dataset
from onesdaug.encoders.base import Backbone
from onesdaug.encoders.load import build_backbone, trained_backbone
from onesdaug.encoders.preprocess import Preprocess
from onesdaug.errors import ConfigError
from onesdaug.fewshot.episodes import sample_episodes
from onesdaug.fewshot.heads import Head, build_head
from onesdaug.fewshot.recipes import MetaConfig
from onesdaug.fewshot.stage import FewShotStage, train_stage
from onesdaug.training.stage import mix, mixed_precision, own_randomness


def meta_train(
    config: MetaConfig, init: Path | str, train: Dataset, val: Dataset, out: Path,
    device: str | torch.device = "cpu", **settings: Any,
) -> dict[str, Any]:  # fmt: skip
    """Meta-train from `init` (a checkpoint, or 'convnet'/'res12' for scratch); else as `pretrain`."""
    return train_stage(MetaTraining(config, init, train, val, torch.device(device)), out, **settings)


class FewShotModel(nn.Module):
    def __init__(self, encoder: Backbone, head: Head) -> None:
        super().__init__()
        self.encoder, self.head = encoder, head


class MetaTraining(FewShotStage):
    kind, unit, epochs_field = "meta", "episodes", "max_epoch"
    score_start = True
    config: MetaConfig
    model: FewShotModel

    def __init__(
        self, config: MetaConfig, init: Path | str, train: Dataset, val: Dataset, device: torch.device
    ) -> None:
        self.backbone, encoder, preprocess, source = _start(init, config)
        super().__init__(config, preprocess, train, val, device)
        encoder.to(device).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.config = self._calibrated(config, encoder)
        self.model = FewShotModel(encoder, self._head(self.config, encoder.dim))
        self.steps_per_epoch, self.per_step = config.steps_per_epoch, config.tasks
        self.facts = {"head": {"name": config.head, "settings": self.config.head_settings()}, "init": source}
        self._episodes: tuple[int, list[tuple[Tensor, Tensor]]] | None = None
        self.train_mode()

    def _head(self, config: MetaConfig, dim: int) -> Head:
        with own_randomness(mix(config.seed, 2)):
            return build_head(config.head, dim, **config.head_settings()).to(self.device)

    def _calibrated(self, config: MetaConfig, encoder: Backbone) -> MetaConfig:
        """Temperatures left open become those that fit the pretrained features best."""
        if config.head not in ("protonet", "feat") or config.temperature is not None:
            return config if config.temperature2 else replace(config, temperature2=config.temperature)
        probe = self._head(replace(config, temperature=1.0, temperature2=1.0), encoder.dim)
        best = self.best_temperature(self.val_features(encoder), probe)
        log.info(f"temperature {best:g} fits the pretrained features best")
        return replace(config, temperature=best, temperature2=config.temperature2 or best)

    def train_mode(self) -> None:
        self.model.train()
        if self.config.fix_bn:
            for module in self.model.encoder.modules():
                if isinstance(module, nn.BatchNorm2d):
                    module.eval()

    def episodes(self, step: int) -> tuple[Tensor, Tensor]:
        """Support (T,N,S) and query (T,N·Q) rows of one step; an epoch's are drawn at once from (seed, epoch)."""
        c = self.config
        epoch, place = divmod(step, self.steps_per_epoch)
        if self._episodes is None or self._episodes[0] != epoch:
            seed, count = mix(c.seed, 3, epoch), c.tasks * self.steps_per_epoch
            drawn = [sample_episodes(self.train.labels, c.way, shot, c.query, count, seed) for shot in c.shot]
            moved = [(e.support.to(self.device), e.query.flatten(1).to(self.device)) for e in drawn]
            self._episodes = (epoch, moved)
        support, query = self._episodes[1][step % len(c.shot)]
        rows = slice(place * c.tasks, (place + 1) * c.tasks)
        return support[rows], query[rows]

    def loss(self, step: int) -> Tensor:
        c = self.config
        support, query = self.episodes(step)
        images, _ = self.batch(torch.cat([support.flatten(), query.flatten()]))
        with mixed_precision(self.device):
            features = self.model.encoder(images)
        features = features.float()  # distances need the digits
        s = features[: support.numel()].view(*support.shape, -1)
        q = features[support.numel() :].view(*query.shape, -1)
        logits, aux, aux_labels = self.model.head.forward_train(s, q)
        targets = torch.arange(c.way, device=self.device).repeat_interleave(c.query).repeat(len(support))
        loss = F.cross_entropy(logits.flatten(0, 1).float(), targets)
        if aux is not None and aux_labels is not None and c.balance:
            loss = loss + c.balance * F.cross_entropy(aux.flatten(0, 1).float(), aux_labels.flatten())
        return loss

    def scores(self, model: nn.Module) -> dict[str, float]:
        assert isinstance(model, FewShotModel)
        found = self.accuracy(self.val_features(model.encoder), model.head)
        return {"score": sum(found.values()) / len(found), **{f"{k}shot": v for k, v in found.items()}}

    def optimizer(self) -> torch.optim.Optimizer:
        c = self.config
        groups: list[dict[str, Any]] = [{"params": list(self.model.encoder.parameters()), "lr": c.lr}]
        if head := list(self.model.head.parameters()):
            groups.append({"params": head, "lr": c.lr * c.lr_mul})
        adam = c.optimizer == "adam" or (c.optimizer == "auto" and self.backbone == "convnet")
        return self.build_optimizer(groups, adam)

    def parts(self) -> dict[str, nn.Module]:
        return {"encoder": self.model.encoder, "head": self.model.head}


def _start(init: Path | str, config: MetaConfig) -> tuple[str, Backbone, Preprocess, str]:
    """(backbone's name, module, preprocessing, what it came from): a checkpoint, or a backbone's name for scratch."""
    if Path(init).is_dir():
        module, card = trained_backbone(Path(init), config.seed)
        return card["backbone"], module, Preprocess.from_dict(card["preprocess"]), card["weights"]
    if config.fix_bn:
        raise ConfigError("fix_bn keeps the statistics of pretraining; from scratch there are none: use --no-fix-bn")
    module = build_backbone(str(init), seed=config.seed)
    return str(init), module, module.default_preprocess, "scratch"
