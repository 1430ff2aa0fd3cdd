"""Where the real benchmarks lie, or a skip that says why a test did not run."""

from __future__ import annotations

from pathlib import Path

import pytest

from onesdaug.data.registry import ENVIRONMENT, data_root


def real_root(benchmark: str) -> Path:
    """The data root that holds the benchmark: `ONESDAUG_DATA`, else `../shared/data` beside the repository."""
    root = data_root() or Path(__file__).resolve().parents[2] / "shared" / "data"
    if not (root / benchmark).is_dir():
        pytest.skip(f"{benchmark} is not here: set {ENVIRONMENT} to a folder that holds it")
    return root
