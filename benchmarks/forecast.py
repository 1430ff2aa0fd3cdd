"""What could views conditioned on an encoder gain? The forecast for the candidates and the released classifiers.

    ONESDAUG_DATA=… python benchmarks/forecast.py [--condition NAME=ENCODER …] [--part lite2]

Embeds a random, class-balanced part of miniImageNet (80 images per base class, 150 per validation class), fits
condition features → classifier features on the base classes, and scores 5-way episodes of the validation classes with
`ridge_forecast.py`. No test class is looked at. Features are kept in `.cache/forecast`: the first run takes
about 15 minutes on two CPU cores, later ones a few. Writes `benchmarks/results/forecast.json` and the table in
`docs/forecast.md`. `--part NAME` is a forecast of its own, of the conditions given, with its own file and table;
`--per-class 30 40` looks at fewer images, `--data cub` at birds. An encoder is a name, a checkpoint, a stage of a
recipe (…/pocket.state/encoder), or two of them with a + between: both together.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shlex
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT)]

import numpy as np  # noqa: E402
import torch  # noqa: E402

from benchmarks.fewshot_accuracy import RELEASED, Bfloat16  # noqa: E402
from benchmarks.markers import with_tables  # noqa: E402
from benchmarks.ridge_forecast import Forecast, Looks, forecast, unit  # noqa: E402
from onesdaug.common.progress import shown  # noqa: E402
from onesdaug.common.provenance import commit, describe_machine  # noqa: E402
from onesdaug.data.dataset import Dataset  # noqa: E402
from onesdaug.data.registry import load_split  # noqa: E402
from onesdaug.encoders.base import Encoder  # noqa: E402
from onesdaug.encoders.checkpoint import Kind, load_checkpoint, part, read_card, restored  # noqa: E402
from onesdaug.encoders.load import load_encoder  # noqa: E402
from onesdaug.fewshot.bank import FeatureBank  # noqa: E402
from onesdaug.fewshot.embed import embed  # noqa: E402
from onesdaug.fewshot.evaluate import Task, evaluate  # noqa: E402
from onesdaug.fewshot.heads import ProtoNet, load_head  # noqa: E402
from onesdaug.generators.pocket.condition import GlobalFeature, SlimRes12  # noqa: E402

RESULTS = ROOT / "benchmarks" / "results" / "forecast.json"
DOCS = ROOT / "docs" / "forecast.md"
TABLE = "benchmarks/results/forecast.json"  # its name in the document

CLASSIFIERS = {
    "miniimagenet": ("mini-protonet-convnet", "mini-protonet-res12", "mini-feat-res12"),
    "cub": ("cub-protonet-convnet", "cub-feat-convnet"),
}
# the conditions of the main forecast
CONDITIONS: dict[str, str | Path] = {
    "efficientnet-lite0": "efficientnet-lite0",
    "pocket": "onesdaug.generators.pocket:condition_encoder",
    **{name: RELEASED / name for name in ("mini-protonet-convnet", "mini-res12")},
}
PER_CLASS = (80, 150)  # images of a base class, of a validation class
RIDGES, AMPLIFICATIONS = (0.01, 0.1, 1.0), (1.0, 2.0, 4.0)
# of the table: the ridge, and its columns of (shot, target, amplification)
RIDGE, COLUMNS = 0.1, ((1, "self", 1.0), (1, "class", 1.0), (1, "class", 2.0), (5, "class", 1.0))


def sample(data: Dataset, per_class: int, rng: np.random.Generator) -> Dataset:
    """`per_class` random images of every class. Not the first ones: files within a class are not in random order."""
    chosen = [rng.choice(np.flatnonzero(data.labels == c), per_class, replace=False) for c in range(data.n_classes)]
    rows = np.sort(np.concatenate(chosen))
    ids = tuple(data.ids[i] for i in rows)
    mark = hashlib.sha256("\n".join(ids).encode()).hexdigest()[:8]
    return Dataset(
        data.images[rows], data.labels[rows], data.class_names, ids, f"{data.fingerprint}[{len(rows)}:{mark}]"
    )


def open_encoder(spec: str | Path, device: str, precision: str) -> Encoder:
    """Res12 may run in bfloat16, as in training's own validation: half the time where there is hardware for it."""
    folder = Path(spec)
    if (folder / "card.json").is_file() and read_card(folder, Kind).get("kind") == "stage":
        looking = GlobalFeature(stage_encoder(folder))
        return Encoder(looking, looking.preprocess, name=folder.name).to(device)
    encoder = load_encoder(spec, device)
    if encoder.name.startswith("res12") and precision == "bfloat16":
        encoder.module, encoder.fingerprint = Bfloat16(encoder.module), f"{encoder.fingerprint}-bfloat16"
    return encoder


