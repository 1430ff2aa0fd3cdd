"""Weights of the pocket-imagenet generator; `onesdaug` finds them here."""
