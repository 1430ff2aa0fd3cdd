"""Errors for people: what was wrong, with which file or value, and what to do about it."""

from __future__ import annotations


def how_to_install(extra: str) -> str:
    """The command for an optional part; until there is a release, the parts come from a clone."""
    return f"pip install '.[{extra}]' in a clone of onesdaug (which is not on PyPI yet)"


class OnesdaugError(Exception):
    """Base of everything this package raises on purpose; its text is meant to be shown as it is."""


class ConfigError(OnesdaugError, ValueError):
    """A setting that cannot work; says which one and what would."""


class ImageError(OnesdaugError, ValueError):
    """An input that is not a usable image; says which file and why."""


class WeightsMissing(OnesdaugError, FileNotFoundError):
    """Model weights that are not on this machine; carries the exact command that gets them."""


class DataError(OnesdaugError, ValueError):
    """A data set that is missing or not what it claims to be; says what was found and what was expected."""
