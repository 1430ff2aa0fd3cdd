"""Jobs and the service on Ray, measured on this machine: results/scale.json and the tables of docs/scale.md.

    python benchmarks/scale.py measure      # ten minutes on two cores; parts by name: measure batch service
    python benchmarks/scale.py              # writes the tables from the stored run

Everything is bounded in count and time, and goes over the loopback only.
"""

from __future__ import annotations

import asyncio
import io
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
if str(HERE.parent) not in sys.path:
    sys.path.insert(0, str(HERE.parent))

from benchmarks.markers import with_tables  # noqa: E402

STORED = HERE / "results" / "scale.json"
DOCS = HERE.parent / "docs" / "scale.md"
CLIENTS, PORT, WAIT = 16, 8765, 0.005


def png(seed: int, side: int = 84) -> bytes:
    from tests.conftest import make_image

    buffer = io.BytesIO()
    make_image(seed, (side, side)).save(buffer, "PNG")
    return buffer.getvalue()


def small_generator(folder: Path) -> Path:
    """The pocket generator's smallest recipe: as on a GPU, a call costs much and one more view in it little."""
    import numpy as np

    from onesdaug.data.dataset import Dataset
    from onesdaug.generators.pocket.smoke import SMOKE
    from onesdaug.generators.pocket.training import train
    from tests.conftest import make_image

    pictures = np.stack([np.asarray(make_image(i, (84, 84))) for i in range(8)])
    ids = tuple(f"{'ab'[i // 4]}/{i}" for i in range(8))
    train(SMOKE, Dataset(pictures, np.repeat(np.arange(2), 4), ("a", "b"), ids, "f00d"), folder, data_name="toys")
    return folder


