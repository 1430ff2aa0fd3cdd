"""Stage 2: episodic meta-training of a backbone with a head, from pretrained weights or from scratch."""

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
from onesdaug.encoders.checkpoint import load_checkpoint, part, save_checkpoint
from onesdaug.encoders.convnet import ConvNet
from onesdaug.encoders.load import build_backbone
from onesdaug.encoders.preprocess import Preprocess
from onesdaug.encoders.res12 import Res12
from onesdaug.errors import ConfigError
from onesdaug.fewshot.checkpoint import describe_data
from onesdaug.fewshot.episodes import sample_episodes
from onesdaug.fewshot.heads import Head, build_head
from onesdaug.fewshot.recipes import MetaConfig
from onesdaug.fewshot.validate import Validator
from onesdaug.training.budget import fit_to_budget
from onesdaug.training.loop import Log, Loop, build_optimizer, mix, mixed_precision, say


class FewShotModel(nn.Module):
    def __init__(self, encoder: nn.Module, head: Head) -> None:
        super().__init__()
        self.encoder, self.head = encoder, head


class MetaTraining:
    """The data on the device, the episodes, and the loss of one step."""

    def __init__(
        self, config: MetaConfig, init: Path | str, train: Dataset, val: Dataset, device: torch.device, log: Log = say
    ) -> None:
        self.device, self.log = device, log
        self.images = torch.from_numpy(train.images).to(device)
        self.train_labels = train.labels
        self.backbone, encoder, self.preprocess, self.init = _start(init, config)
        self.dim = encoder.dim
        encoder.to(device).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.augment = DeviceAugment(self.preprocess.crop, config.crop_scale, jitter=config.jitter)
        self.validator = Validator(val, self.preprocess, device, config)
        self.config = self._calibrated(config, encoder)
        self.model = FewShotModel(encoder, self._head(self.config, self.dim))
        self.steps_per_epoch = config.steps_per_epoch
        self._episodes: tuple[int, list[tuple[Tensor, Tensor]]] | None = None
        self.training_mode()

    def _head(self, config: MetaConfig, dim: int) -> Head:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(mix(config.seed, 2))
            return build_head(config.head, dim, **head_settings(config)).to(self.device)

    def _calibrated(self, config: MetaConfig, encoder: nn.Module) -> MetaConfig:
        """Temperatures left open become those that fit the pretrained features best."""
        if config.head not in ("protonet", "feat") or config.temperature is not None:
            return config if config.temperature2 else replace(config, temperature2=config.temperature)
        probe = replace(config, temperature=1.0, temperature2=1.0)
        features = self.validator.embed(encoder)
        best = self.validator.best_temperature(features, self._head(probe, self.dim), 1.0)
        self.log(f"temperature {best:g} fits the pretrained features best")
        return replace(config, temperature=best, temperature2=config.temperature2 or best)

    def training_mode(self) -> None:
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
            seed = mix(c.seed, 3, epoch)
            drawn = [
                sample_episodes(self.train_labels, c.way, shot, c.query, c.tasks * self.steps_per_epoch, seed)
                for shot in c.shot
            ]
            moved = [(e.support.to(self.device), e.query.flatten(1).to(self.device)) for e in drawn]
            self._episodes = (epoch, moved)
        support, query = self._episodes[1][step % len(c.shot)]
        rows = slice(place * c.tasks, (place + 1) * c.tasks)
        return support[rows], query[rows]

    def loss(self, step: int) -> Tensor:
        c = self.config
        support, query = self.episodes(step)
        rows = torch.cat([support.flatten(), query.flatten()])
        images, _ = self.augment(self.images[rows])
        images = self.preprocess.normalise(images).contiguous(memory_format=torch.channels_last)
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
        found = self.validator.accuracy(self.validator.embed(model.encoder), model.head)
        return {"score": sum(found.values()) / len(found), **{f"{k}shot": v for k, v in found.items()}}

    def optimizer(self) -> torch.optim.Optimizer:
        c = self.config
        groups: list[dict[str, Any]] = [{"params": list(self.model.encoder.parameters()), "lr": c.lr}]
        if head := list(self.model.head.parameters()):
            groups.append({"params": head, "lr": c.lr * c.lr_mul})
        adam = c.optimizer == "adam" or (c.optimizer == "auto" and self.backbone == "convnet")
        return build_optimizer(c, groups, adam)


