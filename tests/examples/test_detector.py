"""The example's own arithmetic, with a stand-in for the network: which object is asked about, margins, threshold."""

from __future__ import annotations

import runpy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from PIL import Image

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "detector.py"


@pytest.fixture()
def detector(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Sees a dog, more surely the brighter the picture is."""
    found = runpy.run_path(str(EXAMPLE))

    def run(_: None, fed: dict[str, np.ndarray]) -> list[np.ndarray]:
        (pixels,) = fed.values()
        assert pixels.shape == (1, 3, 640, 640) and pixels.dtype == np.float32
        boxes = np.zeros((1, 84, 5), np.float32)
        boxes[0, 4 + found["OBJECTS"].index("dog"), 2] = pixels.mean()
        asked.append(pixels.mean())
        return [boxes]

    asked: list[float] = []
    network = SimpleNamespace(run=run, get_inputs=lambda: [SimpleNamespace(name="images")])
    monkeypatch.setitem(found["best_scores"].__globals__, "_network", lambda: network)
    return {**found, "asked": asked}


def test_a_detector_answers_by_its_best_score(detector: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DETECTOR_THRESHOLD", "0.5")
    dark, bright = (Image.new("RGB", (32, 24), (value,) * 3) for value in (64, 192))
    texts = ["Is there a dog in the image?", "Is there a dog in the imange?", "Is there an airplane in the image?"]
    said = detector["ask"]([dark, bright, bright], texts)
    assert said[0] < 0 < said[1] and said[2] < -10
    assert said[1] == pytest.approx(np.log(192 / 63), abs=1e-3)
    assert len(detector["asked"]) == 2  # a picture is looked at once, whatever is asked
    with pytest.raises(ValueError, match="asks about none of the detector's 80 objects"):
        detector["ask"]([dark], ["Is there a unicorn in the image?"])


def test_the_threshold_lies_where_most_are_right(detector: dict[str, Any]) -> None:
    scores, labels = np.array([0.1, 0.2, 0.6, 0.8]), np.array([False, False, True, True])
    assert detector["best_threshold"](scores, labels) == pytest.approx(0.4)