def batch(work: Path, images: int = 32, rounds: int = 2) -> dict[str, Any]:
    """The same job by the plain command and on one and two workers, in turns; the best round of each counts."""
    photos = work / "photos"
    photos.mkdir()
    for number in range(images):
        (photos / f"{number:03d}.png").write_bytes(png(number, 96))
    ways: dict[str, list[str]] = {"plain": [], "1 worker": ["--ray", "--ray-workers", "1"], "2 workers": ["--ray"]}
    best: dict[str, dict[str, float]] = {}
    for _ in range(rounds):
        for name, flags in ways.items():
            out = work / "out"
            shutil.rmtree(out, ignore_errors=True)
            command = [sys.executable, "-m", "onesdaug", "augment", str(photos), "-o", str(out), "--k", "2", *flags]
            started = time.perf_counter()
            subprocess.run(command, check=True, capture_output=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
            whole = time.perf_counter() - started
            times = sorted(row["time"] for row in map(json.loads, (out / "manifest.jsonl").open()))
            steady = steady_rate(times)
            if name not in best or steady > best[name]["views_per_second"]:
                best[name] = {"views_per_second": steady, "seconds_in_all": whole, "views": len(times)}
    return best


def steady_rate(times: list[str]) -> float:
    """Views per second between the first batch and the last: without starting and stopping."""
    from datetime import datetime

    stamps = [datetime.fromisoformat(one).timestamp() for one in times]
    first = sum(stamp - stamps[0] < 0.05 for stamp in stamps)  # of the first batch
    return (len(stamps) - first) / (stamps[-1] - stamps[0])


async def flood(
    count: int, clients: int, request: Callable[[int], dict[str, Any]]
) -> tuple[list[float], list[int], float]:
    """So many requests by so many clients: the seconds and the status of each, and the time in all."""
    import httpx

    seconds, codes = [0.0] * count, [0] * count
    numbers = iter(range(count))

    async def client(web: Any) -> None:
        for number in numbers:
            started = time.perf_counter()
            found = await web.request(**request(number))
            seconds[number], codes[number] = time.perf_counter() - started, found.status_code

    limits = httpx.Limits(max_connections=clients)
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{PORT}", timeout=120, limits=limits) as web:
        started = time.perf_counter()
        await asyncio.gather(*(client(web) for _ in range(clients)))
        return seconds, codes, time.perf_counter() - started


async def at_random(rate: float, count: int) -> list[float]:
    """Requests that come at random, whether or not those before are answered."""
    import httpx

    rng = random.Random(0)

    async def one(web: Any, number: int) -> float:
        started = time.perf_counter()
        found = await web.request(**pictured(number))
        assert found.status_code == 200, found.text
        return time.perf_counter() - started

    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{PORT}", timeout=120) as web:
        begun = []
        for number in range(count):
            begun.append(asyncio.create_task(one(web, number)))
            await asyncio.sleep(rng.expovariate(rate))
        return list(await asyncio.gather(*begun))


def quantiles(values: list[float]) -> dict[str, float]:
    ranked = sorted(values)
    return {
        name: ranked[min(len(ranked) - 1, int(share * len(ranked)))] for name, share in (("p50", 0.5), ("p99", 0.99))
    }


def resident_mb() -> float:
    """Of all processes that serve."""
    total = 0
    for place in Path("/proc").iterdir():
        try:
            words = (place / "cmdline").read_bytes()
            if place.name.isdigit() and (b"ServeReplica" in words or b"ProxyActor" in words):
                total += int((place / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        except OSError:
            continue
    return total / 2**20


def pictured(number: int) -> dict[str, Any]:
    """A request for one view."""
    picture = {"image": ("x", png(number % 32))}
    return {"method": "POST", "url": "/v1/views", "files": picture, "data": {"k": "1"}}


def service(work: Path) -> dict[str, Any]:
    """Batches against one by one, malformed requests, memory."""
    from onesdaug.scale.serve.deploy import running
    from onesdaug.scale.serve.settings import Limits
    from onesdaug.scale.start import RayOptions

    found: dict[str, Any] = {}
    for name, most in (("one by one", 1), ("batches", 16)):
        with running(serving(most), networks(work), Limits(), None, RayOptions(ray="local")):
            asyncio.run(flood(32, CLIENTS, pictured))  # warm
            seconds, codes, took = asyncio.run(flood(400, CLIENTS, pictured))
            assert set(codes) == {200}
            found[name] = {"requests_per_second": 400 / took, **quantiles(seconds)}
            print(name, found[name], flush=True)
            if most > 1:
                found["malformed"] = _malformed()
                found["memory"] = _memory()
    return found


def planning(work: Path) -> dict[str, Any]:
    """What `plan` says of a random load, from a profile and the time of one request at rest, and what is measured."""
    from onesdaug.scale.plan import Demand, simulate
    from onesdaug.scale.serve.deploy import running
    from onesdaug.scale.serve.settings import Limits
    from onesdaug.scale.start import RayOptions

    with running(serving(16), networks(work), Limits(), None, RayOptions(ray="local")):
        asyncio.run(flood(32, CLIENTS, pictured))  # warm
        profile = _profile(networks(work))
        alone, _, _ = asyncio.run(flood(40, 1, pictured))
        overhead = max(0.0, quantiles(alone)["p50"] - profile.seconds(1) - WAIT)
        rate = 0.4 / (profile.seconds(1) + overhead)
        measured = asyncio.run(at_random(rate, 200))
    load = simulate(profile, Demand(rate=rate, max_batch=16, batch_wait=WAIT, overhead=overhead), 1, 1)
    batches = [one.model_dump() for one in profile.batches]
    told = {"rate": rate, "overhead": overhead, "batches": batches, "predicted": {"p50": load.p50, "p99": load.p99}}
    return {**told, "measured": quantiles(measured)}


def serving(most: int) -> Any:
    from onesdaug.scale.serve.settings import Serving

    return Serving(port=PORT, max_batch=most, batch_wait=WAIT)


def networks(work: Path) -> Any:
    from onesdaug.scale.serve.settings import Networks

    small = work / "small"
    return Networks(model=str(small if small.is_dir() else small_generator(small)), encoder="convnet", device="cpu")


def _memory() -> dict[str, float]:
    """After every 500 of 2,000 requests."""
    resident = []
    for _ in range(4):
        asyncio.run(flood(500, CLIENTS, pictured))
        resident.append(resident_mb())
    return {"requests": 2000, "after_500_mb": resident[0], "after_2000_mb": resident[-1]}


def _malformed() -> dict[str, Any]:
    from tests.scale.test_api import many_malformed

    spoilt = many_malformed(10_000)
    count = len(spoilt)
    _, codes, seconds = asyncio.run(flood(count, CLIENTS, lambda number: spoilt[number]))
    return {
        "requests": count,
        "seconds": seconds,
        "codes": {str(code): codes.count(code) for code in sorted(set(codes))},
    }


def _profile(networks: Any) -> Any:
    """What `bench` would write for these networks, of the replica's one thread."""
    import torch

    from onesdaug.scale.plan import Profile
    from onesdaug.scale.serve.engine import Ask, Engine

    torch.set_num_threads(1)
    engine, rows = Engine(networks), []
    for size in (1, 4, 16):
        asks = [Ask(png(seed), 1, 0) for seed in range(size)]
        times = []
        for _ in range(8):
            started = time.perf_counter()
            engine.answer(asks)
            times.append(time.perf_counter() - started)
        latency = sorted(times)[len(times) // 2]
        rows.append({"batch": size, "views_per_second": size / latency, "latency_seconds": latency})
    return Profile.model_validate({"batches": rows})


def measure(names: list[str]) -> None:
    import torch

    from onesdaug.common.provenance import commit, describe_machine

    record = json.loads(STORED.read_text()) if STORED.is_file() else {}
    for name, part in (("batch", batch), ("service", service), ("plan", planning)):
        if not names or name in names:
            before = os.getloadavg()[0]
            with tempfile.TemporaryDirectory() as folder:
                record[name] = {**part(Path(folder)), "load_average": [before, os.getloadavg()[0]]}
    machine = {**describe_machine(torch.device("cpu")), "cores": os.cpu_count()}
    record |= {"command": "python benchmarks/scale.py measure", "commit": commit(), "machine": machine}
    STORED.write_text(json.dumps(record, indent=1) + "\n")


def tables(record: dict[str, Any]) -> dict[str, str]:
    """The measured parts of the document."""
    rows = {name: record["batch"][name] for name in ("plain", "1 worker", "2 workers")}
    plain = rows["plain"]["views_per_second"]
    jobs = ["| | views/s, once it runs | of the plain command's | seconds in all |", "|---|---|---|---|"]
    labels = {"plain": "plain command", "1 worker": "Ray, 1 worker", "2 workers": "Ray, 2 workers"}
    for name, row in rows.items():
        share = row["views_per_second"] / plain
        jobs.append(
            f"| {labels[name]} | {row['views_per_second']:.2f} | {share:.2f} × | {row['seconds_in_all']:.0f} |"
        )
    s = record["service"]
    alone, together = s["one by one"], s["batches"]
    served = ["| 16 clients | requests/s | p50 | p99 |", "|---|---|---|---|"]
    for name, row in (("one by one", alone), ("dynamic batches of up to 16", together)):
        served.append(f"| {name} | {row['requests_per_second']:.1f} | {row['p50']:.2f} s | {row['p99']:.2f} s |")
    memory, bad, plan = s["memory"], s["malformed"], record["plan"]
    codes = ", ".join(f"{count:,} × {code}" for code, count in bad["codes"].items())
    gain = together["requests_per_second"] / alone["requests_per_second"]
    served += [
        "",
        f"Batching answers {gain:.1f} times as many requests. {bad['requests']:,} malformed requests gave {codes}. "
        f"The processes that serve took {memory['after_500_mb']:.0f} MB after 500 requests and "
        f"{memory['after_2000_mb']:.0f} MB after {memory['requests']:,}.",
    ]
    planned = [
        f"| {plan['rate']:.1f} requests/s at random | p50 | p99 |",
        "|---|---|---|",
        *(f"| {way} | {plan[way]['p50']:.3f} s | {plan[way]['p99']:.3f} s |" for way in ("predicted", "measured")),
    ]
    return {"jobs": "\n".join(jobs), "service": "\n".join(served), "plan": "\n".join(planned)}


def written(document: str) -> str:
    return with_tables(document, tables(json.loads(STORED.read_text())))


if __name__ == "__main__":
    if sys.argv[1:2] == ["measure"]:
        measure(sys.argv[2:])
    else:
        DOCS.write_text(written(DOCS.read_text()))