def stage_encoder(folder: Path) -> SlimRes12:
    """The encoder in a finished stage of the recipe pocket."""
    tensors, card = load_checkpoint(folder)
    weights = part(tensors, "encoder")
    return restored(lambda: SlimRes12(tuple(card["stage"]["settings"]["widths"])), weights, folder)


def embed_parts(
    spec: str | Path, parts: Mapping[str, Dataset], args: argparse.Namespace
) -> dict[str, FeatureBank]:  # fmt: skip
    """The features of both parts, from the cache where they are there; of A+B those of both side by side."""
    first, *more = (
        _embedded(open_encoder(one, args.device, args.precision), parts, args.cache / args.data)
        for one in str(spec).split("+")
    )
    for other in more:
        first = {split: _beside(bank, other[split]) for split, bank in first.items()}
    return first


def _embedded(encoder: Encoder, parts: Mapping[str, Dataset], cache: Path) -> dict[str, FeatureBank]:
    with shown():
        return {
            split: embed(data, encoder, bank_path(cache, encoder, f"{split}-{len(data)}"), dtype=torch.float32)
            for split, data in parts.items()
        }


def _beside(one: FeatureBank, other: FeatureBank) -> FeatureBank:
    """Both features of every image, each of length 1: encoders differ in scale."""
    features = torch.cat([unit(bank.features).float() for bank in (one, other)], dim=-1)
    return FeatureBank(features, one.labels, replace(one.info, encoder=f"{one.info.encoder}+{other.info.encoder}"))


def bank_path(cache: Path, encoder: Encoder, split: str) -> Path:
    return cache / f"{encoder.fingerprint}-{split}.safetensors"


def as_row(classifier: str, row: Forecast) -> dict[str, Any]:
    """One row of the JSON, in percent."""
    return {
        "classifier": classifier,
        "condition": row.condition,
        "target": row.target,
        "ridge": row.ridge,
        "amplification": row.amplification,
        "shot": row.task.shot,
        "baseline": round(100 * row.baseline.mean, 3),
        "accuracy": round(100 * row.accuracy.mean, 3),
        "ci95": round(100 * row.accuracy.ci95, 3),
        "gain": round(100 * row.gain.difference, 3),
        "gain_ci95": round(100 * row.gain.ci95, 3),
        "p_value": float(f"{row.gain.p_value:.2g}"),
        "relative_gain": round(row.relative_percent, 3),
    }


def dumps(record: Mapping[str, Any], lines: str) -> str:
    """Indented JSON in which each entry of the list `lines` has one line."""
    rows = ",\n    ".join(json.dumps(row) for row in record[lines])
    return json.dumps({**record, lines: ["@"]}, indent=2).replace('"@"', rows) + "\n"


def table(record: Mapping[str, Any]) -> str:
    """Markdown: gain in points and relative, a row for each classifier and condition; the JSON has all settings."""
    titles = [f"{shot}-shot, {target} ×{a:g}" for shot, target, a in COLUMNS]
    lines = ["| " + " | ".join(["classifier", "condition", *titles]) + " |", "|---|---|" + "---|" * len(COLUMNS)]
    keys = ("classifier", "condition", "shot", "target", "amplification")
    rows = {tuple(r[key] for key in keys): r for r in record["rows"] if r["ridge"] == RIDGE}
    for classifier in record["classifiers"]:
        for condition, about in record["conditions"].items():
            cells = [rows[classifier, condition, *column] for column in COLUMNS]
            gains = [f"{c['gain']:+.2f} ± {c['gain_ci95']:.2f} ({c['relative_gain']:+.1f} %)" for c in cells]
            names = [f"`{classifier}` {cells[0]['baseline']:.2f}", f"`{condition}` {about['accuracy']:.2f}"]
            lines.append("| " + " | ".join([*names, *gains]) + " |")
    return "\n".join(lines)


