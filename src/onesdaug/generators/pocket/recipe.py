"""What `onesdaug generator train` can be told: plain dataclasses, for machines that have torch and little else."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

from onesdaug.errors import ConfigError
from onesdaug.generators.pocket.condition import WIDTHS
from onesdaug.generators.pocket.networks import PocketConfig
from onesdaug.training.settings import StageSettings

EPOCH = 100  # steps that the loop calls an epoch: how often it logs


@dataclass(frozen=True)
class StageConfig(StageSettings):
    """One stage's optimisation. `seconds` sets the number of steps to what fits the machine instead."""

    steps: int
    batch: int
    lr: float
    ema: float = 0.999
    weight_decay: float = 0.0
    seconds: float | None = None
    warmup_epochs: float = 3.0
    seed: int = 0
    eval_every: int = 5

    def __post_init__(self) -> None:
        if self.steps < 1 or self.batch < 1 or self.lr <= 0:
            raise ConfigError(f"steps, batch and lr must be positive: {self}")


@dataclass(frozen=True)
class AutoencoderConfig(StageConfig):
    """What an autoencoder of photographs is asked for beside the right pixels, as shares of their gradient."""

    crop: int = 128  # side of the squares it is trained on
    perceptual: float = 0.3
    adversarial: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.crop % 16 or self.batch < 4:
            raise ConfigError(f"crop must be a multiple of 16 and batch at least 4: {self}")


@dataclass(frozen=True)
class DenoiserConfig(StageConfig):
    """How the denoiser is told about the original image, and its perceptual polish."""

    same_class: float = 0.45  # share of samples conditioned on ANOTHER image of the class, through one token
    dropped: float = 0.1  # share without condition: the negative side of guidance
    target_views: int = 6  # crops of each image whose latents are drawn from
    condition_views: int = 4  # crops of each image whose features are drawn from
    perceptual: float = 0.0  # weight of the feature distance of x0, through the clean condition encoder
    perceptual_rows: int = 256  # rows of the batch it is computed on


@dataclass(frozen=True)
class PhotoDenoiserConfig(StageConfig):
    """A piece of the denoiser's training on photographs."""

    shares: tuple[float, float, float] = (0.6, 0.2, 0.2)  # of photographs, labelled and small labelled pictures
    same_class: float = 0.6  # share of labelled samples that are conditioned on another image of the class
    dropped: float = 0.1  # share without condition: the negative side of guidance
    decays: bool = False  # else the rate stays: the next piece goes on from the averaged weights
    guidance: float = 1.0  # above 1: learn to draw guided up to this scale, from the network as it was
    small_batch: int = 0  # samples beside them, drawn small, of pictures that have classes
    late: bool = False  # a class alone is asked for where nearly all is noise: more of such samples

    def __post_init__(self) -> None:
        super().__post_init__()
        if min(self.shares) < 0 or sum(self.shares) <= 0 or not 1 <= self.guidance <= 16:
            raise ConfigError(f"shares must not be negative, and guidance lies between 1 and 16: {self}")

    def lr_scale(self, step: int, steps_per_epoch: int, total: int) -> float:
        """Warm-up, then cosine to zero, or no change."""
        scale = super().lr_scale(step, steps_per_epoch, total)
        return scale if self.decays or step < self.warmup_epochs * steps_per_epoch else 1.0


@dataclass(frozen=True)
class EncoderConfig(StageConfig):
    """A Res12 that learns to name classes and quarter turns. Small pictures first: what is rough is learned as well
    from them, and they cost half as much."""

    widths: tuple[int, int, int, int] = WIDTHS
    small_side: int = 64
    small_share: float = 0.6  # of the steps

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.small_side < 16 or not 0 <= self.small_share < 1:
            raise ConfigError(f"small_side is at least 16 and small_share at least 0 and below 1: {self}")


