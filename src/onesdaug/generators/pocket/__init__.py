"""The pocket generator: small enough that its weights lie inside the package; its networks and its recipe."""

from onesdaug.generators.pocket.generator import Photo, Pocket, condition_encoder

__all__ = ["Photo", "Pocket", "condition_encoder"]
