"""What training can be told, with the paper's defaults, and the recipes behind the released checkpoints.

Plain dataclasses: they travel to machines that have torch and little else. The texts are the command line's help.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

from onesdaug.errors import ConfigError
from onesdaug.training.settings import StageSettings

Optimizer = Annotated[
    Literal["auto", "sgd", "adam", "adamw"], "auto (Adam for ConvNet, SGD for Res12), sgd, adam or adamw"
]
Schedule = Annotated[Literal["cosine", "step"], "How the learning rate falls: cosine or step"]


@dataclass(frozen=True)
class Optimisation(StageSettings):
    """What both stages share."""

    lr: float
    scheduler: Schedule
    step_size: Annotated[int, "Epochs between two drops of the rate (scheduler step)"] = 20
    gamma: Annotated[float, "Factor of each drop"] = 0.2
    momentum: Annotated[float, "SGD"] = 0.9
    weight_decay: Annotated[float, "SGD and AdamW"] = 5e-4
    optimizer: Optimizer = "sgd"
    warmup_epochs: Annotated[float, "Epochs in which the rate rises"] = 0.0
    ema: Annotated[float, "Decay of the averaged weights that are validated and kept; 0: none"] = 0.0
    crop_scale: Annotated[tuple[float, float], "Part of the image that a random crop shows, from and to"] = (0.2, 1.0)
    jitter: Annotated[float, "Strength of the colour jitter"] = 0.4
    resize: Annotated[int | None, "Evaluation's short side before the 84 crop (else the benchmark's own)"] = None
    eval_way: Annotated[int, "Classes in a validation episode"] = 5
    eval_shots: Annotated[tuple[int, ...], "Validation shots; repeat for the mean"] = (1, 5)
    eval_query: Annotated[int, "Validation queries per class"] = 15
    num_eval_episodes: Annotated[int, "Validation episodes"] = 200
    eval_every: Annotated[int, "Epochs between validations"] = 1
    seed: Annotated[int, "Same seed, same result on the same machine"] = 0

    def __post_init__(self) -> None:
        for name in ("lr", "gamma"):
            if getattr(self, name) <= 0:
                raise ConfigError(f"{name} must be positive, not {getattr(self, name)}")
        for name in ("step_size", "num_eval_episodes", "eval_every"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} must be at least 1, not {getattr(self, name)}")
        if not 0 <= self.ema < 1:
            raise ConfigError(f"ema must lie in [0,1), not {self.ema}")

    def lr_scale(self, step: int, steps_per_epoch: int, total: int) -> float:
        """Warm-up, then cosine to zero or FEAT's steps."""
        if self.scheduler == "step" and step >= self.warmup_epochs * steps_per_epoch:
            return float(self.gamma ** (step // (self.step_size * steps_per_epoch)))
        return super().lr_scale(step, steps_per_epoch, total)


@dataclass(frozen=True)
class PretrainConfig(Optimisation):
    """Stage 1: a plain classifier over the base classes."""

    backbone: str = "res12"
    lr: Annotated[float, "Pretraining learning rate"] = 0.1
    scheduler: Schedule = "cosine"
    epochs: Annotated[int, "Pretraining epochs"] = 100
    batch: Annotated[int, "Pretraining batch"] = 256
    label_smoothing: Annotated[float, "Pretraining only"] = 0.0
    warmup_epochs: float = 3.0
    ema: float = 0.999
    # quarter turns: asked which way an image was turned, the network learns more than the base classes need
    rotate: Annotated[float, "Share of images shown turned"] = 0.0
    rotation_weight: Annotated[float, "Weight of asking which way they were turned"] = 1.0
    # what transformers need that learn from few pictures; None: not done
    warp: Annotated[float | None, "Turn and shear pictures by up to this part of 45 degrees"] = None
    edits: Annotated[float | None, "Share of pictures with one more edit of colours or sharpness"] = None
    erase: Annotated[float | None, "Share of pictures of which a rectangle is erased"] = None
    mix: Annotated[float | None, "Share of pictures mixed with another: blended, or with a piece of it"] = None
    clip: Annotated[float | None, "Largest norm of a step's gradient"] = None
    num_eval_episodes: int = 2000
    eval_every: int = 5

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("rotate", "warp", "edits", "erase", "mix"):
            if not 0 <= (getattr(self, name) or 0) <= 1:
                raise ConfigError(f"{name} must lie in [0,1], not {getattr(self, name)}")
        if self.rotate and self.mix:
            raise ConfigError("rotate asks which way a picture was turned, mix shows two in one: choose one of them")


@dataclass(frozen=True)
class MetaConfig(Optimisation):
    """Stage 2: episodes; the defaults are the paper's for ProtoNet."""

    head: str = "protonet"
    lr: Annotated[float, "Meta-training learning rate of the backbone"] = 1e-4
    scheduler: Schedule = "step"
    optimizer: Optimizer = "auto"  # as FEAT: Adam for ConvNet, SGD with Nesterov's momentum for Res12
    way: Annotated[int, "Classes in an episode"] = 5
    shot: Annotated[tuple[int, ...], "Support images per class; repeat to alternate"] = (1,)
    query: Annotated[int, "Query images per class"] = 15
    max_epoch: Annotated[int, "Meta-training epochs"] = 400
    episodes_per_epoch: Annotated[int, "Episodes in an epoch"] = 100
    tasks: Annotated[int, "Episodes per optimiser step"] = 1
    lr_mul: Annotated[float, "How much faster than the backbone FEAT's set function learns"] = 10.0
    # None: the one with the lowest loss on validation episodes before training
    temperature: Annotated[float | None, "Of the logits; 0: fitted on validation episodes"] = None
    temperature2: Annotated[float | None, "Of FEAT's contrastive term; 0: as temperature"] = None
    balance: Annotated[float, "Weight of FEAT's contrastive term"] = 0.1
    use_euclidean: Annotated[bool, "Distance, or cosine similarity"] = True
    # so that training sees what evaluation sees
    fix_bn: Annotated[bool, "Keep the batch statistics of pretraining"] = True
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

    def head_settings(self) -> dict[str, Any]:
        """What `build_head` needs to make this head again."""
        known = {
            "metric": "euclidean" if self.use_euclidean else "cosine",
            "temperature": self.temperature,
            "temperature2": self.temperature2,
        }
        used = {"protonet": ("metric", "temperature"), "feat": ("metric", "temperature", "temperature2")}
        return {name: known[name] for name in used.get(self.head, ())}


# The paper's FEAT arguments (its appendix "FSL model training"), and its ProtoNet arguments.
PAPER_PROTONET = MetaConfig(head="protonet", temperature=1.0)
PAPER_FEAT = MetaConfig(head="feat", lr=2e-4, step_size=40, gamma=0.5, temperature=64.0, temperature2=64.0)

# What the released checkpoints were made with, benchmark by benchmark; a test holds these against their cards.
# Eight episodes a step keep a large GPU busy, and the learning rates of Res12 (SGD) are higher for it; both shots take
# turns, so one checkpoint serves both. Epochs are what fitted the minutes there were.
_CONVNET = PretrainConfig(backbone="convnet")
# After "How to train your ViT" and "Better plain ViT baselines for ImageNet-1k", as far as minutes go: strong
# augmentation (less than there: some fifty epochs do not overfit), AdamW with decay on matrices alone, a long average.
# Epochs are replaced by what fits the time there is.
_TRANSFORMER = PretrainConfig(
    optimizer="adamw", lr=8e-4, weight_decay=0.05, batch=512, epochs=80, warmup_epochs=5.0, ema=0.9995,
    label_smoothing=0.05, crop_scale=(0.3, 1.0), jitter=0.4, warp=0.3, edits=0.3, erase=0.1, mix=0.4, clip=1.0,
    eval_every=4,
)  # fmt: skip
TRANSFORMERS = {name: replace(_TRANSFORMER, backbone=name) for name in ("vit-small", "swin-tiny")}
FINE_TUNED = replace(_TRANSFORMER, lr=5e-5, epochs=20, warmup_epochs=1.0, mix=0.3, batch=128)  # from the hub's weights

PRETRAIN: dict[tuple[str, str], PretrainConfig] = {
    ("miniimagenet", "res12"): PretrainConfig(backbone="res12", epochs=125, rotate=0.5, eval_every=6),
    ("miniimagenet", "convnet"): replace(_CONVNET, epochs=91, crop_scale=(0.5, 1.0), jitter=0.2, eval_every=4),
    ("cub", "convnet"): replace(_CONVNET, epochs=124, crop_scale=(0.35, 1.0), eval_every=6),
}

_EPISODES = MetaConfig(
    tasks=8, episodes_per_epoch=800, shot=(1, 5), scheduler="cosine", warmup_epochs=0.5, ema=0.998,
    num_eval_episodes=2000,
)  # fmt: skip
_RES12 = replace(_EPISODES, fix_bn=True)
_CONV = replace(_EPISODES, fix_bn=False, lr=1e-3)
META: dict[tuple[str, str, str], MetaConfig] = {
    ("miniimagenet", "res12", "protonet"): replace(_RES12, max_epoch=6, lr=4e-3),
    ("miniimagenet", "res12", "feat"): replace(_RES12, head="feat", max_epoch=10, lr=2.5e-3, balance=0.01),
    ("miniimagenet", "convnet", "protonet"): replace(_CONV, max_epoch=39, lr=2e-3, use_euclidean=False),
    ("cub", "convnet", "protonet"): replace(_CONV, max_epoch=11, use_euclidean=False),
    ("cub", "convnet", "feat"): replace(_CONV, head="feat", max_epoch=17, lr_mul=5),
}


def plain_recipe(backbone: str) -> PretrainConfig:
    """Without a recipe of its own: transformers have theirs, all else the defaults."""
    if backbone.startswith("hf:"):
        return replace(FINE_TUNED, backbone=backbone)
    return TRANSFORMERS.get(backbone, PretrainConfig(backbone=backbone))


def released_pretrain(data: str, backbone: str) -> PretrainConfig | None:
    """The recipe for this benchmark, else the first for the same backbone."""
    near = [config for (_, b), config in PRETRAIN.items() if b == backbone]
    return PRETRAIN.get((data, backbone), near[0] if near else None)


def released_meta(data: str, backbone: str, head: str) -> MetaConfig | None:
    near = [config for (_, b, h), config in META.items() if (b, h) == (backbone, head)]
    return META.get((data, backbone, head), near[0] if near else None)
