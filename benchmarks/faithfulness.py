"""How faithful and how different are views, over the noise level, with and without the condition?

    ONESDAUG_DATA=… python benchmarks/faithfulness.py [--model pocket] [--encoder FOLDER]

Views of a random, class-balanced part of miniImageNet's validation classes, seen by an encoder that must not be the
one the model is conditioned on. Writes `benchmarks/results/faithfulness.json` and draws `docs/faithfulness.png`;
`--redraw` draws the picture again from the stored numbers.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT)]

import numpy as np  # noqa: E402
import torch  # noqa: E402
from torch import Tensor  # noqa: E402

from benchmarks.forecast import dumps, open_encoder, sample  # noqa: E402
from onesdaug import Augmenter  # noqa: E402
from onesdaug.analysis.faithfulness import Faithfulness  # noqa: E402
from onesdaug.analysis.faithfulness import measure as measure_views  # noqa: E402
from onesdaug.augment.operator import default_preset  # noqa: E402
from onesdaug.common.progress import shown, track  # noqa: E402
from onesdaug.common.provenance import commit, describe_machine  # noqa: E402
from onesdaug.data.dataset import Dataset  # noqa: E402
from onesdaug.data.registry import load_split  # noqa: E402
from onesdaug.encoders.base import Encoder  # noqa: E402
from onesdaug.fewshot.views import as_batch  # noqa: E402

RESULTS = ROOT / "benchmarks" / "results" / "faithfulness.json"
PICTURE = ROOT / "docs" / "faithfulness.png"
ENCODER = "artifacts/fewshot/mini-protonet-res12"
LEVELS = tuple(round(0.1 * i, 1) for i in range(1, 11))

PANELS = (
    ("cosine", "Cosine to the original", "cosine"),
    ("agreement", "Nearest class is the image's", "share of views"),
    ("diversity", "Distance between two views", "1 − cosine"),
)
LINES = ((True, "with condition", "#0b6e99", "o"), (False, "without condition", "#d9730d", "s"))


@dataclass(frozen=True)
class Point(Faithfulness):
    """One point of the curve."""

    noise_level: float
    condition: bool


def curve(
    augmenter: Augmenter,
    dataset: Dataset,
    encoder: Encoder,
    noise_levels: Sequence[float],
    k: int = 2,
    *,
    conditions: Sequence[bool] = (True, False),
    seed: int = 0,
    batch: int = 64,
) -> list[Point]:
    """Faithfulness over the noise level, with and without condition; all else as the augmenter has it.

    A view's random streams hang on image, seed and k alone: every point sees the same tweaks and the same noise.
    """
    settings = [(level, condition) for condition in conditions for level in noise_levels]
    labels = torch.as_tensor(dataset.labels)
    originals = torch.cat([encoder.embed(part) for part in _batches(dataset, batch)]).cpu()
    points = []
    for level, condition in track(settings, "settings"):
        config = augmenter.config.model_copy(update={"noise_level": level, "condition": condition})
        maker = Augmenter(
            augmenter.generator,
            config,
            batch_size=augmenter.batch_size,
            device=augmenter.device,
            side=augmenter.side,
        )
        views = torch.cat([_embed_views(encoder, maker.tensors(b, k, seed=seed)) for b in _batches(dataset, batch)])
        found = measure_views(originals, views, labels)
        points.append(Point(**vars(found), noise_level=level, condition=condition))
    return points


def _batches(dataset: Dataset, batch: int) -> Iterator[Tensor]:
    return (as_batch(dataset.images[start : start + batch]) for start in range(0, len(dataset), batch))


def _embed_views(encoder: Encoder, views: Tensor) -> Tensor:
    """(B, K, 3, H, W) -> (B, K, d) on the host."""
    return encoder.embed(views.flatten(0, 1)).cpu().reshape(*views.shape[:2], -1)


def as_row(point: Point) -> dict[str, Any]:
    """One point of the JSON: means and half-widths of their intervals."""
    found = {
        name: None if value is None else {"mean": round(value["mean"], 4), "ci95": round(value["ci95"], 4)}
        for name, value in asdict(point).items()
        if name not in ("noise_level", "condition")
    }
    return {"noise_level": point.noise_level, "condition": point.condition, **found}


def draw(record: Mapping[str, Any], path: Path) -> None:
    """Three panels over the noise level; bands are 95 % intervals."""
    import matplotlib  # late: nothing else here needs it

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    style = {"font.size": 9, "axes.spines.top": False, "axes.spines.right": False, "axes.titlesize": 10}
    with plt.rc_context(style):
        figure, axes = plt.subplots(1, 3, figsize=(9.6, 3.1), sharex=True, layout="constrained")
        for axis, (name, title, unit) in zip(axes, PANELS, strict=True):
            for condition, label, colour, marker in LINES:
                points = [p for p in record["points"] if p["condition"] == condition and p[name] is not None]
                if not points:
                    continue
                x = np.array([p["noise_level"] for p in points])
                mean = np.array([p[name]["mean"] for p in points])
                half = np.array([p[name]["ci95"] for p in points])
                axis.fill_between(x, mean - half, mean + half, color=colour, alpha=0.18, linewidth=0)
                axis.plot(x, mean, color=colour, marker=marker, markersize=3.5, linewidth=1.4, label=label)
            if name == "agreement":
                level = record["points"][0]["original_agreement"]["mean"]
                axis.axhline(level, color="0.35", linestyle="--", linewidth=1, label="originals")
            axis.set_title(title, loc="left")
            axis.set_xlabel("noise level")
            axis.set_ylabel(unit)
            low, high = axis.get_ylim()
            axis.set_ylim(min(0.0, low), max(1.0, high) if name != "diversity" else high * 1.05)
            axis.grid(axis="y", color="0.92")
            axis.set_axisbelow(True)
        handles, labels = axes[1].get_legend_handles_labels()  # the one panel that has all three
        figure.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False)
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=160)
        plt.close(figure)


def measure(args: argparse.Namespace) -> dict[str, Any]:
    began = time.monotonic()
    whole = load_split("miniimagenet", "val", cache=args.cache / "images")
    part = sample(whole, args.per_class, np.random.default_rng(0))
    encoder = open_encoder(args.encoder, args.device)
    preset = args.preset or default_preset(args.model)
    augmenter = Augmenter.from_pretrained(args.model, preset=preset, device=args.device)

    with shown():
        points = curve(augmenter, part, encoder, args.levels, args.k, seed=args.seed)
    return {
        "what": f"{args.k} views each of {len(part)} images of miniImageNet's validation classes; means over images",
        "command": shlex.join(["python", "benchmarks/faithfulness.py", *sys.argv[1:]]),
        "commit": commit(),
        "machine": describe_machine(torch.device(args.device)),
        "data": {"fingerprint": whole.fingerprint, "part": part.fingerprint, "per_class": args.per_class},
        "encoder": {"name": Path(args.encoder).name, "fingerprint": encoder.fingerprint},
        "model": {"name": Path(args.model).name, "generator": augmenter.fingerprint},
        "config": augmenter.config.model_dump(mode="json"),
        "k": args.k,
        "seed": args.seed,
        "seconds": round(time.monotonic() - began, 1),
        "points": [as_row(point) for point in points],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="pocket", help="what Augmenter.from_pretrained takes")
    parser.add_argument("--preset", help="settings other than the model's own")
    parser.add_argument("--encoder", default=str(ROOT / ENCODER), help="must not be the model's condition encoder")
    parser.add_argument("--per-class", type=int, default=20)
    parser.add_argument("-k", type=int, default=2, help="views per image")
    parser.add_argument("--levels", type=float, nargs="+", default=LEVELS)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--cache", type=Path, default=ROOT / ".cache" / "forecast")
    parser.add_argument("--output", type=Path, default=RESULTS)
    parser.add_argument("--picture", type=Path, default=PICTURE)
    parser.add_argument("--redraw", action="store_true", help="only the picture, from what --output holds")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    args = parser.parse_args()
    if not args.redraw:
        args.output.parent.mkdir(parents=True, exist_ok=True)
        args.output.write_text(dumps(measure(args), "points"))
    draw(json.loads(args.output.read_text()), args.picture)


if __name__ == "__main__":
    main()
