"""The feature radius on shapes checked by eye, and the paper's claim where it holds and where it does not."""

from __future__ import annotations

import math
import re
from pathlib import Path

import numpy as np
import pytest
import torch

from onesdaug.analysis.radius import DISTRIBUTIONS, measure, overlap, reduction
from onesdaug.errors import ConfigError, DataError

PAGE = Path(__file__).parents[2] / "docs" / "theory.md"
LABELS = torch.tensor([0, 0, 7, 7])
SQUARE = torch.tensor([[3.0, 4.0], [3.0, 6.0], [-5.0, 0.0], [-7.0, 0.0]])


def test_centres() -> None:
    found = {centre: measure(SQUARE, SQUARE / 2, LABELS, centre) for centre in ("origin", "set", "class")}
    assert found["origin"].before == pytest.approx(7)
    assert found["origin"].class_before == pytest.approx((math.sqrt(45), 7))
    assert found["class"].class_before == pytest.approx((1, 1))
    assert found["class"].rms_before == pytest.approx(1)
    for radius in found.values():
        assert radius.after == pytest.approx(radius.before / 2)
        assert radius.rms_after == pytest.approx(radius.rms_before / 2)
        assert radius.classes_shrunk == 1
        assert radius.images_shrunk.mean == 1


def test_a_set_that_grows_and_one_that_stays() -> None:
    grown = SQUARE.clone()
    grown[LABELS == 7] *= 2
    radius = measure(SQUARE, grown, LABELS)
    assert radius.classes_shrunk == 0  # class 0 stayed as it was: no reduction
    assert radius.after == pytest.approx(14)
    mixed = measure(SQUARE, torch.where((LABELS == 7).unsqueeze(1), SQUARE * 2, SQUARE / 2), LABELS)
    assert mixed.classes_shrunk == 0.5
    assert mixed.images_shrunk.mean == 0.5


def test_overlap_sees_no_scale_and_no_origin() -> None:
    """Distance 1 to the class mean; class means (3, 5) and (-6, 0) lie √(4.5² + 2.5²) from theirs."""
    assert overlap(SQUARE, LABELS) == pytest.approx(1 / math.hypot(4.5, 2.5))
    assert overlap(SQUARE * 3 + 100, LABELS) == pytest.approx(overlap(SQUARE, LABELS), rel=1e-5)


def rows() -> dict[str, list[float]]:
    """The simulation table of docs/theory.md: name -> K = 1 from, to, K = 3 from, to."""
    found = re.findall(
        r"^\| `([\w-]+)` \| \w+ \| ([\d.]+) – ([\d.]+) \| ([\d.]+) – ([\d.]+) \|", PAGE.read_text(), re.M
    )
    return {name: [float(v) for v in values] for name, *values in found}


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_simulation_is_what_the_page_says(name: str) -> None:
    low, high, low3, high3 = rows()[name]
    sample = DISTRIBUTIONS[name].sample
    one = reduction(sample, np.random.default_rng(0))
    three = reduction(sample, np.random.default_rng(1), views=3)
    assert low <= one.mean <= high
    assert low3 <= three.mean <= high3
    assert one == reduction(sample, np.random.default_rng(0))


@pytest.mark.parametrize("name", [n for n, d in DISTRIBUTIONS.items() if d.assumption == "independent"])
def test_the_proof_trial_by_trial(name: str) -> None:
    """Swap the two sets: in each trial at least one of the two orders sees its radius fall. Hence P >= ½, no luck."""
    x = DISTRIBUTIONS[name].sample(np.random.default_rng(2), (2000, 2, 3, 4))
    mean = np.linalg.norm(x.mean(1), axis=-1).max(-1)
    first, second = (np.linalg.norm(x[:, c], axis=-1).max(-1) for c in (0, 1))
    falls = (mean < first).astype(int) + (mean < second)
    assert falls.min() >= 1
    assert falls.mean() / 2 > 0.5


def test_one_image_on_a_ray_is_exactly_half() -> None:
    """Why the claim asks for m > 1: (a + b)/2 < a if and only if b < a."""
    ray = reduction(lambda rng, shape: rng.random(shape), np.random.default_rng(3), m=1, d=1, trials=20_000)
    assert abs(ray.mean - 0.5) < 1.6 * ray.ci95


def test_one_long_is_exactly_one_in_one_plus_k() -> None:
    for views in (1, 2, 4):
        found = reduction(DISTRIBUTIONS["one-long"].sample, np.random.default_rng(views), views=views, trials=10_000)
        assert abs(found.mean - 1 / (1 + views)) < 1.6 * found.ci95


def test_mistakes_are_explained() -> None:
    with pytest.raises(DataError, match="two sets of features"):
        measure(SQUARE, SQUARE[:2], LABELS)
    with pytest.raises(ConfigError, match="centre must be one of"):
        measure(SQUARE, SQUARE, LABELS, "middle")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="at least 1"):
        reduction(DISTRIBUTIONS["gaussian"].sample, np.random.default_rng(0), m=0)
