"""How faithful and how different are views, over the noise level, with and without the condition?

    ONESDAUG_DATA=… python benchmarks/faithfulness.py [--model pocket] [--encoder FOLDER]
    ONESDAUG_DATA=… python benchmarks/faithfulness.py --compare [pocket pocket-imagenet photo]

Views of a random, class-balanced part of miniImageNet's validation classes, seen by an encoder that must not be the
one the model is conditioned on. Writes `benchmarks/results/faithfulness.json` and draws `docs/faithfulness.png`;
`--redraw` draws the picture again from the stored numbers.

`--compare` puts generators side by side instead, at the paper's noise level 0.7 with the preset that shows what the
picture shows, with and without the tweak. Writes `benchmarks/results/faithfulness-generators.json`, from which
`benchmarks/pocket_report.py` fills docs/generators.md. Generators that are not named keep what that file says of them.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT)]

import numpy as np  # noqa: E402
import torch  # noqa: E402
from torch import Tensor  # noqa: E402

from benchmarks.forecast import dumps, open_encoder, sample  # noqa: E402
from onesdaug import Augmenter  # noqa: E402
from onesdaug.analysis.faithfulness import Faithfulness, agreements  # noqa: E402
from onesdaug.analysis.faithfulness import measure as measure_views  # noqa: E402
from onesdaug.augment.config import AugmentConfig, preset  # noqa: E402
from onesdaug.augment.operator import default_preset, faithful_preset  # noqa: E402
from onesdaug.common.progress import shown, track  # noqa: E402
from onesdaug.common.provenance import commit, describe_machine  # noqa: E402
from onesdaug.data.dataset import Dataset  # noqa: E402
from onesdaug.data.registry import load_split  # noqa: E402
from onesdaug.encoders.base import Encoder  # noqa: E402
from onesdaug.fewshot.views import as_batch  # noqa: E402
from onesdaug.generators.load import has_weights  # noqa: E402
from onesdaug.statistics import Summary, mean_ci  # noqa: E402

RESULTS = ROOT / "benchmarks" / "results" / "faithfulness.json"
COMPARED = RESULTS.with_name("faithfulness-generators.json")
PICTURE = ROOT / "docs" / "faithfulness.png"
ENCODER = "artifacts/fewshot/mini-protonet-res12"
LEVELS = tuple(round(0.1 * i, 1) for i in range(1, 11))
GENERATORS, LEVEL = ("pocket", "pocket-imagenet", "photo"), 0.7

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
    originals = _embed(encoder, dataset, batch)
    points = []
    for level, condition in track(settings, "settings"):
        config = augmenter.config.model_copy(update={"noise_level": level, "condition": condition})
        views = _views(augmenter, config, dataset, encoder, k, seed, batch)
        found = measure_views(originals, views, labels)
        points.append(Point(**vars(found), noise_level=level, condition=condition))
    return points


def compare(
    augmenters: Mapping[str, Augmenter], dataset: Dataset, encoder: Encoder, k: int = 2, *, seed: int = 0,
    batch: int = 64,
) -> list[dict[str, Any]]:  # fmt: skip
    """A row for each augmenter, with and without the tweak; `share` is the views' agreement over the originals'."""
    labels = torch.as_tensor(dataset.labels)
    originals = _embed(encoder, dataset, batch)
    rows = []
    for name, tweak in track([(name, tweak) for name in augmenters for tweak in (True, False)], "settings"):
        augmenter = augmenters[name]
        config = augmenter.config if tweak else augmenter.config.model_copy(update={"shape": None})
        views = _views(augmenter, config, dataset, encoder, k, seed, batch)
        found = {**vars(measure_views(originals, views, labels)), "share": share(originals, views, labels)}
        rows.append(
            {"model": name, "weights": augmenter.fingerprint, "noise_level": config.noise_level, "tweak": tweak}
            | _rounded(found)
        )
    return rows


def share(originals: Tensor, views: Tensor, labels: Tensor) -> Summary:
    """Views nearest their own class, over originals nearest theirs; the interval is that of a ratio of two means."""
    mine = agreements(originals, views, labels).mean(1)
    theirs = agreements(originals, originals.unsqueeze(1), labels)[:, 0]
    ratio = float(mine.mean() / theirs.mean())
    return Summary(ratio, mean_ci((mine - ratio * theirs).numpy()).ci95 / float(theirs.mean()), len(mine))


def _views(
    augmenter: Augmenter, config: AugmentConfig, dataset: Dataset, encoder: Encoder, k: int, seed: int, batch: int
) -> Tensor:
    """Features of views with other settings, by the same networks."""
    maker = Augmenter(
        augmenter.generator,
        config,
        batch_size=augmenter.batch_size,
        device=augmenter.device,
        side=augmenter.side,
    )
    return torch.cat([_embed_views(encoder, maker.tensors(b, k, seed=seed)) for b in _batches(dataset, batch)])


def _embed(encoder: Encoder, dataset: Dataset, batch: int) -> Tensor:
    return torch.cat([encoder.embed(part) for part in _batches(dataset, batch)]).cpu()


def _batches(dataset: Dataset, batch: int) -> Iterator[Tensor]:
    return (as_batch(dataset.images[start : start + batch]) for start in range(0, len(dataset), batch))


def _embed_views(encoder: Encoder, views: Tensor) -> Tensor:
    """(B, K, 3, H, W) -> (B, K, d) on the host."""
    return encoder.embed(views.flatten(0, 1)).cpu().reshape(*views.shape[:2], -1)


def as_row(point: Point) -> dict[str, Any]:
    """One point of the JSON."""
    found = {name: value for name, value in vars(point).items() if name not in ("noise_level", "condition")}
    return {"noise_level": point.noise_level, "condition": point.condition, **_rounded(found)}


def _rounded(found: Mapping[str, Summary | None]) -> dict[str, Any]:
    """Means and half-widths of their intervals."""
    return {
        name: None if value is None else {"mean": round(value.mean, 4), "ci95": round(value.ci95, 4)}
        for name, value in found.items()
    }


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
    began, at = time.monotonic(), commit()  # now: others may be made while this runs
    whole = load_split("miniimagenet", "val", cache=args.cache / "images")
    part = sample(whole, args.per_class, np.random.default_rng(0))
    encoder = open_encoder(args.encoder, args.device, args.precision)
    with shown():
        if args.compare is not None:
            found = _compared(args, part, encoder)
        else:
            named = args.preset or default_preset(args.model)
            augmenter = Augmenter.from_pretrained(args.model, preset=named, device=args.device)
            points = curve(augmenter, part, encoder, args.levels, args.k, seed=args.seed)
            found = {
                "model": {"name": Path(args.model).name, "generator": augmenter.fingerprint},
                "config": augmenter.config.model_dump(mode="json"),
                "points": [as_row(point) for point in points],
            }
    return {
        "what": f"{args.k} views each of {len(part)} images of miniImageNet's validation classes; means over images",
        "command": shlex.join(["python", "benchmarks/faithfulness.py", *sys.argv[1:]]),
        "commit": at,
        "machine": describe_machine(torch.device(args.device)),
        "data": {"fingerprint": whole.fingerprint, "part": part.fingerprint, "per_class": args.per_class},
        "encoder": {"name": Path(args.encoder).name, "fingerprint": encoder.fingerprint},
        "k": args.k,
        "seed": args.seed,
        "seconds": round(time.monotonic() - began, 1),
        **found,
    }


def _compared(args: argparse.Namespace, part: Dataset, encoder: Encoder) -> dict[str, Any]:
    settings = {name: preset(faithful_preset(name), noise_level=LEVEL) for name in args.compare or present()}
    augmenters = {
        Path(name).name: Augmenter.from_pretrained(name, config=config, device=args.device)
        for name, config in settings.items()
    }
    return {
        "configs": {name: augmenter.config.model_dump(mode="json") for name, augmenter in augmenters.items()},
        "points": compare(augmenters, part, encoder, args.k, seed=args.seed),
    }


def beside(before: dict[str, Any], found: dict[str, Any]) -> dict[str, Any]:
    """What was measured before, with new points for the generators that were measured now, on the same images."""
    same = ("what", "data", "encoder", "k", "seed")
    if any(before[key] != found[key] for key in same):
        raise SystemExit("the stored file is of other images, another encoder or another seed: name another --output")
    new = {point["model"] for point in found["points"]}
    run = {key: found[key] for key in ("command", "commit", "machine", "seconds")} | {"of": sorted(new)}
    kept = [point for point in before["points"] if point["model"] not in new]
    also = [one for one in before.get("also", []) if set(one["of"]) - new]
    configs = {**before["configs"], **found["configs"]}
    return {**before, "configs": configs, "also": [*also, run], "points": [*found["points"], *kept]}


def present() -> list[str]:
    """Those of ours whose weights are on this machine."""
    return [name for name in GENERATORS if has_weights(name)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="pocket", help="what Augmenter.from_pretrained takes")
    parser.add_argument("--compare", nargs="*", metavar="MODEL", help="several side by side (none named: all of ours)")
    parser.add_argument("--preset", help="settings other than the model's own")
    parser.add_argument("--encoder", default=str(ROOT / ENCODER), help="must not be the model's condition encoder")
    parser.add_argument("--precision", choices=["float32", "bfloat16"], default="float32", help="of that encoder")
    parser.add_argument("--per-class", type=int, default=20)
    parser.add_argument("-k", type=int, default=2, help="views per image")
    parser.add_argument("--levels", type=float, nargs="+", default=LEVELS)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--cache", type=Path, default=ROOT / ".cache" / "forecast")
    parser.add_argument("--output", type=Path)
    parser.add_argument("--picture", type=Path, default=PICTURE)
    parser.add_argument("--redraw", action="store_true", help="only the picture, from what --output holds")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    args = parser.parse_args()
    output = args.output or (RESULTS if args.compare is None else COMPARED)
    if not args.redraw:
        output.parent.mkdir(parents=True, exist_ok=True)
        found = measure(args)
        if args.compare and output.is_file():
            found = beside(json.loads(output.read_text()), found)
        output.write_text(dumps(found, "points"))
    if args.compare is None:
        draw(json.loads(output.read_text()), args.picture)


if __name__ == "__main__":
    main()
