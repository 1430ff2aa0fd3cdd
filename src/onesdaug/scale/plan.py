"""How many GPUs, how long, how much disk; and how many replicas a service needs: from a measured `bench` profile."""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, Field

from onesdaug.common.options import Checked
from onesdaug.common.reading import read_json
from onesdaug.errors import ConfigError

# bytes of a PNG per pixel: photographs of 96 to 512 px as `augment` writes them take 1.7 to 2.1
BYTES_PER_PIXEL = 2.0


class _Batch(BaseModel):
    batch: Annotated[int, Field(ge=1)]
    views_per_second: Annotated[float, Field(gt=0)]
    latency_seconds: Annotated[float, Field(gt=0)]


class _Folder(BaseModel):
    share_of_in_memory: Annotated[float, Field(gt=0)]


class _Model(BaseModel):
    model: str | None = None
    side: int | None = None


class Profile(BaseModel):
    """What is used of a file that `onesdaug bench -o FILE` wrote."""

    batches: Annotated[list[_Batch], Field(min_length=1)]
    machine: dict[str, Any] = {}
    model: _Model = _Model()
    folder: _Folder | None = None

    @classmethod
    def read(cls, path: Path) -> Profile:
        """A profile, or what is wrong with the file."""
        return read_json(path, cls, "a profile; write one with `onesdaug bench -o FILE`")

    @property
    def rate(self) -> float:
        """Views per second of one device in a folder job: what it draws in memory, less what files cost."""
        share = 1.0 if self.folder is None else min(1.0, self.folder.share_of_in_memory)
        return max(one.views_per_second for one in self.batches) * share

    def seconds(self, views: int) -> float:
        """How long a batch of so many views takes: between measured sizes in proportion, beyond them at their rate."""
        import numpy as np

        known = sorted((one.batch, one.latency_seconds) for one in self.batches)
        sizes, times = zip(*known, strict=True)
        if views > sizes[-1]:
            return float(times[-1] * views / sizes[-1])
        return float(np.interp(views, sizes, times))


class Work(Checked):
    """A batch job."""

    images: float = Field(0, ge=0, description="Images to augment, 1e9 for instance")
    k: int = Field(3, ge=1, description="Views of each")
    side: int | None = Field(None, ge=1, description="Side of the stored views in pixels (else the profile's)")
    devices: int = Field(8, ge=1, description="GPUs (or workers like the profile's) of a node")
    nodes: int | None = Field(None, ge=1, description="Nodes there are: says how many days")
    days: float | None = Field(None, gt=0, description="Days there are: says how many nodes")


class Demand(Checked):
    """A service."""

    rate: float = Field(0, ge=0, description="Requests per second, one image each, coming at random")
    max_batch: int = Field(16, ge=1, description="Images that a replica draws together, as in `serve`")
    batch_wait: float = Field(0.01, ge=0, description="Seconds that an image waits for others, as in `serve`")
    p99: float = Field(5, gt=0, description="Seconds in which 99 of 100 requests are to be answered")
    overhead: float = Field(0.01, ge=0, description="Seconds of a request beside drawing: HTTP, decoding, encoding")


@dataclass(frozen=True)
class Amount:
    """What a job takes."""

    views: float
    device_hours: float
    nodes: int
    days: float
    terabytes: float


@dataclass(frozen=True)
class Load:
    """How a service does under a load."""

    replicas: int
    busy: float  # share of the replicas' time
    mean: float  # seconds until the answer
    p50: float
    p99: float
    batch: float  # images drawn together, on average
    stable: bool  # whether it keeps up


def amount(profile: Profile, work: Work) -> Amount:
    """Device hours, nodes, days and storage of a batch job."""
    if work.nodes is not None and work.days is not None:
        raise ConfigError("give --nodes or --days: the other follows")
    views = work.images * work.k
    hours = views / profile.rate / 3600
    per_day = 24 * work.devices
    nodes = work.nodes or (1 if work.days is None else max(1, math.ceil(hours / (per_day * work.days))))
    side = work.side or profile.model.side or 512
    return Amount(views, hours, nodes, hours / (per_day * nodes), views * side * side * BYTES_PER_PIXEL / 1e12)


