"""Cut the demo's feature banks, at most 16 MB together, out of full ones of the test split.

    python benchmarks/demo_bank.py mini-protonet-res12/pocket=FULL.safetensors mini-protonet-res12/crop-flip=… …

Each argument is CLASSIFIER/SOURCE=BANK, a bank of `onesdaug fewshot embed` with at least 3 views; the classifier names
a folder of `artifacts/fewshot`; `pocket@0.7` is a further source of the same generator. Writes
`artifacts/demo/CLASSIFIER.SOURCE.safetensors` and `card.json`.

    ONESDAUG_DATA=… python benchmarks/demo_bank.py --redraw pocket pocket@0.7

draws the views of these sources anew, of the same images, here: for a generator whose weights were replaced.

How many images: a bank costs 4 columns × d × 2 bytes per image, so an image costs 10 times as much with d = 640 as
with d = 64, and what the luck of the draw adds to a gain falls with 1/√images. For a fixed size the two variances
together are least at a ratio of √10 images; making the views takes time too, and all of artifacts/ has a limit, so it
is 40 a class (ConvNet) and 21 (Res12), 2.6 MB a source. The images are drawn once, with seed 0, whatever the result;
where the full bank is large enough, the spread over 20 other parts is on the card.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "src"))

import numpy as np  # noqa: E402
import torch  # noqa: E402
from torch import Tensor  # noqa: E402

from onesdaug.augment.config import preset  # noqa: E402
from onesdaug.augment.operator import Augmenter, default_preset  # noqa: E402
from onesdaug.common.provenance import commit  # noqa: E402
from onesdaug.data.registry import BENCHMARKS, load_split  # noqa: E402
from onesdaug.encoders.load import load_encoder  # noqa: E402
from onesdaug.errors import ConfigError, DataError, OnesdaugError  # noqa: E402
from onesdaug.fewshot.bank import FeatureBank, to_dtype  # noqa: E402
from onesdaug.fewshot.evaluate import Task, ViewUse, evaluate  # noqa: E402
from onesdaug.fewshot.heads import build_head  # noqa: E402
from onesdaug.fewshot.views import Views  # noqa: E402
from onesdaug.studies.kinds.demo.banks import CARD, TASK  # noqa: E402

OUT = ROOT / "artifacts" / "demo"
RELEASED = ROOT / "artifacts" / "fewshot"
PER_CLASS = {"mini-protonet-convnet": 40, "mini-protonet-res12": 21}
K, SEED, LIMIT, PARTS = 3, 0, 16_000_000, 20
SAME = 0.02  # originals embedded in two runs may differ by kernels and half precision, not by more


def part_rows(labels: Tensor, per_class: int, seed: int) -> Tensor:
    """Rows of a random class-balanced part, in the bank's order; a smaller part lies inside a larger one."""
    values, rows = labels.numpy(), []
    for label in np.unique(values):
        mine = np.flatnonzero(values == label)
        if len(mine) < per_class:
            raise ConfigError(f"class {label} has {len(mine)} images, {per_class} asked for")
        order = np.random.default_rng([seed, int(label)]).random(len(mine)).argsort()
        rows.append(mine[order[:per_class]])
    return torch.from_numpy(np.sort(np.concatenate(rows)))


def cut(
    bank: FeatureBank, rows: Tensor, source: str, seed: int = SEED, originals: Tensor | None = None
) -> FeatureBank:
    """These rows with the first K views in float16; `originals` replaces column 0, to share it between banks."""
    if bank.k < K or bank.oracle:
        raise ConfigError(f"the {source} bank has {bank.k} stored views per image, {K} are needed")
    features = bank.features[rows, : 1 + K].clone()
    if originals is not None:
        features[:, 0] = originals[rows].to(features.dtype)
    per_class = len(rows) // len(bank.info.class_names)
    info = replace(
        bank.info,
        ids=tuple(bank.info.ids[row] for row in rows.tolist()),
        data=f"{bank.info.data}[{per_class} of each class, seed {seed}]",
        views={**bank.info.views, "source": source, "k": K},  # its own source may be a folder of some machine
    )
    return FeatureBank(to_dtype(features, torch.float16), bank.labels[rows].clone(), info)


