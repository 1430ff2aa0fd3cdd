"""Walks through all calls to a lent machine take minutes: they are for whoever is about to make these calls."""

from __future__ import annotations

import os

import pytest

whole_walk = pytest.mark.skipif(
    "ONESDAUG_DRIVERS" not in os.environ, reason="minutes: set ONESDAUG_DRIVERS=1 before a lent machine is used"
)