def simulate(profile: Profile, demand: Demand, k: int, replicas: int, count: int = 20_000, seed: int = 0) -> Load:
    """Requests arrive at random; an idle replica waits a moment and takes up to a batch of those that are there."""
    import numpy as np

    arrivals = np.cumsum(np.random.default_rng(seed).exponential(1 / demand.rate, count))
    free = [0.0] * replicas
    heapq.heapify(free)
    took, sizes, busy, first = np.empty(count), [], 0.0, 0
    while first < count:
        idle = heapq.heappop(free)
        begin = max(idle, arrivals[first])
        last = first + int(np.searchsorted(arrivals[first : first + demand.max_batch], begin, side="right"))
        if last - first < demand.max_batch:  # not a whole batch yet: it waits a moment
            end = begin + demand.batch_wait
            more = int(np.searchsorted(arrivals[first : first + demand.max_batch], end, side="right"))
            last = max(last, first + more)
            begin = end if last - first < demand.max_batch else max(begin, arrivals[last - 1])
        size = last - first
        done = begin + profile.seconds(size * max(k, 1)) + demand.overhead
        took[first:last] = done - arrivals[first:last]
        busy += done - begin
        sizes.append(size)
        heapq.heappush(free, done)
        first = last
    late = took[count // 10 :]  # the empty beginning does not count
    stable = bool(late[-len(late) // 4 :].mean() < 2 * late[: len(late) // 4].mean() + demand.p99 / 10)
    p50, p99 = (float(value) for value in np.quantile(late, (0.5, 0.99)))
    return Load(
        replicas, busy / (replicas * float(arrivals[-1])), float(late.mean()), p50, p99, float(np.mean(sizes)), stable
    )


def replicas_needed(profile: Profile, demand: Demand, k: int, most: int = 4096) -> Load:
    """The fewest replicas with which 99 of 100 requests are answered in time."""
    if profile.seconds(max(k, 1)) + demand.overhead > demand.p99:
        raise ConfigError(
            f"{k} views of one image take {profile.seconds(max(k, 1)):.2f} s by this profile: no number of replicas "
            f"answers within --p99 {demand.p99:g}"
        )

    def enough(replicas: int) -> Load | None:
        found = simulate(profile, demand, k, replicas)
        return found if found.stable and found.p99 <= demand.p99 else None

    high = 1
    while enough(high) is None:
        high *= 2
        if high > most:
            raise ConfigError(f"--rate {demand.rate:g}: more than {most} replicas would be needed")
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    found = enough(high)
    assert found is not None
    return found


def told(profile: Profile, work: Work, demand: Demand) -> Sequence[str]:
    """The plan in sentences."""
    machine = profile.machine.get("device", "an unnamed machine")
    lines = [f"profile: {profile.model.model or 'a model'} on {machine}, {profile.rate:,.2f} views/s per device"]
    if profile.folder is None:
        lines.append("(in memory: the profile has no folder job; bench --folder-images 200 measures what files cost)")
    if work.images:
        found = amount(profile, work)
        lines.append(
            f"{work.images:,.0f} images × {work.k} views: {found.device_hours:,.1f} device hours; "
            f"with {found.nodes:,} node{'s' * (found.nodes != 1)} of {work.devices} devices {found.days:,.2f} days; "
            f"{found.terabytes:,.3g} TB of PNG"
        )
    if demand.rate:
        load = replicas_needed(profile, demand, work.k)
        lines.append(
            f"{demand.rate:g} requests/s with K={work.k}: {load.replicas} replica{'s' * (load.replicas != 1)}, "
            f"{100 * load.busy:.0f} % busy, p50 {load.p50:.2f} s, p99 {load.p99:.2f} s, "
            f"{load.batch:.1f} images together (simulated, coming at random)"
        )
    return lines