def shared_originals(banks: Mapping[str, FeatureBank]) -> tuple[Tensor, float]:
    """The first bank's originals, after making sure that the others hold the same images in the same network."""
    (_, first), *others = banks.items()
    base, worst = first.features[:, 0].float(), 0.0
    for name, bank in others:
        if (bank.info.ids, bank.info.data, bank.info.encoder) != (first.info.ids, first.info.data, first.info.encoder):
            raise DataError(f"the {name} bank was made from other images or another encoder than the others")
        far = float(((bank.features[:, 0].float() - base).norm(dim=1) / base.norm(dim=1).clamp_min(1e-9)).max())
        if far > SAME:
            raise DataError(
                f"the originals of the {name} bank differ by up to {far:.3f} of their length: not the same"
            )
        worst = max(worst, far)
    return first.features[:, 0], worst


def head_of(classifier: str, released: Path) -> dict[str, Any]:
    """How the released classifier scores; heads with weights of their own would have to travel too."""
    head: dict[str, Any] = json.loads((released / classifier / "card.json").read_text())["head"]
    if head["name"] != "protonet":
        raise ConfigError(f"{classifier} has a {head['name']} head; the demo's banks are for protonet")
    return {"name": head["name"], "settings": head["settings"]}


def spread(
    bank: FeatureBank, source: str, per_class: int, head: Mapping[str, Any], parts: int, task: Task
) -> float | None:
    """The luck of the draw: standard deviation of the gain with K views over other parts of the same size.

    None where the bank is not at least three times as large: parts that are mostly the same images show no luck.
    """
    if parts < 2 or int(bank.labels.bincount().min()) < 3 * per_class:
        return None
    scorer, gains = build_head(head["name"], bank.dim, **head["settings"]), []
    for seed in range(SEED + 1, SEED + 1 + parts):
        part = cut(bank, part_rows(bank.labels, per_class, seed), source, seed)
        gain = evaluate(part, scorer, [task], [ViewUse(K, K)])[1].gain
        gains.append(gain.difference if gain is not None else 0.0)
    return round(float(np.std(gains, ddof=1)), 5)


def data_facts(bank: FeatureBank) -> dict[str, Any]:
    """The benchmark and split of a bank, and how many images that has; classes trained or tuned on are refused."""
    fingerprint = bank.info.data
    for benchmark in BENCHMARKS.values():
        for name, split in benchmark.splits.items():
            if fingerprint in split.fingerprints:
                if name != "test":
                    raise DataError(f"a bank of {benchmark.name} {name}: the demo shows novel test classes only")
                return {"data": f"{benchmark.title}, {name} classes", "of_images": split.images}
    return {"data": f"unknown data {fingerprint}", "of_images": len(bank.info.ids)}


