"""N-way K-shot episodes as index arrays: sampled all at once, replayable from a seed, checked for leaks.

Oracle views are other real images of the same class, the upper bound the paper calls "Real/Oracle". They cannot be
fixed once per image: a fixed companion of a support image would sooner or later be the query. So they are drawn per
episode, outside it: no support view is a query's view, and no view is an image of the episode.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from onesdaug.errors import ConfigError, DataError

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Episodes:
    """E episodes as row numbers of a data set: support (E, N, S) and query (E, N, Q); class n is row n of both."""

    support: Tensor
    query: Tensor
    seed: int

    def __len__(self) -> int:
        return self.support.shape[0]

    @property
    def targets(self) -> Tensor:
        """The class 0..N-1 of each query of an episode, in the order of `query.flatten(1)`: (N·Q,)."""
        return torch.arange(self.query.shape[1]).repeat_interleave(self.query.shape[2])

    @property
    def fingerprint(self) -> str:
        """A name for exactly these episodes, whatever machine drew them."""
        digest = hashlib.sha256(repr((self.support.shape, self.query.shape)).encode())
        digest.update(self.support.numpy().astype("<i8").tobytes())
        digest.update(self.query.numpy().astype("<i8").tobytes())
        return digest.hexdigest()[:16]

    def recipe(self) -> dict[str, int | str]:
        """What to store beside a result: the arguments of `sample_episodes`, and the fingerprint to check them by."""
        (episodes, way, shot), query = self.support.shape, self.query.shape[2]
        return {
            "n_way": way,
            "k_shot": shot,
            "n_query": query,
            "n_episodes": episodes,
            "seed": self.seed,
            "fingerprint": self.fingerprint,
        }


@dataclass(frozen=True)
class ClassTable:
    """The rows of each class: `rows[starts[c] : starts[c] + sizes[c]]` are the images of class c."""

    rows: Ints
    starts: Ints
    sizes: Ints
    number: Ints  # of each row's class

    @classmethod
    def of(cls, labels: ArrayLike | Tensor) -> ClassTable:
        _, number = np.unique(np.asarray(labels), return_inverse=True)
        sizes = np.bincount(number)
        return cls(np.argsort(number, kind="stable"), np.cumsum(sizes) - sizes, sizes, number)


def sample_episodes(
    labels: ArrayLike | Tensor, n_way: int, k_shot: int, n_query: int, n_episodes: int, seed: int
) -> Episodes:
    """Draw classes, then images, uniformly without replacement; the same arguments always give the same episodes."""
    if min(n_way, k_shot, n_query, n_episodes) < 1 or seed < 0:
        raise ConfigError(
            f"way, shot, query and episodes must be at least 1 and the seed not negative, "
            f"got {(n_way, k_shot, n_query, n_episodes, seed)}"
        )
    table = ClassTable.of(labels)
    _check_sizes(table.sizes, n_way, k_shot, n_query)
    rng = np.random.default_rng(np.random.SeedSequence([seed, n_way, k_shot, n_query]))
    classes = rng.random((n_episodes, table.sizes.size)).argsort(1)[:, :n_way]
    picks = draw_distinct(rng, table.sizes[classes].ravel(), k_shot + n_query)
    images = table.rows[picks.reshape(n_episodes, n_way, -1) + table.starts[classes][..., None]]
    support, query = np.split(images, [k_shot], axis=2)
    return Episodes(
        torch.from_numpy(np.ascontiguousarray(support)), torch.from_numpy(np.ascontiguousarray(query)), seed
    )


def replay(labels: ArrayLike | Tensor, recipe: Mapping[str, Any]) -> Episodes:
    """The episodes a stored `recipe` names; an error if these labels do not give the very same ones."""
    names = ("n_way", "k_shot", "n_query", "n_episodes", "seed")
    episodes = sample_episodes(labels, *(int(recipe[name]) for name in names))
    if episodes.fingerprint != recipe["fingerprint"]:
        raise DataError(
            f"these are not the stored episodes (fingerprint {episodes.fingerprint}, stored {recipe['fingerprint']}): "
            "the data set has other images or another order than the one they were drawn from"
        )
    return episodes


def check_episodes(episodes: Episodes, labels: ArrayLike | Tensor) -> None:
    """Raise unless every episode has N different classes, pure rows, and no image twice (support or query)."""
    values = np.asarray(labels)
    images = np.concatenate([episodes.support.numpy(), episodes.query.numpy()], axis=2)
    kinds = values[images]
    mixed = (kinds != kinds[:, :, :1]).any((1, 2))
    if mixed.any():
        raise DataError(f"episode {mixed.argmax()} has images of another class among those of one class")
    if (repeated := _repeats(kinds[:, :, 0])).any():
        raise DataError(f"episode {repeated.argmax()} uses the same class twice")
    if (leaked := _repeats(images.reshape(len(episodes), -1))).any():
        raise DataError(
            f"episode {leaked.argmax()} uses an image twice: a query would be scored with itself, or counted double"
        )


def draw_distinct(rng: np.random.Generator, sizes: Ints, k: int) -> Ints:
    """For each row r, k different numbers out of range(sizes[r]), in random order: (R,) -> (R, k).

    Floyd's algorithm, one step for all rows at once: k·R random numbers instead of a permutation of every class.
    Only `Generator.random` is used, whose stream NumPy keeps stable.
    """
    chosen = np.empty((k, sizes.size), dtype=np.int32)
    uniform = rng.random((k, sizes.size))
    for i in range(k):
        last = (sizes - k + i).astype(np.int32)
        draw = (uniform[i] * (last + 1)).astype(np.int32)
        seen = (chosen[:i] == draw).any(0)
        chosen[i] = np.where(seen, last, draw)
    # Floyd's sets are uniform but their order is not: who is support and who is query must be drawn too
    order = rng.random((sizes.size, k)).argsort(1)
    return np.take_along_axis(chosen.T, order, 1).astype(np.int64)


def _check_sizes(sizes: Ints, n_way: int, k_shot: int, n_query: int) -> None:
    if sizes.size < n_way:
        raise DataError(f"{n_way}-way episodes need {n_way} classes, the data has {sizes.size}")
    need = k_shot + n_query
    if (small := np.flatnonzero(sizes < need)).size:
        raise DataError(
            f"{k_shot} support + {n_query} query images need {need} images in every class; "
            f"{small.size} of {sizes.size} classes have fewer (class {small[0]} has {sizes[small[0]]}). "
            "Lower the queries per class or drop the class"
        )


def _repeats(rows: Ints) -> NDArray[np.bool_]:
    """Which rows of (E, m) hold some value more than once."""
    ordered = np.sort(rows, axis=1)
    found: NDArray[np.bool_] = (ordered[:, 1:] == ordered[:, :-1]).any(1)
    return found


@dataclass(frozen=True)
class OracleViews:
    """Row numbers of the views of every episode: support (E, N, S, Ks) and query (E, N, Q, Kq)."""

    support: Tensor
    query: Tensor


def sample_oracle_views(
    episodes: Episodes, labels: ArrayLike | Tensor, support_views: int, query_views: int
) -> OracleViews:
    """Draw views for the support images, all different, then for each query from what is left of its class.

    Two queries may share a view: each is scored on its own. The stream follows from the episodes' seed.
    """
    table = ClassTable.of(labels)
    (count, way, shot), queries = episodes.support.shape, episodes.query.shape[2]
    kinds = table.number[episodes.support[:, :, 0].numpy()].reshape(-1)
    sizes, starts = table.sizes[kinds], table.starts[kinds]
    need = shot + queries + shot * support_views + query_views
    if (small := int(table.sizes.min())) < need:
        raise DataError(
            f"oracle views ({support_views} per support, {query_views} per query image) need classes of "
            f"{need} images; the smallest has {small}. Use fewer views or fewer queries per class"
        )
    place = np.empty_like(table.rows)  # row of the data set -> its number within its class
    place[table.rows] = np.arange(place.size) - np.repeat(table.starts, table.sizes)

    rng = np.random.default_rng(np.random.SeedSequence([episodes.seed, shot, queries, 0x0AC1E]))
    inside = torch.cat([episodes.support, episodes.query], dim=2).numpy().reshape(count * way, -1)
    taken = place[inside]
    for_support = _draw_outside(rng, sizes, taken, shot * support_views)
    taken = np.concatenate([taken, for_support], axis=1)
    for_query = _draw_outside(rng, np.repeat(sizes, queries), np.repeat(taken, queries, axis=0), query_views)
    support = table.rows[for_support + starts[:, None]].reshape(count, way, shot, support_views)
    query = table.rows[for_query + np.repeat(starts, queries)[:, None]].reshape(count, way, queries, query_views)
    return OracleViews(torch.from_numpy(support), torch.from_numpy(query))


def check_oracle_views(episodes: Episodes, views: OracleViews, labels: ArrayLike | Tensor) -> None:
    """Raise if a view is an image of its episode, belongs to another class, or serves support and query at once."""
    values = np.asarray(labels)
    for images, drawn in ((episodes.support, views.support), (episodes.query, views.query)):
        if (values[drawn.numpy()] != values[images.numpy()][..., None]).any():
            raise DataError("an oracle view shows another class than its image")
    offset = (np.arange(len(episodes)) * values.size)[:, None]  # makes row numbers unique to their episode

    def named(rows: Tensor) -> Ints:
        return rows.numpy().reshape(len(episodes), -1) + offset

    inside = np.concatenate([named(episodes.support), named(episodes.query)], axis=1)
    for side, drawn in (("support", views.support), ("query", views.query)):
        if np.isin(named(drawn), inside).any():
            raise DataError(f"an oracle view of a {side} image is itself an image of the episode")
    if np.isin(named(views.query), named(views.support)).any():
        raise DataError("an oracle view serves a support and a query image of the same episode")


def _draw_outside(rng: np.random.Generator, sizes: Ints, taken: Ints, k: int) -> Ints:
    """For each row, k different numbers of range(sizes[r]) that are not among taken[r]: (R,), (R, m) -> (R, k)."""
    picks = draw_distinct(rng, sizes - taken.shape[1], k)
    for t in np.sort(taken, axis=1).T:  # the j-th free number: step over every taken one not above it
        picks += picks >= t[:, None]
    return picks
