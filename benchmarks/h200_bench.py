"""Every figure of docs/speed.md on a lent GPU machine, in jobs that are bounded in time and write as they go.

There:   python benchmarks/h200_bench.py --site SITE --limit 200 --warm main peer latency cheap pocket
         python benchmarks/h200_bench.py --site SITE --limit 560 main latency cold cheap pocket efficiency
Here:    python benchmarks/h200_bench.py --smoke main latency cold pocket cheap efficiency

Each job is a process of its own with what is left of --limit as its time; results go to $OUT (else benchmarks/results)
as speed-JOB.json, after every stage, beside log.txt. `--warm` compiles for all jobs at once and measures nothing:
compiling one after the other would take most of a lent half hour. `--smoke` runs the same code on tiny shapes, on a
CPU too.
"""

from __future__ import annotations

import argparse
import logging
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "src"))


@dataclass
class Run:
    """One job: its time, where its results go, and how small everything is in a smoke test."""

    job: str
    smoke: bool
    out: Path
    warm: bool = False  # only compile, so that the caches are filled; nothing is measured or written
    began: float = field(default_factory=time.monotonic)

    @property
    def shape(self) -> str:
        return "sd15-tiny" if self.smoke else "sd15"

    def of(self, real: Any, small: Any) -> Any:
        return small if self.smoke else real

    def seconds(self, real: float) -> float:
        return 0.0 if self.warm else self.of(real, 0.2)

    def log(self, text: str) -> None:
        line = f"[{self.job} {time.monotonic() - self.began:6.1f}] {text}"
        print(line, flush=True)
        with (self.out / "log.txt").open("a") as handle:
            handle.write(line + "\n")

    def bench(self, config: Any, name: str | None = None, **wanted: Any) -> Any:
        from onesdaug.bench.plan import Wanted
        from onesdaug.bench.run import Bench

        file = None if self.warm else self.out / f"speed-{name or self.job}.json"
        told = logging.Handler()
        told.emit = lambda record: self.log(record.getMessage())
        logger = logging.getLogger("onesdaug")
        logger.handlers = [told]
        logger.setLevel(logging.INFO)
        made = Bench(Wanted(**wanted), config, file, f"python benchmarks/h200_bench.py {self.job}")
        self.log(made.result["what"])
        return made


def main_job(run: Run) -> None:
    """SD 1.5's shapes at 512: diffusers eager and compiled, then ours compiled; stages, folder, growth."""
    from onesdaug.augment.config import preset
    from onesdaug.bench.measure import folder
    from onesdaug.bench.peer import compare

    # noise level 0.7 runs the very steps that the pipeline runs at strength 0.75
    bench = run.bench(preset("paper-fast", noise_level=0.7), random_weights=run.shape, compile="max")
    batch, seconds = run.of(64, 3), run.seconds(10.0)
    if not run.warm:
        bench.stage("limit", lambda: bench.limit(run.seconds(3.0)))
        bench.stage("peer", lambda: compare(bench.subject, batch, run.seconds(8.0), strength=0.75))
    bench.subject.accelerate()
    bench.stage("batches", lambda: [bench.rate(batch, seconds)])
    if run.warm:
        return
    bench.stage("shown", lambda: _main_shown(bench.result))
    rate = bench.result["batches"][0]["views_per_second"]
    bench.stage("folder", lambda: folder(bench.subject, run.of(1000, 8), batch, in_memory=rate))
    bench.stage("stages", lambda: bench.parts(batch, run.seconds(5.0)))
    bench.stage("at_noise_level_0.75", lambda: bench.rate(batch, run.seconds(5.0), noise_level=0.75))


def peer_job(run: Run) -> None:
    """The compiled pipeline alone; `main` measures it beside ours, this fills its part of the caches."""
    from onesdaug.augment.config import preset
    from onesdaug.bench.peer import compare

    bench = run.bench(preset("paper-fast", noise_level=0.7), random_weights=run.shape)
    bench.stage("peer", lambda: compare(bench.subject, run.of(64, 3), run.seconds(8.0), strength=0.75, eager=False))


