"""Every figure of docs/speed.md on a lent GPU machine, in jobs that are bounded in time and write as they go.

There:   python benchmarks/h200_bench.py --site carry/site/site --limit 580 main
         python benchmarks/h200_bench.py --site carry/site/site --limit 580 latency cold cheap
         python benchmarks/h200_bench.py --site carry/site/site --limit 580 pocket efficiency cheap-max
         python benchmarks/h200_bench.py --site carry/site/site --limit 300 autotune
Here:    python benchmarks/h200_bench.py --smoke main latency cold pocket cheap cheap-max efficiency autotune

Each job is a process of its own with what is left of --limit as its time; results go to $OUT (else benchmarks/results)
as speed-JOB.json, after every stage, beside log.txt. `--smoke` runs the same code on tiny shapes, on a CPU too.
"""

from __future__ import annotations

import argparse
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
    began: float = field(default_factory=time.monotonic)

    @property
    def shape(self) -> str:
        return "sd15-tiny" if self.smoke else "sd15"

    def of(self, real: Any, small: Any) -> Any:
        return small if self.smoke else real

    def log(self, text: str) -> None:
        line = f"[{self.job} {time.monotonic() - self.began:6.1f}] {text}"
        print(line, flush=True)
        with (self.out / "log.txt").open("a") as handle:
            handle.write(line + "\n")

    def bench(self, config: Any, name: str | None = None, **wanted: Any) -> Any:
        from onesdaug.bench.run import Bench
        from onesdaug.bench.subject import Wanted

        file = self.out / f"speed-{name or self.job}.json"
        made = Bench(Wanted(**wanted), config, file, f"python benchmarks/h200_bench.py {self.job}", self.log)
        self.log(made.result["what"])
        return made


def main_job(run: Run) -> None:
    """SD 1.5's shapes at 512: diffusers eager and compiled, then ours compiled; stages, folder, growth. ~7.5 min."""
    from onesdaug.augment.config import preset
    from onesdaug.bench.folder import folder
    from onesdaug.bench.peer import compare

    # noise level 0.7 runs the very steps that the pipeline runs at strength 0.75
    bench = run.bench(preset("paper-fast", noise_level=0.7), random_weights=run.shape, compile="max")
    batch, seconds = run.of(64, 3), run.of(12.0, 0.2)
    bench.stage("limit", lambda: bench.limit(run.of(4.0, 0.2)))
    bench.stage("peer", lambda: compare(bench.subject, batch, seconds, strength=0.75))
    bench.subject.accelerate()
    bench.stage("batches", lambda: [bench.rate(batch, seconds)])
    bench.stage("at_noise_level_0.75", lambda: bench.rate(batch, seconds, noise_level=0.75))
    bench.stage("shown", lambda: _main_shown(bench.result))
    bench.stage("stages", lambda: bench.parts(batch, seconds))
    bench.stage("folder", lambda: folder(bench.subject, run.of(1000, 8), batch, seconds))
    bench.stage("growth", lambda: bench.growth(batch, run.of(40.0, 0.2), run.of(16, 4)))


def _main_shown(result: dict[str, Any]) -> dict[str, Any]:
    ours = result["batches"][0]
    paper, *_, best = (line["views_per_second"] for line in result["peer"])
    return {
        "views_per_second": ours["views_per_second"], "wanted": 32.0,
        "share_of_limit": ours["share_of_limit"], "wanted_share": 0.69,
        "times_compiled_diffusers": ours["views_per_second"] / best, "wanted_times": 1.35,
        "times_paper_fast": ours["views_per_second"] / paper, "wanted_times_paper": 18.0,
    }  # fmt: skip


def latency_job(run: Run) -> None:
    """One image at a time from CUDA graphs, whole networks compiled. ~3.5 min."""
    from onesdaug.augment.config import preset

    bench = run.bench(preset("paper-fast", noise_level=0.7), random_weights=run.shape, compile="max")
    bench.stage("limit", lambda: bench.limit(run.of(2.0, 0.2)))
    bench.subject.accelerate()
    bench.stage("batches", lambda: [bench.rate(1, run.of(8.0, 0.2))])
    bench.stage("at_noise_level_0.75", lambda: bench.rate(1, run.of(8.0, 0.2), noise_level=0.75))


def cold_job(run: Run) -> None:
    """A new process to its first view with regional compile: with an empty cache, then a filled one. ~2 min."""
    import json

    from onesdaug.fewshot.checkpoint import commit, describe_machine
    from onesdaug.generators.machine import pick_device

    found: dict[str, float] = {}
    result = {
        "command": "python benchmarks/h200_bench.py cold", "commit": commit(),
        "machine": describe_machine(pick_device("auto")),
        "what": "seconds from the start of a new process to its end, one view made", "seconds": found, "wanted": 25.0,
    }  # fmt: skip
    with tempfile.TemporaryDirectory() as cache:
        for name in ("empty cache", "filled cache"):
            began = time.perf_counter()
            environment = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": cache}
            subprocess.run([*_again(run), "first-view"], check=True, env=environment, timeout=150)
            found[name] = round(time.perf_counter() - began, 2)
            run.log(f"first view, {name}: {found[name]} s from the start of the process to its end")
            (run.out / "speed-cold.json").write_text(json.dumps(result, indent=1) + "\n")


