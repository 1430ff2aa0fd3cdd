"""What training can be told, with the paper's defaults, and the recipes behind the released checkpoints.

Plain dataclasses: they travel to machines that have torch and little else.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from onesdaug.errors import ConfigError

Optimizer = Literal["auto", "sgd", "adam"]


@dataclass(frozen=True)
class Optimisation:
    """What both stages share."""

    lr: float
    scheduler: Literal["cosine", "step"]
    step_size: int = 20  # epochs between two multiplications by gamma (scheduler "step")
    gamma: float = 0.2
    momentum: float = 0.9
    weight_decay: float = 5e-4
    optimizer: Optimizer = "sgd"
    warmup_epochs: float = 0.0
    ema: float = 0.0  # decay of the averaged weights that are validated and kept; 0: the weights themselves
    crop_scale: tuple[float, float] = (0.2, 1.0)
    jitter: float = 0.4
    resize: int | None = None  # evaluation: short side before the 84 crop; None: the benchmark's own
    eval_way: int = 5
    eval_shots: tuple[int, ...] = (1, 5)
    eval_query: int = 15
    num_eval_episodes: int = 200
    eval_every: int = 1  # epochs
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("lr", "gamma"):
            if getattr(self, name) <= 0:
                raise ConfigError(f"{name} must be positive, not {getattr(self, name)}")
        for name in ("step_size", "num_eval_episodes", "eval_every"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} must be at least 1, not {getattr(self, name)}")
        if not 0 <= self.ema < 1:
            raise ConfigError(f"ema must lie in [0,1), not {self.ema}")

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class PretrainConfig(Optimisation):
    """Stage 1: a plain classifier over the base classes."""

    backbone: str = "res12"
    lr: float = 0.1
    scheduler: Literal["cosine", "step"] = "cosine"
    epochs: int = 100
    batch: int = 256
    label_smoothing: float = 0.0
    warmup_epochs: float = 3.0
    ema: float = 0.999
    # quarter turns: asked which way an image was turned, the network learns more than the base classes need
    rotate: float = 0.0  # share of turned images
    rotation_weight: float = 1.0
    num_eval_episodes: int = 2000
    eval_every: int = 5


@dataclass(frozen=True)
class MetaConfig(Optimisation):
    """Stage 2: episodes; the defaults are the paper's for ProtoNet."""

    head: str = "protonet"
    lr: float = 1e-4
    scheduler: Literal["cosine", "step"] = "step"
    optimizer: Optimizer = "auto"  # as FEAT: Adam for ConvNet, SGD with Nesterov's momentum for Res12
    way: int = 5
    shot: tuple[int, ...] = (1,)  # several: steps take turns
    query: int = 15
    max_epoch: int = 400
    episodes_per_epoch: int = 100
    tasks: int = 1  # episodes per optimiser step
    lr_mul: float = 10.0  # the set-to-set head learns this much faster than the backbone
    temperature: float | None = None  # None: the one with the lowest loss on validation episodes before training
    temperature2: float | None = None  # None: as temperature
    balance: float = 0.1  # weight of FEAT's contrastive term
    use_euclidean: bool = True
    fix_bn: bool = True  # batch statistics stay those of pretraining, so that training sees what evaluation sees
    crop_scale: tuple[float, float] = (0.4, 1.0)
    jitter: float = 0.2

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.way < 2 or self.query < 1 or not self.shot or min(self.shot) < 1:
            raise ConfigError(f"way {self.way}, shot {self.shot}, query {self.query} make no episode")
        if self.tasks < 1 or self.episodes_per_epoch < self.tasks:
            raise ConfigError(
                f"tasks {self.tasks} must lie between 1 and episodes_per_epoch {self.episodes_per_epoch}"
            )

    @property
    def steps_per_epoch(self) -> int:
        return self.episodes_per_epoch // self.tasks

    @property
    def metric(self) -> str:
        return "euclidean" if self.use_euclidean else "cosine"


# The paper's FEAT arguments (its appendix "FSL model training"), and its ProtoNet arguments.
PAPER_PROTONET = MetaConfig(head="protonet", temperature=1.0)
PAPER_FEAT = MetaConfig(head="feat", lr=2e-4, step_size=40, gamma=0.5, temperature=64.0, temperature2=64.0)

# What the released checkpoints were made with. Eight episodes a step keep a large GPU busy; the learning rates of
# Res12 (SGD) are the paper's times about eight for that. Both shots take turns, so one checkpoint serves both.
PRETRAIN: dict[str, PretrainConfig] = {
    "res12": PretrainConfig(backbone="res12", rotate=0.5),
    "convnet": PretrainConfig(backbone="convnet", epochs=300, crop_scale=(0.35, 1.0)),
}

_FAST = MetaConfig(
    tasks=8,
    max_epoch=20,
    episodes_per_epoch=800,
    scheduler="cosine",
    shot=(1, 5),
    ema=0.998,
    num_eval_episodes=2000,
    warmup_epochs=0.5,
)
META: dict[tuple[str, str], MetaConfig] = {
    ("res12", "protonet"): replace(_FAST, head="protonet", lr=1e-3),
    ("res12", "feat"): replace(_FAST, head="feat", lr=1e-3),
    ("convnet", "protonet"): replace(_FAST, head="protonet", lr=2e-4, fix_bn=False),
    ("convnet", "feat"): replace(_FAST, head="feat", lr=2e-4, lr_mul=5, balance=1.0, fix_bn=False),
}