@dataclass(frozen=True)
class PolishConfig(PhotoDenoiserConfig):
    """A piece of the denoiser's training in which what it draws must also look right, to encoders."""

    perceptual: float = 1.0
    perceptual_rows: int = 256  # rows of the batch that are drawn, three of four of them from a class where half are


_RELEASED = PocketConfig()


@dataclass(frozen=True)
class Recipe:
    """The whole recipe of one generator, stage by stage."""

    condition: str = "slim-res12"
    widths: tuple[int, int, int, int] = WIDTHS
    network: PocketConfig = _RELEASED
    encoder: StageConfig = StageConfig(steps=7_500, batch=256, lr=0.1, weight_decay=5e-4, seconds=180)
    autoencoder: StageConfig = StageConfig(steps=2_900, batch=128, lr=1e-3, seconds=110)
    denoiser: DenoiserConfig = DenoiserConfig(
        steps=3_700, batch=1024, lr=1e-3, ema=0.9995, weight_decay=0.01, seconds=480
    )
    polish: DenoiserConfig = DenoiserConfig(
        steps=700, batch=512, lr=3e-4, ema=0.998, weight_decay=0.01, perceptual=0.6, seconds=105
    )

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def without_budget(self) -> Recipe:
        """The steps as they stand, however long they take."""
        stages = {name: replace(getattr(self, name), seconds=None) for name in STAGES}
        return replace(self, **stages)


STAGES = ("encoder", "autoencoder", "denoiser", "polish")
# Seconds are those of one H200, where the steps named above are what fitted; `pocket-imagenet` starts from `pocket-1`.
RECIPES: dict[str, Recipe] = {
    "pocket-1": Recipe(),
    "pocket-imagenet": Recipe(
        condition="efficientnet-lite0",
        network=PocketConfig(global_dim=1280, local_dim=1280),
        denoiser=replace(Recipe.denoiser, steps=1_100, lr=6e-4, seconds=150),
        polish=replace(Recipe.polish, seconds=110),
    ),
}


_PHOTO = PocketConfig(
    size=256, down=8, channels=12, ae_width=64, width=128, dim=512, depth=8, heads=8, local=64,
    global_dim=1280, local_dim=352, told=2,
)  # fmt: skip


@dataclass(frozen=True)
class PhotoRecipe:
    """The recipe of a generator of photographs: the pixels first, then texture; then the denoiser, in pieces."""

    condition: str = "efficientnet-lite2"
    network: PocketConfig = _PHOTO
    autoencoder: AutoencoderConfig = AutoencoderConfig(steps=5_000, batch=128, lr=1e-3, seconds=200, eval_every=3)
    decoder: AutoencoderConfig = AutoencoderConfig(
        steps=1_500, batch=128, lr=2e-4, ema=0.998, perceptual=0.5, adversarial=0.4, seconds=75, eval_every=3
    )
    views: int = 2  # pairs of crops of each picture whose latents and features are kept
    # Pictures with classes have 64 to 84 pixels: drawn with 128 they cost a quarter, and what a class looks like is
    # learned from four times as many.
    small: int = 128
    denoiser: PhotoDenoiserConfig = PhotoDenoiserConfig(
        steps=5_000, batch=320, lr=8e-4, ema=0.999, weight_decay=0.01, seconds=780, eval_every=15, small_batch=768,
        late=True,
    )  # fmt: skip
    # the sizes of their batches are those of the pieces: what was compiled for these serves them too
    polish: PolishConfig = PolishConfig(
        steps=2_000, batch=320, lr=2e-4, ema=0.998, weight_decay=0.01, seconds=330, eval_every=5, warmup_epochs=1.0,
        decays=True, small_batch=768, late=True, perceptual_rows=256,
    )  # fmt: skip
    guidance: PhotoDenoiserConfig = PhotoDenoiserConfig(
        steps=1_500, batch=320, lr=2e-4, ema=0.998, weight_decay=0.01, seconds=330, eval_every=5, warmup_epochs=1.0,
        dropped=0.05, decays=True, guidance=16.0, small_batch=768, late=True,
    )  # fmt: skip

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @property
    def kept_widths(self) -> tuple[int, int, int, int]:
        """Of an encoder that lies among the weights."""
        return WIDTHS

    def stage(self, name: str) -> StageConfig:
        """The settings of a stage; pieces of the denoiser's training differ in what they draw at random."""
        if (number := piece(name)) is not None:
            return replace(self.denoiser, seed=number)
        config: StageConfig = getattr(self, name)
        return config

    @property
    def stage_names(self) -> list[str]:
        """Those whose length can be set; that of the denoiser is the length of every piece."""
        return [name for name, value in vars(self).items() if isinstance(value, StageConfig)]

    def with_seconds(self, seconds: dict[str, float | None]) -> PhotoRecipe:
        """Other lengths for some of the stages; None: their steps, however long they take."""
        return replace(self, **{name: replace(getattr(self, name), seconds=s) for name, s in seconds.items()})


