"""Oracle views: other real images of the same class, the upper bound the paper calls "Real/Oracle".

They cannot be fixed once per image: a fixed companion of a support image would sooner or later be the query. So
they are drawn per episode, outside it: no support view is a query's view, and no view is an image of the episode.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from onesdaug.errors import DataError
from onesdaug.fewshot.episodes import ClassTable, Episodes, Ints, draw_distinct


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
