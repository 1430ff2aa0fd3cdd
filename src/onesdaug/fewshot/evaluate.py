"""Score a head on episodes of stored features: strictly inductive, chunked, every method on the same episodes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from onesdaug.common.progress import partly, progress
from onesdaug.ensemble.combine import shares
from onesdaug.ensemble.select import margins as margins_of
from onesdaug.ensemble.select import stops
from onesdaug.errors import ConfigError, DataError
from onesdaug.fewshot.bank import FeatureBank
from onesdaug.fewshot.episodes import (
    Episodes,
    OracleViews,
    check_episodes,
    check_oracle_views,
    sample_episodes,
    sample_oracle_views,
)
from onesdaug.fewshot.heads import Head, as_head
from onesdaug.fewshot.use import ViewUse as ViewUse  # part of this module's interface
from onesdaug.statistics import Paired, Summary, mean_ci, paired

# Gathered features per step: what a core's cache holds; 32 MB halves the speed.
CHUNK_BYTES = 8 * 2**20
PAPER_QUERIES = 15_000


@dataclass(frozen=True)
class Task:
    """The episodes to draw; by default 15,000 queries, 200 episodes of 75.

    That is one reading of the paper's "15,000 queries"; its intervals are as wide as those of about 1,000 episodes.
    """

    way: int = 5
    shot: int = 1
    query: int = 15
    episodes: int | None = None
    seed: int = 0

    def sample(self, labels: Tensor) -> Episodes:
        count = self.episodes or -(-PAPER_QUERIES // (self.way * self.query))
        return sample_episodes(labels, self.way, self.shot, self.query, count, self.seed)


@dataclass(frozen=True)
class Result:
    """One row of the table; accuracies in [0, 1]."""

    task: Task
    use: ViewUse
    accuracy: Summary
    gain: Paired | None  # against the baseline, on the same episodes
    episodes: dict[str, int | str]
    baseline: bool = False
    drawn: float = 0.0  # views per query that were needed


class EpisodeFeatures:
    """The features of a run of episodes: support (B, N, S, d) and class-major queries (B, N·Q, d).

    Views that belong to their image are combined with it once, and episodes look rows up. Oracle views are other
    originals, drawn per episode from outside it, so images are combined per episode.
    """

    def __init__(self, bank: FeatureBank, episodes: Episodes, use: ViewUse, oracle: OracleViews | None = None) -> None:
        self.episodes, self.oracle, self.weight = episodes, oracle, use.original_weight
        support, query = (0, 0) if oracle else (use.support, use.query)
        self.support_table = use.table(bank, support)
        self.looks, self.threshold = (query,) if oracle else use.looks, use.threshold
        self.query_tables = [self.support_table if n == support else use.table(bank, n) for n in self.looks]
        self.row_bytes = 4 * bank.dim * (1 + (max(use.support, use.query) if oracle else 0))  # gathered per image

    def support(self, chunk: slice) -> Tensor:
        images = _rows(self.support_table, self.episodes.support[chunk])
        return images if self.oracle is None else self._combine(images, self.oracle.support[chunk])

    def query(self, chunk: slice, look: int = -1) -> Tensor:
        """With all their views, or those of an earlier look."""
        images = _rows(self.query_tables[look], self.episodes.query[chunk].flatten(1))
        return images if self.oracle is None else self._combine(images, self.oracle.query[chunk].flatten(1, 2))

    def _combine(self, originals: Tensor, views: Tensor) -> Tensor:
        own, *others = shares(views.shape[-1], self.weight)
        return originals * own + _rows(self.support_table, views).sum(-2) * others[0] if others else originals


def features_for(bank: FeatureBank, episodes: Episodes, use: ViewUse) -> EpisodeFeatures:
    """The features these episodes see, after making sure that no image reaches both sides of one."""
    check_episodes(episodes, bank.labels)
    if max(use.support, use.query) > bank.k or min(use.support, use.query) < 0:
        raise ConfigError(f"{use.support} and {use.query} views asked for, the bank has {bank.k} per image")
    views = None
    if bank.oracle:
        if use.select != "all" or use.auto:
            raise ConfigError(
                "oracle views are drawn anew for every episode, so none is selected and none left out: leave --select "
                "and --k auto out"
            )
        views = sample_oracle_views(episodes, bank.labels, use.support, use.query)
        check_oracle_views(episodes, views, bank.labels)
    return EpisodeFeatures(bank, episodes, use, views)


def accuracies(
    head: Head | Callable[[Tensor, Tensor], Any], features: EpisodeFeatures, episodes: Episodes
) -> NDArray[np.float64]:
    """The share of right answers in each episode: (E,)."""
    return scored(head, features, episodes)[0]


def scored(
    head: Head | Callable[[Tensor, Tensor], Any], features: EpisodeFeatures, episodes: Episodes
) -> tuple[NDArray[np.float64], float]:
    """The same, and how many views a query takes on average."""
    right, drawn = answers(as_head(head), features, episodes)
    shares: NDArray[np.float64] = right.sum(1) / episodes.targets.numel()
    return shares, drawn


def answers(head: Head, features: EpisodeFeatures, episodes: Episodes) -> tuple[NDArray[np.float64], float]:
    """How many queries of each class of each episode are answered right, (E, N), and how many views a query takes.

    One chunk per thread rather than all threads on one chunk: the operations are too small to be worth a barrier
    each, and on a busy machine the barriers cost several times the arithmetic.
    """
    head.eval()
    way, shot, queries = *episodes.support.shape[1:], episodes.query.shape[2]
    step = max(1, CHUNK_BYTES // (features.row_bytes * way * (shot + queries)))
    targets = episodes.targets
    right = torch.empty(len(episodes), way, dtype=torch.int64)
    drawn = torch.empty(len(episodes), dtype=torch.float64)

    def score(start: int) -> None:
        chunk = slice(start, start + step)
        with torch.inference_mode():
            found, views = _answers(head, features, chunk)
            right[chunk] = (found == targets).view(-1, way, queries).sum(-1)
            drawn[chunk] = views.double().mean(-1)

    threads = torch.get_num_threads()
    try:
        with ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            for _ in pool.map(score, range(0, len(episodes), step)):
                partly(step / len(episodes))
    finally:
        torch.set_num_threads(threads)
    return right.double().numpy(), float(drawn.mean())


def _answers(head: Head, features: EpisodeFeatures, chunk: slice) -> tuple[Tensor, Tensor]:
    """The class that each query is taken for, and how many views that took."""
    support, count = features.support(chunk), torch.tensor(features.looks)
    if len(count) == 1:
        found = head.predict(support, features.query(chunk))
        return found, count.expand(found.shape)
    looks = [head(support, features.query(chunk, look)) for look in range(len(count))]
    last = stops(looks, features.threshold)
    best = torch.stack([look.argmax(-1) for look in looks])
    return best.gather(0, last[None])[0], count[last]


def margins(head: Head, bank: FeatureBank, episodes: Episodes, use: ViewUse) -> Tensor:
    """How sure the head is of each query without views, with those of the support in place: (E, N·Q)."""
    features = features_for(bank, episodes, replace(use, query=0, threshold=None, auto=False))
    step = max(1, CHUNK_BYTES // (features.row_bytes * episodes.targets.numel()))
    head.eval()
    with torch.inference_mode():
        found = [
            margins_of(head(features.support(chunk), features.query(chunk)))
            for chunk in (slice(start, start + step) for start in range(0, len(episodes), step))
        ]
    return torch.cat(found)


def check_comparable(bank: FeatureBank, reference: FeatureBank) -> None:
    if reference.info.ids != bank.info.ids or not torch.equal(reference.labels, bank.labels):
        raise DataError("the baseline bank holds other images than this one (or another order): not comparable")
    if reference.dim != bank.dim:
        raise DataError(f"the baseline's features have d = {reference.dim}, this bank's {bank.dim}")


def evaluate(
    bank: FeatureBank,
    head: Head | Callable[[Tensor, Tensor], Any],
    tasks: Sequence[Task],
    uses: Iterable[ViewUse],
    baseline: FeatureBank | None = None,
) -> list[Result]:
    """Every use of the views on every task, each against the baseline on the same episodes.

    The baseline is another bank of the same images with all its views, or this bank's originals alone. A head may be a
    plain function of support (E, N, S, d) and query (E, Q, d) that gives logits (E, Q, N).
    """
    uses = list(uses)
    reference = bank if baseline is None else baseline
    check_comparable(bank, reference)
    weight = uses[0].original_weight if uses else 0.5
    original = ViewUse(0, 0, weight) if baseline is None else ViewUse(baseline.k, baseline.k, weight)
    if baseline is None:
        uses = [use for use in uses if use.support or use.query]  # the others are the baseline itself
    results = []
    with progress(len(tasks) * (1 + len(uses)), "rows", "scoring episodes", parts=1) as bar:
        for task in tasks:
            episodes = task.sample(bank.labels)
            recipe = episodes.recipe()
            scores = accuracies(head, features_for(reference, episodes, original), episodes)
            results.append(Result(task, original, mean_ci(scores), None, recipe, baseline=True))
            bar.advance()
            for use in uses:
                mine, drawn = scored(head, features_for(bank, episodes, use), episodes)
                gain = paired(mine, scores) if len(episodes) > 1 else None
                results.append(Result(task, use, mean_ci(mine), gain, recipe, drawn=drawn))
                bar.advance()
    return results


def _rows(table: Tensor, index: Tensor) -> Tensor:
    """table[index]; index_select runs in parallel, indexing with a tensor does not."""
    return table.index_select(0, index.reshape(-1)).view(*index.shape, table.shape[1])