def measure(conditions: Mapping[str, str | Path], args: argparse.Namespace) -> dict[str, Any]:
    began = time.monotonic()
    rng = np.random.default_rng(0)
    per_class = dict(zip(("train", "val"), args.per_class, strict=True))
    whole = {split: load_split(args.data, split, cache=args.cache / "images") for split in per_class}
    parts = {split: sample(whole[split], n, rng) for split, n in per_class.items()}
    tasks = [Task(5, shot, 15, args.episodes, seed=0) for shot in (1, 5)]
    seen: dict[str, dict[str, FeatureBank]] = {}
    about: dict[str, Any] = {}
    for name, spec in conditions.items():
        seen[name] = embed_parts(spec, parts, args)
        val = seen[name]["val"]
        own = evaluate(val, ProtoNet("cosine"), tasks[:1], [])[0]
        about[name] = {"encoder": val.info.encoder, "dim": val.dim, "accuracy": round(100 * own.accuracy.mean, 3)}
    rows, classifiers = [], {}
    for name in args.classifiers or CLASSIFIERS[args.data]:
        banks = embed_parts(RELEASED / name, parts, args)
        head = load_head(RELEASED / name) or ProtoNet("cosine")
        classifiers[name] = {"encoder": banks["val"].info.encoder, "head": type(head).__name__}
        for condition in conditions:
            base, novel = (_looks(seen[condition][split], banks[split]) for split in ("train", "val"))
            found = forecast(base, novel, head, condition, ridges=RIDGES, amplifications=AMPLIFICATIONS, tasks=tasks)
            rows += [as_row(name, row) for row in found]
            print(f"{name} with {condition}: {time.monotonic() - began:.0f} s", file=sys.stderr)
    return {
        "what": f"gain of averaging classifier features with those predicted from condition features; "
        f"5-way, 15 queries a class, {args.episodes} episodes, validation classes; percent",
        "command": shlex.join(["python", "benchmarks/forecast.py", *sys.argv[1:]]),
        "commit": commit(),
        "machine": describe_machine(torch.device(args.device)),
        "data": {
            split: {"fingerprint": whole[split].fingerprint, "part": part.fingerprint, "per_class": per_class[split]}
            for split, part in parts.items()
        },
        "episodes": {f"{task.shot}shot": task.sample(val.labels).recipe() for task in tasks},
        "conditions": about,
        "classifiers": classifiers,
        "seconds": round(time.monotonic() - began, 1),
        "rows": rows,
    }


def _looks(condition: FeatureBank, classifier: FeatureBank) -> Looks:
    return Looks(condition.features[:, 0], classifier.features[:, 0], classifier.labels)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--condition", action="append", metavar="NAME=ENCODER", help="may be repeated")
    parser.add_argument("--part", default="", metavar="NAME", help="a forecast of its own, beside the main one")
    parser.add_argument("--per-class", type=int, nargs=2, default=PER_CLASS, metavar=("BASE", "VALIDATION"))
    parser.add_argument("--data", choices=sorted(CLASSIFIERS), default="miniimagenet", help="cub wants a --part")
    parser.add_argument("--classifiers", nargs="+", choices=[name for names in CLASSIFIERS.values() for name in names])
    parser.add_argument("--precision", choices=["float32", "bfloat16"], default="bfloat16", help="of Res12")
    parser.add_argument("--episodes", type=int, default=2000)
    parser.add_argument("--cache", type=Path, default=ROOT / ".cache" / "forecast")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    args = parser.parse_args(arguments)
    chosen: Sequence[str] = args.condition or []
    if args.data != "miniimagenet" and not args.part:
        parser.error(f"--data {args.data} is a forecast of its own: give its file and table a name with --part")
    if bad := [text for text in chosen if "=" not in text]:
        parser.error(f"--condition wants NAME=ENCODER, not {bad[0]}")
    conditions = dict(text.split("=", 1) for text in chosen) or CONDITIONS
    record = measure(conditions, args)
    results = RESULTS.with_stem("-".join(filter(None, (RESULTS.stem, args.part))))
    results.write_text(dumps(record, "rows"))
    text = table(record)
    name, document = f"{TABLE.rpartition('/')[0]}/{results.name}", DOCS.read_text()
    if f"<!-- table: {name} -->" in document:  # else nobody has written yet what it says
        DOCS.write_text(with_tables(document, {name: f"\n{text}\n"}))
    print(text)


if __name__ == "__main__":
    main()
