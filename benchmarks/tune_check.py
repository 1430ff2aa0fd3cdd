"""`onesdaug tune` on two CPU cores: how long it takes, and whether the gain it names is the one that comes.

    ONESDAUG_DATA=… OMP_NUM_THREADS=2 OMP_WAIT_POLICY=passive python benchmarks/tune_check.py time splits document

time: the command itself on a folder of 20 classes × 30 images, the 16 validation classes of miniImageNet and four of
CUB's, with the ConvNet trained on miniImageNet and `pocket`. splits: three random halves of 40 validation classes (16
and 24); everything is chosen on one half, and the gain named there compared with what the choice gains on the other.
There pocket draws with few steps alone, and the views of an image are drawn once for all three. document: the
paragraph of docs/tune.md, from results/tune.json.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from onesdaug.analysis.choice import ClassJudge, Judge, expected
from onesdaug.augment.config import preset
from onesdaug.augment.seeds import tensor_digests
from onesdaug.augment.source import ViewSource
from onesdaug.common.files import write_text
from onesdaug.common.provenance import commit, describe_machine
from onesdaug.data.dataset import Dataset
from onesdaug.data.registry import load_split
from onesdaug.encoders.load import load_encoder
from onesdaug.fewshot.heads import load_head
from onesdaug.fewshot.views import Views
from onesdaug.tune.candidates import Candidate, propose
from onesdaug.tune.search import Search

sys.path.insert(0, str(Path(__file__).parents[1]))  # run as a script, only its own folder is there

from benchmarks.markers import with_tables

HERE = Path(__file__).parent
RESULT, DOCUMENT = HERE / "results" / "tune.json", HERE.parent / "docs" / "tune.md"
NAME = "benchmarks/results/tune.json"
ENCODER = HERE.parent / "artifacts" / "fewshot" / "mini-protonet-convnet"
CPU = torch.device("cpu")
SIDE, K, IMAGES, SHOTS = 84, 3, 8, (1, 5)
STEPS = preset("pocket-accuracy").steps  # its few steps are all that `splits` draws with: views cost seconds here


def classes(count: int, images: int) -> Dataset:
    """All 16 validation classes of miniImageNet, and the first of CUB's up to `count`."""
    parts = [load_split("miniimagenet", "val").take(images), load_split("cub", "val").take(images, count - 16)]
    return Dataset(
        np.concatenate([_small(part.images) for part in parts]),
        np.concatenate([parts[0].labels, parts[1].labels + 16]),
        (*parts[0].class_names, *parts[1].class_names),
        (*parts[0].ids, *parts[1].ids),
        " and ".join(part.fingerprint for part in parts),
    )


def _small(images: Any) -> Any:
    """Squares of miniImageNet's size; CUB's are a little larger."""
    return np.stack([np.asarray(Image.fromarray(image).resize((SIDE, SIDE))) for image in images])


def some(data: Dataset, chosen: Sequence[int], name: str) -> Dataset:
    """Only these classes, numbered anew."""
    rows = np.flatnonzero(np.isin(data.labels, chosen))
    labels = np.searchsorted(np.sort(chosen), data.labels[rows])
    names, ids = tuple(data.class_names[c] for c in sorted(chosen)), tuple(data.ids[i] for i in rows)
    return Dataset(data.images[rows], labels, names, ids, f"{data.fingerprint}[{name}]")


def timed() -> dict[str, Any]:
    data, before = classes(20, 30), os.getloadavg()
    with tempfile.TemporaryDirectory() as folder:
        for row, image in enumerate(data.images):
            place = Path(folder) / "photos" / data.class_names[data.labels[row]]
            place.mkdir(parents=True, exist_ok=True)
            Image.fromarray(image).save(place / f"{row:04d}.png")
        output = Path(folder) / "tuned.json"
        began = time.perf_counter()
        subprocess.run(
            [sys.executable, "-m", "onesdaug", "tune", str(place.parent), "--encoder", str(ENCODER), "--device", "cpu",
             "--sources", "pocket,shape,crop-flip", "-o", str(output)],
            check=True,
        )  # fmt: skip
        seconds = time.perf_counter() - began
        found = json.loads(output.read_text())
    return {
        "seconds": seconds, "threads": torch.get_num_threads(), "load_before": before, "load_after": os.getloadavg(),
        "answer": found["details"]["answer"], "notes": found["notes"], "machine": found["made"]["machine"],
        "data": found["made"]["data"],
    }  # fmt: skip


@dataclass
class Remembered(ViewSource):
    """Draws the views of an image once, whatever classes it is looked at with."""

    views: Any
    known: dict[str, Tensor] = field(default_factory=dict)

    def tensors(self, batch: Tensor, k: int, seeds: Sequence[int | str] | None = None) -> Tensor:
        names = tensor_digests(batch)
        new = [row for row, name in enumerate(names) if name not in self.known]
        if new:
            drawn = self.views.tensors(batch[new], k, None if seeds is None else [seeds[row] for row in new])
            self.known |= {names[row]: views.clone() for row, views in zip(new, drawn, strict=True)}
        return torch.stack([self.known[name] for name in names])

    def describe(self) -> dict[str, Any]:
        return dict(self.views.describe())