def _main_shown(result: dict[str, Any]) -> dict[str, Any]:
    ours = result["batches"][0]
    paper, *_ = (line["views_per_second"] for line in result["peer"])
    best = max(line["views_per_second"] for line in result["peer"] if "compiled" in line["what"])
    return {
        "views_per_second": ours["views_per_second"], "wanted": 32.0,
        "share_of_limit": ours["share_of_limit"], "wanted_share": 0.69,
        "share_of_sustained_limit": ours["share_of_sustained_limit"],
        "times_compiled_diffusers": ours["views_per_second"] / best, "wanted_times": 1.35,
        "times_paper_fast": ours["views_per_second"] / paper, "wanted_times_paper": 18.0,
    }  # fmt: skip


def latency_job(run: Run) -> None:
    """One image at a time from CUDA graphs, whole networks compiled."""
    from onesdaug.augment.config import preset

    bench = run.bench(preset("paper-fast", noise_level=0.7), random_weights=run.shape, compile="max")
    bench.subject.accelerate()
    bench.stage("batches", lambda: [bench.rate(1, run.seconds(6.0))])
    if not run.warm:
        bench.stage("at_noise_level_0.75", lambda: bench.rate(1, run.seconds(4.0), noise_level=0.75))


def cold_job(run: Run) -> None:
    """A new process to its first view, compiled by region: with an empty cache, then a filled one. ~1 min."""
    import json

    from onesdaug.common.devices import pick_device
    from onesdaug.common.provenance import commit, describe_machine

    found: dict[str, dict[str, Any]] = {}
    result = {
        "command": "python benchmarks/h200_bench.py cold", "commit": commit(),
        "machine": describe_machine(pick_device("auto")),
        "what": "seconds from starting a new process until each mark; the view is a picture on the host; `exit` is "
        "the process's end. Empty and filled are the caches of inductor and triton; Python's bytecode is there, as "
        "after an installation by pip",
        "shown": "first view", "seconds": found, "wanted": 25.0,
    }  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        for name in ("empty cache", "filled cache"):
            stamps, began = Path(folder, "stamps.json"), time.time()
            environment = os.environ | {
                "TORCHINDUCTOR_CACHE_DIR": f"{folder}/inductor", "TRITON_CACHE_DIR": f"{folder}/triton",
                "ONESDAUG_STAMPS": str(stamps), "ONESDAUG_BEGAN": repr(began),
            }  # fmt: skip
            subprocess.run([*_again(run), "first-view"], check=True, env=environment, timeout=150)
            found[name] = {**json.loads(stamps.read_text()), "exit": round(time.time() - began, 2)}
            run.log(f"{name}: {found[name]}")
            (run.out / "speed-cold.json").write_text(json.dumps(result, indent=1) + "\n")


def first_view_job(run: Run) -> None:
    """What `cold` starts: one view as a user gets it, timed from the moment the process was asked for."""
    import json

    began = float(os.environ.get("ONESDAUG_BEGAN", time.time()))
    stamps: dict[str, float] = {}

    def stamp(name: str) -> None:
        if name not in stamps:
            stamps[name] = round(time.time() - began, 2)
            run.log(f"{name} at {stamps[name]} s")

    stamp("interpreter")
    import torch

    stamp("torch imported")
    from onesdaug.augment.config import preset
    from onesdaug.augment.operator import Augmenter
    from onesdaug.bench import random_sd
    from onesdaug.bench.plan import Wanted
    from onesdaug.bench.subject import load

    stamp("onesdaug imported")
    loading = random_sd.loading  # entered when diffusers and transformers have been imported, at their usual place

    def stamped(*names: str) -> Any:
        stamp("diffusers and transformers imported")
        return loading(*names)

    random_sd.loading = stamped
    subject = load(Wanted(random_weights=run.shape, compile="regional"), preset("paper-fast", noise_level=0.7))
    if subject.device.type == "cuda":
        torch.cuda.synchronize()
    stamp("networks made")
    subject.accelerate()
    stamp("accelerated")
    image = subject.images(1)[0].cpu()
    Augmenter(subject.generator, subject.config, batch_size=1)(image, k=1)
    stamp("first view")
    if file := os.environ.get("ONESDAUG_STAMPS"):
        Path(file).write_text(json.dumps(stamps))