PIECES = 9  # of the denoiser's training, at most
_PIECES = tuple(f"denoiser-{i}" for i in range(1, PIECES + 1))
PHOTO_STAGES = ("autoencoder", "decoder", *_PIECES, "polish", "guidance")


def piece(stage: str) -> int | None:
    """Which piece of the denoiser's training a stage is, if it is one."""
    word, _, number = stage.partition("-")
    return int(number) if word == "denoiser" and stage in PHOTO_STAGES else None


_THUMBNAILS = PocketConfig(
    channels=6, ae_width=64, width=96, dim=384, depth=7, heads=6, global_dim=768, local_dim=768, told=2, deep=True
)


@dataclass(frozen=True)
class ThumbnailRecipe(PhotoRecipe):
    """The recipe of `pocket`: a wide encoder, trained for a third of the time; then as `photo`, with 96 pixels."""

    condition: str = "slim-res12"
    network: PocketConfig = _THUMBNAILS
    encoder: EncoderConfig = EncoderConfig(
        steps=18_000, batch=256, lr=0.1, weight_decay=5e-4, eval_every=45, widths=(96, 192, 384, 768), seconds=550
    )
    autoencoder: AutoencoderConfig = AutoencoderConfig(
        steps=5_000, batch=128, lr=1e-3, crop=96, perceptual=0.5, seconds=110, eval_every=10
    )
    decoder: AutoencoderConfig = AutoencoderConfig(
        steps=1_500, batch=128, lr=2e-4, ema=0.998, crop=96, perceptual=2.0, adversarial=0.1, seconds=45, eval_every=5
    )
    views: int = 4
    small: int = 0
    # one size of batches: what was compiled for the pieces serves polish and guidance, too
    denoiser: PhotoDenoiserConfig = PhotoDenoiserConfig(
        steps=4_000, batch=512, lr=8e-4, ema=0.999, weight_decay=0.01, seconds=360, eval_every=20,
        shares=(0.0, 0.6, 0.4), same_class=0.5, late=True,
    )  # fmt: skip
    polish: PolishConfig = PolishConfig(
        steps=2_000, batch=512, lr=3e-4, ema=0.998, weight_decay=0.01, seconds=270, eval_every=8, warmup_epochs=1.0,
        shares=(0.0, 0.6, 0.4), same_class=0.5, decays=True, late=True,
    )  # fmt: skip
    guidance: PhotoDenoiserConfig = PhotoDenoiserConfig(
        steps=1_200, batch=512, lr=2e-4, ema=0.998, weight_decay=0.01, seconds=140, eval_every=8, warmup_epochs=1.0,
        shares=(0.0, 0.6, 0.4), same_class=0.5, dropped=0.05, decays=True, guidance=16.0, late=True,
    )  # fmt: skip

    @property
    def kept_widths(self) -> tuple[int, int, int, int]:
        return self.encoder.widths


THUMBNAIL_STAGES = ("encoder", "autoencoder", "decoder", *_PIECES, "polish", "guidance")
