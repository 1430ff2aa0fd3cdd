"""What each solver does to a view, and the table of docs/operator.md that says so.

    ONESDAUG_DATA=… python benchmarks/solver_report.py measure     sharpness of views, on validation images
    python benchmarks/solver_report.py                             the table, from what is stored

Three columns: the spread that is left of data with spread 1 when the predictor is exact (computed, no network), the
sharpness of real views against that of their originals (`benchmarks/results/solver-sharpness.json`), and few-shot
accuracy on validation classes (`results/solvers-validation.json`, a study).
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT)]

import numpy as np  # noqa: E402

from benchmarks.markers import with_tables  # noqa: E402
from onesdaug.augment.config import preset  # noqa: E402
from onesdaug.augment.solvers import table  # noqa: E402
from onesdaug.generators.schedule import Schedule  # noqa: E402
from onesdaug.report.facts import drawn_by  # noqa: E402
from onesdaug.report.result import read_result  # noqa: E402
from onesdaug.report.strings import points  # noqa: E402

SOLVERS = {
    "ddpm": "ddpm",
    "ddpm-ancestral": "ddpm-ancestral",
    "ddim": "ddim",
    "dpm++": "dpm",
}  # name → row of the study
GENERATORS = ("pocket", "pocket-imagenet")
SHARPNESS = ROOT / "benchmarks" / "results" / "solver-sharpness.json"
STUDY, DOCS = ROOT / "results" / "solvers-validation.json", ROOT / "docs" / "operator.md"
POINT: dict[str, Any] = {"noise_level": 0.7, "noise_map": "strength", "steps": 20}


def spread_left(solver: str) -> float:
    """Standard deviation of the result for N(0, 1) data and the exact predictor, x0 = sqrt(abar)·z: one linear map.

    Followed as a covariance of (z, previous x0); the starting noise and each step's own are independent.
    """
    rows = table(Schedule.scaled_linear(offset=1), solver, POINT["steps"], POINT["noise_level"], POINT["noise_map"])
    covariance = np.diag([1.0, 0.0])  # alpha² + sigma² = 1 of noised data
    for i in range(len(rows)):
        guess = rows.alpha[i]  # x0 as a multiple of z
        step = np.array([[rows.a[i] + rows.b[i] * guess, rows.c[i]], [guess, 0.0]])
        covariance = step @ covariance @ step.T
        covariance[0, 0] += rows.s[i] ** 2
    return float(np.sqrt(covariance[0, 0]))


def sharpness(pictures: Any) -> float:
    """Variance of the Laplacian of the grey picture, the mean over (B, 3, H, W)."""
    import torch

    grey = pictures.mean(1, keepdim=True)
    kernel = torch.tensor([[0.0, 1.0, 0.0], [1.0, -4.0, 1.0], [0.0, 1.0, 0.0]]).view(1, 1, 3, 3)
    return float(torch.nn.functional.conv2d(grey, kernel).var((1, 2, 3)).mean())


def measure(per_class: int = 4) -> dict[str, Any]:
    import torch

    from onesdaug import Augmenter
    from onesdaug.common.provenance import commit, describe_machine
    from onesdaug.data.registry import load_split
    from onesdaug.fewshot.views import as_batch

    data = load_split("miniimagenet", "val").sample(per_class)
    images = as_batch(data.images)
    found: dict[str, dict[str, float]] = {}
    kept: dict[str, float] = {}
    for generator in GENERATORS:
        loaded = Augmenter.from_pretrained(generator, device="cpu")
        found[generator], kept[generator] = {}, sharpness(loaded.round_trip(images))
        for solver in SOLVERS:
            config = preset("pocket-faithful", **POINT, solver=solver)
            found[generator][solver] = sharpness(Augmenter(loaded.generator, config).tensors(images, 1)[:, 0])
            print(generator, solver, found[generator][solver], flush=True)
    return {
        "what": "variance of the Laplacian of one view of each image, preset pocket-faithful at the paper's noise "
        "level and steps; the originals', and what the autoencoder alone leaves of it",
        "command": "python benchmarks/solver_report.py measure",
        "commit": commit(),
        "machine": describe_machine(torch.device("cpu")),
        "data": f"miniImageNet val {data.fingerprint}",
        "originals": sharpness(images),
        "round_trip": kept,
        "views": found,
    }


def solver_table() -> str:
    stored, study = json.loads(SHARPNESS.read_text()), read_result(STUDY)
    cells = [cell for cell in study.cells if cell.support == 2]
    columns = list(dict.fromkeys((cell.classifier, cell.generator) for cell in cells))
    seen = f"sharpness, {' / '.join(stored['views'])}"
    kept = " / ".join(f"{stored['round_trip'][generator]:.4f}" for generator in stored["views"])
    head = ["solver", "spread left of 1", seen, *(", ".join(column) for column in columns)]
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    for solver, row in SOLVERS.items():
        sharp = " / ".join(f"{stored['views'][generator][solver]:.4f}" for generator in stored["views"])
        found = {(cell.classifier, cell.generator): cell.gain for cell in cells if cell.row == row}
        gains = [points(gain) if (gain := found[column]) else "–" for column in columns]
        lines.append(f"| {' | '.join([f'`{solver}`', f'{spread_left(solver):.3f}', sharp, *gains])} |")
    runs = "; ".join(
        f"{drawn_by(run)} by `{run.command}`, commit {run.commit}, {run.machine['device']}"
        for run in (study.made, *study.made.also)
    )
    told = (
        "Spread: what is left of data with standard deviation 1 and an exact predictor, SD 1.5's schedule. Sharpness: "
        f"variance of the Laplacian, {stored['originals']:.4f} of the originals, {kept} after the "
        f"autoencoder alone ({stored['data']}, `{stored['command']}`, commit {stored['commit']}, CPU). "
        "Then points over no views, 5-way 1-shot, two views, validation classes: "
        f"{study.made.data['miniimagenet']}; {runs} ([results.md](results.md))."
    )
    return "\n".join(lines) + f"\n\n{told}"


def main() -> None:
    if sys.argv[1:] == ["measure"]:
        SHARPNESS.write_text(json.dumps(measure(), indent=1) + "\n")
    else:
        DOCS.write_text(with_tables(DOCS.read_text(), {"solvers": solver_table()}))


if __name__ == "__main__":
    main()
