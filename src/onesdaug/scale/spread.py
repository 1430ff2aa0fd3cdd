"""Units of work spread over long-lived workers by Ray Data, which feeds them no faster than results are taken.

A worker that dies, with its node or alone, loses what it had at hand. Those units are worked on again: once as they
are, with nothing else waiting at the same worker, then in their smallest parts, so that what kills its worker costs
only itself and is told.
"""

from __future__ import annotations

import logging
import pickle
import warnings
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from onesdaug.common.progress import log
from onesdaug.errors import OnesdaugError, WeightsMissing
from onesdaug.scale.start import RayOptions, connected, settle_in, share

Unit = TypeVar("Unit")
Result = TypeVar("Result")
_TIMES = 2  # that a unit may be lost as it is, and then once alone


@dataclass(frozen=True)
class _Waiting(Generic[Unit]):
    """A unit not done yet, and how often its worker died."""

    unit: Unit
    times: int = 0
    alone: bool = False


class _Worker:
    """Made once in each worker's process; `make` loads what takes long and gives the function of one unit."""

    def __init__(self, make: Callable[[], Callable[[Any], Any]], folder: str) -> None:
        settle_in(folder)
        self.work = make()

    def __call__(self, rows: dict[str, Any]) -> dict[str, list[Any]]:
        number, unit = rows["number"][0], pickle.loads(rows["unit"][0])
        try:
            result: Any = self.work(unit)
        except Exception as error:  # a fault of the work, not of the worker: it is raised where the job was started
            result = error
        return {"number": [int(number)], "result": [_pickled(result)]}


class Spread(Generic[Unit, Result]):
    """One kind of work on a cluster: `ask` something of one worker, then `run` over many units."""

    def __init__(self, ray: Any, options: RayOptions, device: str) -> None:
        self.ray = ray
        self.workers, self.resources = share(ray, options, device)

    def ask(self, question: Callable[[], Any]) -> Any:
        """The answer of one worker; errors for people come through as they were."""
        folder = str(Path.cwd())

        def asked() -> bytes:
            settle_in(folder)
            try:
                return _pickled(question())
            except OnesdaugError as error:
                return _pickled(error)

        found = pickle.loads(self.ray.get(self.ray.remote(**self.resources)(asked).remote()))
        if isinstance(found, Exception):
            raise found
        return found

    def run(
        self,
        make: Callable[[], Callable[[Unit], Result]],
        units: Sequence[Unit],
        split: Callable[[Unit], list[Unit]] = lambda unit: [unit],
        threads: int = 1,
    ) -> Generator[tuple[Unit, Result | None], None, None]:
        """Each unit with its result, in any order; None for one whose worker died every time.

        A worker has `threads` units in work at once: beside a GPU one is prepared while another is drawn.
        """
        waiting = [_Waiting(unit) for unit in units]
        at_hand, stuck = 1 + threads, 0
        while waiting:
            done: set[int] = set()
            try:
                for number, result in self._once(make, [one.unit for one in waiting], at_hand, threads):
                    if number not in done:  # work that was lost with a node after it was done may come twice
                        done.add(number)
                        yield waiting[number].unit, result
                whole = True
            except self.ray.exceptions.RayError as error:  # finished work went with its node before it was fetched
                whole, stuck = False, 0 if done else stuck + 1
                if stuck == _TIMES:
                    raise OnesdaugError(f"the Ray cluster fails again and again: {_brief(error)}") from error
            lost = [one for number, one in enumerate(waiting) if number not in done]
            if lost:
                log.warning(f"{len(lost)} batches were not done when their workers died; they are tried again")
            waiting = []
            for one in lost:
                times = one.times + whole
                if one.alone and times >= _TIMES:
                    yield one.unit, None
                elif times >= _TIMES:
                    waiting += [_Waiting(part, _TIMES - 1, alone=True) for part in split(one.unit)]
                else:
                    waiting.append(_Waiting(one.unit, times, one.alone))
            at_hand = threads = 1

    def _once(
        self, make: Callable[[], Callable[[Unit], Result]], units: Sequence[Unit], at_hand: int, threads: int
    ) -> Iterator[tuple[int, Result]]:
        import ray.data
        from ray.data import ActorPoolStrategy, DataContext

        logging.getLogger("ray.data").setLevel(logging.CRITICAL)  # lost blocks are told above
        context = DataContext.get_current()
        context.enable_progress_bars, context.print_on_execution_start = False, False
        context.max_errored_blocks = -1
        rows = [{"number": number, "unit": pickle.dumps(unit)} for number, unit in enumerate(units)]
        # in blocks of one, that lie in the driver: reading tasks would wait for CPUs that the workers hold
        warnings.filterwarnings("ignore", "`ray_remote_args` is deprecated")  # only so is max_task_retries said
        made = ray.data.from_items(rows, override_num_blocks=len(rows)).map_batches(
            _Worker,
            fn_constructor_args=(make, str(Path.cwd())),
            batch_size=1,
            compute=ActorPoolStrategy(
                size=min(self.workers, len(units)),
                max_tasks_in_flight_per_actor=at_hand,
                max_concurrent_calls_per_actor=threads,
                enable_true_multi_threading=threads > 1,
            ),
            max_restarts=-1,
            max_task_retries=0,  # by Ray's own a restart would be waited for that the cluster may have no place for
            **self.resources,
        )
        for block in made.iter_batches(batch_size=None, prefetch_batches=0):
            for number, packed in zip(block["number"], block["result"], strict=True):
                result = pickle.loads(packed)
                if isinstance(result, Exception):
                    raise result
                yield int(number), result


def _brief(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]


def _pickled(result: Any) -> bytes:
    """Errors of others may not travel; their words do."""
    if isinstance(result, Exception) and not isinstance(result, OSError | WeightsMissing):
        text = str(result) if isinstance(result, OnesdaugError) else f"{type(result).__name__}: {result}"
        return pickle.dumps(OnesdaugError(text))
    return pickle.dumps(result)


def in_process(
    make: Callable[[], Callable[[Unit], Result]], units: Sequence[Unit]
) -> Iterator[tuple[Unit, Result | None]]:
    """The same without Ray."""
    work = make()
    for unit in units:
        yield unit, work(unit)


@contextmanager
def embedding(options: RayOptions, device: str) -> Iterator[None]:
    """What is embedded within this block is embedded, and its views are drawn, by a cluster if one is named."""
    from onesdaug.fewshot.embed import ELSEWHERE

    if options.ray is None:
        yield
        return
    with connected(options) as ray:
        spread: Spread[Any, Any] = Spread(ray, options, device)
        before = ELSEWHERE.set(spread.run)
        try:
            yield
        finally:
            ELSEWHERE.reset(before)


__all__ = ["RayOptions", "Spread", "connected", "embedding", "in_process"]