def split(data: Dataset, candidates: list[Candidate], seed: int) -> list[dict[str, Any]]:
    """Choose on one half of the classes, look at the other: a row for each number of shots."""
    encoder, head = load_encoder(ENCODER), load_head(ENCODER)
    assert head is not None
    order = np.random.default_rng(seed).permutation(data.n_classes)
    halves = [
        some(data, part.tolist(), f"half {i} of split {seed}") for i, part in enumerate(np.array_split(order, 2))
    ]

    def judges(labels: Tensor) -> list[Judge]:
        room = int(np.bincount(labels.numpy()).min())
        return [ClassJudge(labels, head, shot) for shot in SHOTS if shot < room]

    with tempfile.TemporaryDirectory() as work:
        found = Search(halves[0], encoder, candidates, judges, Path(work), k=K, fewest=2).run()
        winner = found.finalists[found.choice.source]
        mine = Search(halves[1], encoder, [winner.candidate], judges, Path(work), k=K, fewest=IMAGES).run()
    bank, rows = mine.finalists[0].bank(IMAGES), []
    for task, judge in enumerate(mine.judges):
        base, index, estimate = judge.score(bank, found.plain[task]), found.choice.uses[task], found.choice.gains[task]
        after = base if index is None else judge.score(bank, found.uses[index])
        outcome = expected(judge, after - base, base)
        both = math.hypot(estimate.ci95, outcome.ci95)
        rows.append({
            "split": seed, "task": judge.name, "source": winner.candidate.label,
            "use": None if index is None else vars(found.uses[index]),
            "estimate": [estimate.difference, estimate.ci95], "outcome": [outcome.difference, outcome.ci95],
            "agree": abs(estimate.difference - outcome.difference) <= both,
        })  # fmt: skip
        print(rows[-1], flush=True)
    return rows


def splits() -> list[dict[str, Any]]:
    data = classes(40, IMAGES)
    tried = propose(["pocket", "shape", "crop-flip"], 2, CPU)
    tried = [one for one in tried if one.config is None or one.config.steps == STEPS]
    candidates = [replace(one, views=Views(Remembered(one.views.source.views), one.views.name, CPU)) for one in tried]
    return [row for seed in range(3) for row in split(data, candidates, seed)]


def paragraph(stored: dict[str, Any]) -> str:
    run, rows = stored["time"], stored["splits"]
    higher = sum(row["outcome"][0] > row["estimate"][0] for row in rows)
    halves = [100 * row[which][1] for row in rows for which in ("estimate", "outcome")]
    load = f"load {run['load_before'][0]:.1f} before, {run['load_after'][0]:.1f} after"
    lines = [
        f"20 validation classes × 30 images (16 of miniImageNet, four of CUB), the miniImageNet ConvNet, `pocket`, "
        f"two cores ({load}):\nan answer after {run['seconds'] / 60:.1f} minutes. {run['notes'][-1]}",
        "",
        *(f"    {line}" for line in run["answer"]),
        "",
        f"Whether such a gain comes: 40 validation classes (16 and 24), {IMAGES} images each, cut into halves at "
        "random three times; source (`pocket` with few steps, shape,\ncrop-flip) and use chosen on one half, "
        "measured on the other. Estimate and outcome differ by less than their intervals in "
        f"{sum(row['agree'] for row in rows)} of {len(rows)} cases,\nand the outcome is the higher one in {higher}. "
        f"Intervals of {min(halves):.1f} to {max(halves):.1f} points are wide: this shows that no estimate is far "
        "off, not that each is exact.",
        "",
        "| split | task | chosen | estimate | outcome on the other classes |",
        "|---|---|---|---|---|",
    ]
    for row in rows:
        use = row["use"]
        how = "no views" if use is None else f"{row['source']}; K = {use['query']}, weight {use['original_weight']:g}"
        how += ", length 1" if use and use["normalise"] else ""
        gains = [f"{100 * mean:+.1f} ± {100 * half:.1f}" for mean, half in (row["estimate"], row["outcome"])]
        lines.append(f"| {row['split'] + 1} | {row['task']} | {how} | {gains[0]} | {gains[1]} |")
    return "\n".join(lines)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("parts", nargs="+", choices=("time", "splits", "document"))
    given, began_with = options.parse_args(), commit()  # before files change
    stored = json.loads(RESULT.read_text()) if RESULT.is_file() else {}
    for part, measure in (("time", timed), ("splits", splits)):
        if part in given.parts:
            stored |= {part: measure(), "commit": began_with, "machine": describe_machine(CPU)}
            write_text(RESULT, json.dumps(stored, indent=1) + "\n")
    if "document" in given.parts:
        DOCUMENT.write_text(with_tables(DOCUMENT.read_text(), {NAME: paragraph(stored)}))


if __name__ == "__main__":
    main()