def file_hash(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def make(
    full: Mapping[str, Mapping[str, FeatureBank]],
    out: Path,
    per_class: Mapping[str, int] = PER_CLASS,
    parts: int = PARTS,
    task: Task = TASK,
    released: Path = RELEASED,
) -> dict[str, Any]:
    """Write the parts of `full` (classifier → source → bank) and their card."""
    entries, banks, heads = [], [], {}
    for classifier, sources in full.items():
        if classifier not in per_class or not (released / classifier / "card.json").is_file():
            raise ConfigError(f"{classifier} needs a folder in {released} and --per-class {classifier}=N")
        heads[classifier], number = head_of(classifier, released), per_class[classifier]
        originals, difference = shared_originals(sources)
        for source, bank in sources.items():
            banks.append(cut(bank, part_rows(bank.labels, number, SEED), source, originals=originals))
            info = banks[-1].info
            entries.append({
                "file": f"{classifier}.{source}.safetensors", "classifier": classifier, "source": source,
                **info.summary(), **data_facts(bank), "data_fingerprint": info.data,
                "images_per_class": number, "originals_differ": round(difference, 5),
                "spread": spread(bank, source, number, heads[classifier], parts, task),
            })  # fmt: skip
            print(f"{classifier}, {source}: {number} images of each class", file=sys.stderr)
    size = sum(bank.features.nbytes + bank.labels.nbytes + len(bank.info.to_json()) for bank in banks)
    if size > LIMIT:
        raise ConfigError(f"{size / 1e6:.1f} MB, the limit is {LIMIT / 1e6:.0f}: fewer images with --per-class")
    for entry, bank in zip(entries, banks, strict=True):
        bank.save(out / entry["file"])
        entry |= {"bytes": (out / entry["file"]).stat().st_size, "sha256": file_hash(out / entry["file"])}
    card = {
        "what": "features of a random class-balanced part of the test split and of K views of each image; no images",
        "script": "benchmarks/demo_bank.py", "commit": commit(), "seed": SEED, "k": K, "dtype": "float16",
        "spread_over_parts": parts, "bytes": sum(entry["bytes"] for entry in entries),
        "heads": heads, "banks": entries,
    }  # fmt: skip
    (out / CARD).write_text(json.dumps(card, indent=2) + "\n", encoding="utf-8")
    return card


def augmenter_of(source: str) -> Augmenter:
    """With the generator's preset, or as the studies enter at the paper's noise level: pocket@0.7."""
    name, _, level = source.partition("@")
    entry = {"noise_level": float(level), "noise_map": "strength", "steps": 10} if level else {}
    generator = Augmenter.from_pretrained(name, device="cpu").generator
    return Augmenter(generator, preset(default_preset(name), **entry))


def redraw(sources: Sequence[str], out: Path = OUT, released: Path = RELEASED) -> None:
    """The banks of these sources with views drawn anew; the images, and so the first column, stay."""
    card = json.loads((out / CARD).read_text())
    whole = load_split("miniimagenet", "test")
    rows = {name: row for row, name in enumerate(whole.ids)}
    for source in sources:
        entries = [entry for entry in card["banks"] if entry["source"] == source]
        banks = {entry["classifier"]: FeatureBank.load(out / entry["file"]) for entry in entries}
        names = list(dict.fromkeys(name for bank in banks.values() for name in bank.info.ids))
        augmenter, seen = augmenter_of(source), dict[str, list[Tensor]]()
        drawing = Views(augmenter, source, augmenter.device)
        encoders = {name: load_encoder(released / name, "cpu") for name in banks}
        for start in range(0, len(names), 32):
            few = names[start : start + 32]
            images = whole.images[[rows[name] for name in few]]
            views = drawing.make(images, few, K, SEED)
            for classifier, encoder in encoders.items():
                embedded = encoder.embed(views.flatten(0, 1)).unflatten(0, views.shape[:2])
                seen.setdefault(classifier, []).append(embedded)
            print(f"{source}: {start + len(few)} of {len(names)}", file=sys.stderr, flush=True)
        for entry in entries:
            bank = banks[entry["classifier"]]
            order = [names.index(name) for name in bank.info.ids]
            made = torch.cat(seen[entry["classifier"]])[order].to(bank.features.dtype)
            info = replace(bank.info, views={**drawing.describe(), "k": K}, commit=commit())
            file = out / entry["file"]
            FeatureBank(torch.cat([bank.features[:, :1], made], dim=1), bank.labels, info).save(file)
            entry |= {**info.summary(), "data": entry["data"], "spread": None}
            entry |= {"bytes": file.stat().st_size, "sha256": file_hash(file)}
    card["bytes"] = sum(entry["bytes"] for entry in card["banks"])
    (out / CARD).write_text(json.dumps(card, indent=2) + "\n", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("banks", nargs="*", metavar="CLASSIFIER/SOURCE=BANK")
    parser.add_argument("--redraw", nargs="+", metavar="SOURCE", help="draw the views of these sources anew, here")
    parser.add_argument("--per-class", action="append", default=[], metavar="CLASSIFIER=N")
    parser.add_argument("--parts", type=int, default=PARTS, help="other parts to measure the spread on")
    parser.add_argument("-o", "--output", type=Path, default=OUT)
    args = parser.parse_args()
    if args.redraw:
        redraw(args.redraw, args.output)
        return
    full: dict[str, dict[str, FeatureBank]] = {}
    for text in args.banks:
        name, _, file = text.partition("=")
        classifier, _, source = name.partition("/")
        if not (classifier and source and file):
            parser.error(f"want CLASSIFIER/SOURCE=BANK, got {text!r}")
        full.setdefault(classifier, {})[source] = FeatureBank.load(file)
    numbers = PER_CLASS | {name: int(n) for name, _, n in (text.partition("=") for text in args.per_class)}
    card = make(full, args.output, numbers, args.parts)
    print(f"{args.output}: {len(card['banks'])} banks, {card['bytes'] / 1e6:.2f} MB")


if __name__ == "__main__":
    try:
        main()
    except OnesdaugError as error:
        sys.exit(f"error: {error}")
