"""Feature banks of a random part of a split and its views, one per classifier and source of views.

    ONESDAUG_DATA=… python benchmarks/view_banks.py OUT --split test --per-class 40 [--source pocket …] [--dtype …]

Each view is made once and seen by every classifier. OUT/CLASSIFIER-SOURCE.safetensors is an ordinary bank; the demo's
are cut from these (`benchmarks/demo_bank.py`).
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "src"))

import numpy as np  # noqa: E402
import torch  # noqa: E402

from onesdaug.augment.operator import Augmenter, default_preset  # noqa: E402
from onesdaug.common.provenance import commit  # noqa: E402
from onesdaug.data.registry import load_split  # noqa: E402
from onesdaug.encoders.load import load_encoder  # noqa: E402
from onesdaug.fewshot.bank import BankInfo, FeatureBank  # noqa: E402
from onesdaug.fewshot.views import Views, as_batch, resolve_views  # noqa: E402

CLASSIFIERS = ("mini-protonet-convnet", "mini-protonet-res12", "mini-feat-res12")
SOURCES = ("crop-flip", "shape", "pocket", "pocket-imagenet")
K = 3


def views_of(source: str, dtype: str) -> Views:
    """As `resolve_views`, in a precision of one's own."""
    if source in ("crop-flip", "shape"):
        return resolve_views(source)
    augmenter = Augmenter.from_pretrained(source, preset=default_preset(source), dtype=dtype, batch_size=12)
    return Views(augmenter, source, augmenter.device)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--split", default="val", choices=["val", "test"])
    parser.add_argument("--per-class", type=int, default=40)
    parser.add_argument("--source", action="append", choices=SOURCES)
    parser.add_argument("--dtype", default="bfloat16", help="of the generator")
    args = parser.parse_args()
    whole = load_split("miniimagenet", args.split, cache=ROOT / ".cache" / "decoded")
    data = whole.sample(args.per_class)
    encoders = {name: load_encoder(ROOT / "artifacts" / "fewshot" / name) for name in CLASSIFIERS}
    for source in args.source or SOURCES:
        files = {name: args.out / f"{name}-{source}.safetensors" for name in encoders}
        if all(file.is_file() for file in files.values()):
            print(f"{source}: there already")
            continue
        maker, began = views_of(source, args.dtype), time.monotonic()
        features: dict[str, list[torch.Tensor]] = {name: [] for name in encoders}
        for start in range(0, len(data), 32):
            rows = slice(start, start + 32)
            made = maker.make(data.images[rows], data.ids[rows], K, 0)
            columns = torch.cat([as_batch(data.images[rows])[:, None], made], dim=1)
            for name, encoder in encoders.items():
                seen = encoder.embed(columns.flatten(0, 1)).unflatten(0, columns.shape[:2])
                features[name].append(seen.half())
            print(f"{source}: {start + len(made)}/{len(data)}, {time.monotonic() - began:.0f} s", flush=True)
        for name, encoder in encoders.items():
            info = BankInfo(
                data.class_names,
                data.ids,
                whole.fingerprint,
                encoder.fingerprint,
                {**maker.describe(), "dtype": args.dtype, "k": K},
                0,
                commit(),
            )
            FeatureBank(torch.cat(features[name]), torch.from_numpy(np.array(data.labels)), info).save(files[name])
    return 0


if __name__ == "__main__":
    sys.exit(main())
