"""The whole bench: one stage after the other, each bounded in time and written down as soon as it is done."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from onesdaug.augment.config import AugmentConfig
from onesdaug.bench import measure
from onesdaug.bench.plan import STAGES, Plan, Wanted
from onesdaug.bench.subject import Subject, load
from onesdaug.common.files import write_text
from onesdaug.common.progress import log, progress
from onesdaug.common.provenance import commit, describe_machine
from onesdaug.errors import ConfigError
from onesdaug.report.result import StudyResult
from onesdaug.studies.provenance import made_now
from onesdaug.studies.spec import load_study


class Bench:
    """Runs stages on one subject and keeps what came out; `out` holds all that is known at any moment."""

    def __init__(self, wanted: Wanted, config: AugmentConfig, out: Path | None, command: str) -> None:
        self.out = out
        self.subject: Subject = load(wanted, config)
        at = self.subject
        self.result: dict[str, Any] = {
            "command": command,
            "commit": commit(),
            "machine": {
                **describe_machine(at.device),
                "dtype": str(at.dtype).removeprefix("torch."),
                "threads": torch.get_num_threads(),
            },
            "model": {**asdict(wanted), "side": at.side},
            "what": at.augmenter(1).summary(),
            "settings": config.model_dump(mode="json"),
        }

    def run(self, plan: Plan) -> dict[str, Any]:
        """All stages of the plan; one that fails costs only itself, and its reason is written down."""
        if "peer" in plan.only and self.subject.wanted.random_weights is None:
            raise ConfigError("--peer compares costs, which do not depend on weights: add --random-weights sd15")
        sizes = plan.batches or self._sizes()
        many = max(sizes)
        work: dict[str, Callable[[], Any]] = {
            "limit": lambda: self.limit(plan.seconds),
            "batches": lambda: [self.rate(size, plan.seconds) for size in sizes],
            "stages": lambda: self.parts(many, plan.seconds),
            "efficiency": lambda: self.efficiency(many, plan.seconds),
            "growth": lambda: self.growth(many, plan.seconds, plan.growth),
            "folder": lambda: measure.folder(self.subject, plan.folder_images, many, plan.seconds),
            "peer": lambda: self._peer(many, plan.seconds),
        }
        least = plan.seconds * len(plan.only)
        log.info(f"{len(plan.only)} stages ({', '.join(plan.only)}): about {least:g} s and what warming up takes")
        with progress(len(plan.only), "stages") as bar:
            for name in STAGES:
                bar.note = name
                if name in plan.only:
                    self.stage(name, work[name])
                    bar.advance()
                if name == "limit":
                    self.subject.accelerate()
        return self.result

    def stage(self, name: str, work: Callable[[], Any]) -> None:
        """Run one stage and write everything down again."""
        began = time.perf_counter()
        try:
            self.result[name] = work()
        except Exception as error:  # a bench on a lent machine keeps what it has
            self.result.setdefault("failed", {})[name] = f"{type(error).__name__}: {error}"
            log.info(f"{name} failed: {type(error).__name__}: {error}")
        self.result.setdefault("took", {})[name] = round(time.perf_counter() - began, 2)
        log.info(f"{name}: {self.result['took'][name]:.1f} s")
        self.write()

    def write(self) -> None:
        if self.out is not None:
            write_text(self.out, self.as_result().model_dump_json(indent=1) + "\n")

    def as_result(self) -> StudyResult:
        """All that is known, as every study leaves it."""
        about, took = rounded(self.result), self.result.get("took", {})
        made = made_now(about["command"], about["commit"], about["machine"], took, seed=0)
        title = f"What a view costs: {self.subject.name}"
        words = {"study": "bench", "kind": "bench", "title": title, "paper": "none", "about": about["what"]}
        return StudyResult(**words, made=made, details=about)

    def _sizes(self) -> tuple[int, ...]:
        return tuple(dict.fromkeys((1, self.subject.augmenter(0).batch_size)))

    def limit(self, seconds: float) -> dict[str, Any]:
        parts = measure.flops(self.subject.augmenter(1))
        speed, lasting = measure.matmul_limit(self.subject.device, self.subject.dtype, min(seconds, 5.0))
        total = sum(parts.values())
        return {"matmul_flops_per_second": speed, "sustained_matmul_flops_per_second": lasting,
                "flops_per_view": total, "by_stage": parts, "views_per_second": speed / total}  # fmt: skip

    def rate(self, size: int, seconds: float, **settings: Any) -> dict[str, Any]:
        found = measure.rate(self.subject, size, seconds, **settings)
        if "limit" in self.result and not settings:  # other settings take another number of operations
            limit = self.result["limit"]
            found["share_of_limit"] = found["views_per_second"] / limit["views_per_second"]
            lasting = limit["sustained_matmul_flops_per_second"] / limit["flops_per_view"]
            found["share_of_sustained_limit"] = found["views_per_second"] / lasting
        log.info(f"batch {size}: {found['views_per_second']:.2f} views/s, first call {found['first_seconds']:.1f} s")
        return found

    def parts(self, batch: int, seconds: float) -> dict[str, Any]:
        found = measure.stages(self.subject, batch, seconds)
        if limit := self.result.get("limit"):
            speed, parts = limit["matmul_flops_per_second"], limit["by_stage"]
            found["share_of_limit"] = {
                name: parts[name] * batch / found[name] / speed for name in parts if found[name]
            }
        return found

    def efficiency(self, batch: int, seconds: float) -> list[dict[str, Any]]:
        grid = load_study("efficiency").speed
        return [timing.model_dump(mode="json") for timing in measure.efficiency(self.subject, grid, batch, seconds)]

    def growth(self, batch: int, seconds: float, most: int) -> dict[str, Any]:
        found = measure.growth(self.subject, batch, seconds, most)
        for along, name in (("over_k", "k"), ("over_images", "images")):
            found[f"{along}_linearity"] = measure.linearity(found[along], name)
        return found

    def _peer(self, batch: int, seconds: float) -> list[dict[str, Any]]:
        from onesdaug.bench.peer import compare

        compiled = self.subject.device.type == "cuda" or self.subject.wanted.compile != "off"
        return compare(self.subject, batch, seconds, compiled)


def rounded(value: Any, digits: int = 6) -> Any:
    """Numbers to so many significant digits: a file of results is read by people too."""
    if isinstance(value, float):
        return float(f"{value:.{digits}g}")
    if isinstance(value, dict):
        return {key: rounded(inner, digits) for key, inner in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [rounded(inner, digits) for inner in value]
    return value