def head_settings(config: MetaConfig) -> dict[str, Any]:
    """What `build_head` needs to make this head again."""
    if config.head == "protonet":
        return {"metric": config.metric, "temperature": config.temperature}
    if config.head == "feat":
        return {
            "metric": config.metric, "temperature": config.temperature, "temperature2": config.temperature2,
        }  # fmt: skip
    return {}


def _start(init: Path | str, config: MetaConfig) -> tuple[str, ConvNet | Res12, Preprocess, str]:
    """(backbone's name, module, preprocessing, what it came from): a checkpoint, or a backbone's name for scratch."""
    if Path(init).is_dir():
        tensors, card = load_checkpoint(init)
        module = build_backbone(card["backbone"], seed=config.seed)
        module.load_state_dict(part(tensors, "encoder"))
        preprocess, name, source = Preprocess.from_dict(card["preprocess"]), card["backbone"], card["weights"]
    else:
        if config.fix_bn:
            raise ConfigError(
                "fix_bn keeps the statistics of pretraining; from scratch there are none: use --no-fix-bn"
            )
        module = build_backbone(str(init), seed=config.seed)
        preprocess, name, source = module.default_preprocess, str(init), "scratch"
    return name, module, replace(preprocess, resize=config.resize) if config.resize else preprocess, source


def meta_train(
    config: MetaConfig,
    init: Path | str,
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
    """Meta-train from `init` (a checkpoint, or 'convnet'/'res12' for scratch); arguments as `pretrain`."""
    device = torch.device(device)
    if device.type == "cuda":
        torch.backends.cudnn.benchmark = True
    state = out.with_name(f"{out.name}.state") / "state.pt"
    stage = MetaTraining(config, init, train, val, device, log)
    if seconds is not None:
        epochs, every = fit_to_budget(stage, seconds, state.with_name("plan.json"), log)
        warmup = min(config.warmup_epochs, epochs / 10)
        stage.config = replace(stage.config, max_epoch=epochs, eval_every=every, warmup_epochs=warmup)
        stage.training_mode()
    config = stage.config
    before = stage.scores(stage.model)
    log("before meta-training: " + " ".join(f"{k} {v:.2f}" for k, v in before.items()))
    loop = Loop(
        stage.model, stage.optimizer(), config, stage.steps_per_epoch,
        config.max_epoch * stage.steps_per_epoch, state, save_seconds, log,
    )  # fmt: skip
    loop.start_from(before)
    began, first = time.monotonic(), loop.progress.step
    progress = loop.run(stage.loss, stage.scores, deadline)
    spent = max(1e-9, time.monotonic() - began)
    stage.model.load_state_dict(loop.best)
    card = {
        "kind": "meta",
        "backbone": stage.backbone,
        "head": {"name": config.head, "settings": head_settings(config)},
        "preprocess": stage.preprocess.to_dict(),
        "data": describe_data(data_name, train, val),
        "arguments": config.to_dict(),
        "init": stage.init,
        "commit": commit(),
        "validation": {
            **stage.scores(stage.model), "before": before, "step": progress.best_step,
            "episodes": config.num_eval_episodes,
        },
        "seconds": round(progress.seconds, 1),
        "episodes_per_second": round((progress.step - first) * config.tasks / spent, 1),
        "machine": describe_machine(device),
        "history": progress.history,
    }  # fmt: skip
    tensors = {f"encoder.{k}": v for k, v in stage.model.encoder.state_dict().items()}
    tensors |= {f"head.{k}": v for k, v in stage.model.head.state_dict().items()}
    return save_checkpoint(out, tensors, card, half)