def first_view_job(run: Run) -> None:
    from onesdaug.augment.config import preset
    from onesdaug.augment.operator import Augmenter
    from onesdaug.bench.subject import Wanted, load

    subject = load(Wanted(random_weights=run.shape, compile="regional"), preset("paper-fast", noise_level=0.7))
    run.log("loaded")
    subject.accelerate()
    image = subject.images(1)[0].cpu()
    Augmenter(subject.generator, subject.config, batch_size=1)(image, k=1)
    run.log("first view made")


def pocket_job(run: Run) -> None:
    """The embedded generator: eager, then compiled, at large batches. ~2.5 min."""
    from onesdaug.augment.config import preset

    for mode in ("off", "regional", "max"):
        bench = run.bench(preset("pocket"), name=f"pocket-{mode}", model="pocket", compile=mode)
        if mode == "off":
            bench.stage("limit", lambda: bench.limit(run.of(2.0, 0.2)))  # noqa: B023
        bench.subject.accelerate()
        sizes = run.of((1024,) if mode == "regional" else (1024, 4096), (2,))
        bench.stage("batches", lambda: [bench.rate(size, run.of(5.0, 0.1)) for size in sizes])  # noqa: B023
        if mode == "off":
            bench.stage("growth", lambda: bench.growth(sizes[0], run.of(20.0, 0.1), run.of(16, 2)))  # noqa: B023


def cheap_job(run: Run, mode: str = "regional") -> None:
    """`paper-cheap` at 384 px, and with a tiny decoder; compiled by region (~2 min), or whole (~5 min)."""
    from onesdaug.augment.config import preset

    batch = run.of(64, 2)
    for name, decoder in (("384px", None), ("384px-tiny-decoder", "tiny")):
        wanted = {"random_weights": run.shape, "side": run.of(384, 48), "decoder": decoder, "compile": mode}
        bench = run.bench(preset("paper-cheap"), name=f"{run.job}-{name}", **wanted)
        bench.stage("limit", lambda: bench.limit(run.of(2.0, 0.2)))  # noqa: B023
        bench.subject.accelerate()
        bench.stage("batches", lambda: [bench.rate(batch, run.of(8.0, 0.2))])  # noqa: B023


def efficiency_job(run: Run) -> None:
    """The paper's efficiency table, not compiled, one image at a time and 32 at once. ~1.5 min."""
    from onesdaug.augment.config import preset

    bench = run.bench(preset("paper"), random_weights=run.shape)
    bench.stage("efficiency", lambda: bench.efficiency(run.of(32, 2), run.of(40.0, 0.1)))


def autotune_job(run: Run) -> None:
    """Whether inductor's own search for kernels is worth its minutes; last, because nobody knows how many. ≤ 5 min."""
    from onesdaug.augment.config import preset
    from onesdaug.generators import speed

    speed.OPTIONS["max"] = {"max_autotune": True, "coordinate_descent_tuning": True, "conv_1x1_as_mm": True}
    bench = run.bench(preset("paper-fast", noise_level=0.7), random_weights=run.shape, compile="max")
    bench.stage("limit", lambda: bench.limit(run.of(2.0, 0.2)))
    bench.subject.accelerate()
    bench.stage("batches", lambda: [bench.rate(run.of(64, 2), run.of(10.0, 0.2))])


JOBS: dict[str, Callable[[Run], None]] = {
    "main": main_job,
    "latency": latency_job,
    "cold": cold_job,
    "first-view": first_view_job,
    "pocket": pocket_job,
    "cheap": cheap_job,
    "cheap-max": lambda run: cheap_job(run, "max"),
    "efficiency": efficiency_job,
    "autotune": autotune_job,
}


def _again(run: Run) -> list[str]:
    """This program, for one job in a process of its own."""
    return [sys.executable, str(Path(__file__)), *(["--smoke"] if run.smoke else []), "--alone"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("jobs", nargs="+", choices=list(JOBS))
    parser.add_argument("--site", type=Path, help="carried packages, put at the end of the path")
    parser.add_argument("--limit", type=float, default=580.0, help="seconds for all jobs together")
    parser.add_argument("--smoke", action="store_true", help="tiny shapes, no compiler")
    parser.add_argument("--alone", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    out = Path(os.environ.get("OUT", ROOT / "benchmarks" / "results"))
    out.mkdir(parents=True, exist_ok=True)
    if args.site:
        os.environ["ONESDAUG_SITE"] = str(args.site.resolve())
    if site := os.environ.get("ONESDAUG_SITE"):
        sys.path.append(site)
    if args.alone:
        run = Run(args.jobs[0], args.smoke, out)
        if args.smoke:
            from onesdaug.generators import speed

            speed.BACKEND = "aot_eager"
        JOBS[run.job](run)
        return 0
    deadline, status = time.monotonic() + args.limit, 0
    for job in args.jobs:
        run = Run(job, args.smoke, out)
        left = deadline - time.monotonic()
        if left < 20:
            run.log("no time left, not begun")
            status = 3
            continue
        try:
            code = subprocess.run([*_again(run), job], timeout=left).returncode
        except subprocess.TimeoutExpired:
            run.log(f"stopped after {left:.0f} s; what it had measured is kept")
            code = 3
        run.log(f"ended with {code}")
        status = status or code
    return status


if __name__ == "__main__":
    sys.exit(main())
