"""The recipes' paths in seconds on a CPU: for tests, and to try a change before renting a GPU."""

from __future__ import annotations

from dataclasses import asdict, replace

from onesdaug.generators.pocket.config import PocketConfig
from onesdaug.generators.pocket.recipe import (
    AutoencoderConfig,
    DenoiserConfig,
    EncoderConfig,
    PhotoDenoiserConfig,
    PhotoRecipe,
    PolishConfig,
    Recipe,
    StageConfig,
    ThumbnailRecipe,
)

_TINY = PocketConfig(
    size=32, ae_width=16, width=16, dim=32, depth=3, heads=2, global_dim=24, local_dim=24
)  # fmt: skip
_FEW = StageConfig(steps=2, batch=8, lr=1e-3, warmup_epochs=0.0, ema=0.5)
_FEW_DENOISER = DenoiserConfig(
    steps=2, batch=8, lr=1e-3, warmup_epochs=0.0, ema=0.5, target_views=2, condition_views=2
)
SMOKE = Recipe(
    widths=(8, 12, 16, 24),
    network=_TINY,
    encoder=_FEW,
    autoencoder=_FEW,
    denoiser=_FEW_DENOISER,
    polish=replace(_FEW_DENOISER, perceptual=0.2, perceptual_rows=4),
)
_FEW_CROPS = AutoencoderConfig(steps=2, batch=4, lr=1e-3, warmup_epochs=0.0, ema=0.5, crop=32)
_FEW_PHOTOS = PhotoDenoiserConfig(steps=2, batch=8, lr=1e-3, warmup_epochs=0.0, ema=0.5)
_FEW_OF_BOTH = replace(_FEW_PHOTOS, small_batch=8, late=True)
PHOTO_SMOKE = PhotoRecipe(
    condition="efficientnet-lite0",
    network=replace(
        PhotoRecipe.network,
        size=64,
        channels=4,
        ae_width=8,
        width=16,
        dim=32,
        depth=3,
        heads=2,
        local=16,
        local_dim=320,
    ),
    autoencoder=_FEW_CROPS,
    decoder=replace(_FEW_CROPS, adversarial=0.5),
    small=32,
    denoiser=_FEW_OF_BOTH,
    polish=PolishConfig(**asdict(_FEW_OF_BOTH), perceptual_rows=4),
    guidance=replace(_FEW_OF_BOTH, decays=True, guidance=4.0),
)
_FEW_THUMBNAILS = replace(_FEW_PHOTOS, shares=(0.0, 0.6, 0.4))
THUMBNAIL_SMOKE = ThumbnailRecipe(
    network=replace(
        ThumbnailRecipe.network, size=32, ae_width=8, width=16, dim=32, depth=3, heads=2, global_dim=24, local_dim=24
    ),
    encoder=EncoderConfig(steps=2, batch=8, lr=1e-3, warmup_epochs=0.0, ema=0.5, widths=(8, 12, 16, 24)),
    autoencoder=_FEW_CROPS,
    decoder=replace(_FEW_CROPS, adversarial=0.5),
    views=2,
    denoiser=_FEW_THUMBNAILS,
    polish=PolishConfig(**asdict(_FEW_THUMBNAILS), perceptual_rows=4),
    guidance=replace(_FEW_THUMBNAILS, decays=True, guidance=16.0),
)
STAGED = {
    "photo": PhotoRecipe(),
    "photo-smoke": PHOTO_SMOKE,
    "pocket": ThumbnailRecipe(),
    "pocket-smoke": THUMBNAIL_SMOKE,
}  # those that are trained in pieces