def _ours(run: Run, settings: str, batch: int) -> None:
    """One of our generators, whose name the job has, with these settings, compiled and not."""
    from onesdaug.augment.config import preset

    for mode in ("max",) if run.warm else ("max", "off"):
        bench = run.bench(preset(settings), name=f"{run.job}-{mode}", model=run.job, compile=mode)
        if not run.warm:
            bench.stage("limit", lambda: bench.limit(run.seconds(2.0)))  # noqa: B023
        bench.subject.accelerate()
        bench.stage("batches", lambda: [bench.rate(batch, run.seconds(6.0))])  # noqa: B023
        if mode == "max" and not run.warm:
            bench.stage("growth", lambda: bench.growth(batch, run.seconds(15.0), run.of(16, 2)))  # noqa: B023


def cheap_job(run: Run) -> None:
    """`paper-cheap` at 384 px, whole networks compiled, and the same with a tiny decoder."""
    from onesdaug.augment.config import preset

    batch = run.of(64, 2)
    for name, decoder in (("384px", None), ("384px-tiny-decoder", "tiny")):
        wanted = {"random_weights": run.shape, "side": run.of(384, 48), "decoder": decoder, "compile": "max"}
        bench = run.bench(preset("paper-cheap"), name=f"{run.job}-{name}", **wanted)
        if not run.warm:
            bench.stage("limit", lambda: bench.limit(run.seconds(1.0)))  # noqa: B023
        bench.subject.accelerate()
        bench.stage("batches", lambda: [bench.rate(batch, run.seconds(6.0))])  # noqa: B023


def efficiency_job(run: Run) -> None:
    """The paper's efficiency table, not compiled, one image at a time and 32 at once."""
    from onesdaug.augment.config import preset

    bench = run.bench(preset("paper"), random_weights=run.shape)
    bench.stage("efficiency", lambda: bench.efficiency(run.of(32, 2), run.seconds(40.0)))


JOBS: dict[str, Callable[[Run], None]] = {
    "main": main_job,
    "peer": peer_job,
    "latency": latency_job,
    "cold": cold_job,
    "first-view": first_view_job,
    "pocket": lambda run: _ours(run, "pocket-accuracy", run.of(1024, 2)),
    "pocket-imagenet": lambda run: _ours(run, "pocket-imagenet-accuracy", run.of(1024, 2)),
    "photo": lambda run: _ours(run, "photo", run.of(256, 2)),
    "cheap": cheap_job,
    "efficiency": efficiency_job,
}


def _again(run: Run) -> list[str]:
    """This program, for one job in a process of its own."""
    flags = [f"--{name}" for name in ("smoke", "warm") if getattr(run, name)]
    return [sys.executable, str(Path(__file__)), *flags, "--alone"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("jobs", nargs="+", choices=list(JOBS))
    parser.add_argument("--site", type=Path, help="carried packages, put at the end of the path")
    parser.add_argument("--limit", type=float, default=580.0, help="seconds for all jobs together")
    parser.add_argument("--smoke", action="store_true", help="tiny shapes, no compiler")
    parser.add_argument("--warm", action="store_true", help="compile only, all jobs at once: fills the caches")
    parser.add_argument("--alone", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    out = Path(os.environ.get("OUT", ROOT / "benchmarks" / "results"))
    out.mkdir(parents=True, exist_ok=True)
    if args.site:
        os.environ["ONESDAUG_SITE"] = str(args.site.resolve())
    if site := os.environ.get("ONESDAUG_SITE"):
        sys.path.append(site)
    if args.alone:
        run = Run(args.jobs[0], args.smoke, out, args.warm)
        if args.smoke:
            from onesdaug.generators import speed

            speed.BACKEND = "aot_eager"
        JOBS[run.job](run)
        return 0
    runs = [Run(job, args.smoke, out, args.warm) for job in args.jobs]
    deadline = time.monotonic() + args.limit
    if args.warm:
        return _wait([(run, subprocess.Popen([*_again(run), run.job])) for run in runs], deadline)
    status = 0
    for run in runs:
        if deadline - time.monotonic() < 20:
            run.log("no time left, not begun")
            status = 3
            continue
        run.began = time.monotonic()
        status = _wait([(run, subprocess.Popen([*_again(run), run.job]))], deadline) or status
    return status


def _wait(started: list[tuple[Run, subprocess.Popen[bytes]]], deadline: float) -> int:
    """Until all have ended, or their time is over: what they had measured by then is kept."""
    status = 0
    for run, process in started:
        try:
            code = process.wait(max(1.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            code = 3
        run.log(f"ended with {code}")
        status = status or code
    return status


if __name__ == "__main__":
    sys.exit(main())
