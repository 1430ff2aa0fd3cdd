"""Episodes: uniform, replayable, and never the same image on both sides, not even as a view."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

from onesdaug.errors import ConfigError, DataError
from onesdaug.fewshot.episodes import (
    OracleViews,
    check_episodes,
    check_oracle_views,
    draw_distinct,
    replay,
    sample_episodes,
    sample_oracle_views,
)

# classes of different sizes, their images mixed together
LABELS = np.random.default_rng(0).permutation(np.repeat(np.arange(8), [20, 25, 30, 35, 40, 21, 22, 23]))


def test_shapes_and_purity() -> None:
    e = sample_episodes(LABELS, 5, 2, 6, 300, seed=0)
    assert (e.support.shape, e.query.shape, len(e)) == ((300, 5, 2), (300, 5, 6), 300)
    images = torch.cat([e.support, e.query], dim=2)
    kinds = LABELS[images.numpy()]
    assert (kinds == kinds[:, :, :1]).all()
    for episode in images.flatten(1):
        assert len(set(episode.tolist())) == 40
    assert all(len(set(row)) == 5 for row in kinds[:, :, 0].tolist())
    assert e.targets.tolist() == [n for n in range(5) for _ in range(6)]
    check_episodes(e, LABELS)


def test_same_seed_same_episodes_and_no_global_state() -> None:
    np.random.seed(0)
    torch.manual_seed(0)
    before = (np.random.get_state()[1].tolist(), torch.get_rng_state().tolist())  # type: ignore[index]
    first, again = (sample_episodes(LABELS, 5, 1, 5, 50, seed=3) for _ in range(2))
    assert first.fingerprint == again.fingerprint
    assert first.fingerprint != sample_episodes(LABELS, 5, 1, 5, 50, seed=4).fingerprint
    assert before == (np.random.get_state()[1].tolist(), torch.get_rng_state().tolist())  # type: ignore[index]


def test_fingerprint_is_the_same_everywhere() -> None:
    labels = np.repeat(np.arange(20), 600)
    assert sample_episodes(labels, 5, 1, 15, 200, seed=0).fingerprint == "93279f91e45fa69e"


def test_replay() -> None:
    e = sample_episodes(LABELS, 5, 1, 5, 50, seed=3)
    assert torch.equal(replay(LABELS, e.recipe()).query, e.query)
    with pytest.raises(DataError, match="not the stored episodes"):
        replay(LABELS[::-1].copy(), e.recipe())


def test_draws_are_uniform() -> None:
    """Every ordered pair out of 5 equally often (20 kinds, chi-square far from its tail), and full classes too."""
    picks = draw_distinct(np.random.default_rng(0), np.full(20_000, 5), 2)
    counts = np.bincount(picks[:, 0] * 5 + picks[:, 1], minlength=25).reshape(5, 5)
    assert np.diag(counts).sum() == 0
    off = counts[~np.eye(5, dtype=bool)]
    assert ((off - 1000) ** 2 / 1000).sum() < 43.8  # chi-square, 19 degrees of freedom, p = 0.001
    whole = draw_distinct(np.random.default_rng(0), np.full(50, 7), 7)
    assert (np.sort(whole, axis=1) == np.arange(7)).all()


def test_too_little_data_is_said() -> None:
    with pytest.raises(DataError, match="need 9 classes, the data has 8"):
        sample_episodes(LABELS, 9, 1, 1, 1, seed=0)
    with pytest.raises(
        DataError, match=r"need 21 images in every class; 1 of 8 classes have fewer \(class 0 has 20\)"
    ):
        sample_episodes(LABELS, 5, 1, 20, 1, seed=0)
    with pytest.raises(ConfigError, match="at least 1"):
        sample_episodes(LABELS, 5, 0, 5, 1, seed=0)


def test_a_leaked_query_is_caught() -> None:
    e = sample_episodes(LABELS, 5, 1, 5, 20, seed=0)
    query = e.query.clone()
    query[7, 2, 3] = e.support[7, 2, 0]
    with pytest.raises(DataError, match="episode 7 uses an image twice"):
        check_episodes(dataclasses.replace(e, query=query), LABELS)


def test_a_wrong_class_is_caught() -> None:
    e = sample_episodes(LABELS, 5, 1, 5, 20, seed=0)
    query = e.query.clone()
    query[4, 1, 0] = e.support[4, 0, 0]
    with pytest.raises(DataError, match="episode 4 has images of another class"):
        check_episodes(dataclasses.replace(e, query=query), LABELS)
    both, support = e.query.clone(), e.support.clone()
    support[3, 1], both[3, 1] = support[3, 0], both[3, 0]
    with pytest.raises(DataError, match="episode 3 uses the same class twice"):
        check_episodes(dataclasses.replace(e, support=support, query=both), LABELS)


def test_oracle_views_stay_outside_the_episode() -> None:
    e = sample_episodes(LABELS, 5, 2, 5, 200, seed=0)
    v = sample_oracle_views(e, LABELS, support_views=3, query_views=4)
    assert (v.support.shape, v.query.shape) == ((200, 5, 2, 3), (200, 5, 5, 4))
    check_oracle_views(e, v, LABELS)
    for i in range(200):
        inside = set(e.support[i].flatten().tolist()) | set(e.query[i].flatten().tolist())
        behind_support, behind_query = set(v.support[i].flatten().tolist()), set(v.query[i].flatten().tolist())
        assert not inside & (behind_support | behind_query)
        assert not behind_support & behind_query
        assert len(behind_support) == 30
        assert all(len(set(views)) == 4 for views in v.query[i].flatten(0, 1).tolist())
    assert (LABELS[v.query.numpy()] == LABELS[e.query.numpy()][..., None]).all()


def test_oracle_leaks_are_caught() -> None:
    e = sample_episodes(LABELS, 5, 1, 5, 20, seed=0)
    v = sample_oracle_views(e, LABELS, 2, 2)
    leaked = v.support.clone()
    leaked[3, 0, 0, 0] = e.query[3, 0, 0]
    with pytest.raises(DataError, match="support image is itself an image of the episode"):
        check_oracle_views(e, OracleViews(leaked, v.query), LABELS)
    shared = v.query.clone()
    shared[3, 0, 0, 0] = v.support[3, 0, 0, 0]
    with pytest.raises(DataError, match="serves a support and a query"):
        check_oracle_views(e, OracleViews(v.support, shared), LABELS)
    foreign = v.query.clone()
    foreign[0, 0, 0, 0] = v.query[0, 1, 0, 0]
    with pytest.raises(DataError, match="another class"):
        check_oracle_views(e, OracleViews(v.support, foreign), LABELS)


def test_oracle_needs_enough_images() -> None:
    e = sample_episodes(LABELS, 5, 5, 10, 2, seed=0)
    with pytest.raises(DataError, match="need classes of 21 images; the smallest has 20"):
        sample_oracle_views(e, LABELS, 1, 1)
