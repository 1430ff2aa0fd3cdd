"""Test accuracy of the released few-shot checkpoints: all of `artifacts/fewshot`, or those named.

    ONESDAUG_DATA=… python benchmarks/fewshot_accuracy.py [NAME…]

Each checkpoint embeds the test classes of the benchmark it was trained on and is scored on 10,000 5-way episodes with
15 queries a class. Nothing is chosen here: what was chosen on validation stands in the cards. Features are kept in
`.cache/`, so a second run takes seconds; two CPU cores take 8 minutes for the first one of a Res12, half of that with
`--precision bfloat16`, which is also what training validates with. Writes `results/fewshot.json` and the table in
`docs/fewshot.md`.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT)]

import torch  # noqa: E402
from torch import Tensor, nn  # noqa: E402

from benchmarks.markers import with_tables  # noqa: E402
from onesdaug.common.progress import shown  # noqa: E402
from onesdaug.common.provenance import commit, describe_machine  # noqa: E402
from onesdaug.data.registry import load_split  # noqa: E402
from onesdaug.encoders.checkpoint import load_checkpoint  # noqa: E402
from onesdaug.encoders.load import load_encoder  # noqa: E402
from onesdaug.fewshot.embed import embed  # noqa: E402
from onesdaug.fewshot.evaluate import Task, ViewUse, evaluate  # noqa: E402
from onesdaug.fewshot.heads import ProtoNet, load_head  # noqa: E402

RELEASED = ROOT / "artifacts" / "fewshot"
RESULTS = ROOT / "results" / "fewshot.json"
DOCS = ROOT / "docs" / "fewshot.md"
TABLE = "results/fewshot.json"  # its name in the document

# 1-shot, 5-shot: the paper's re-implementations (its tables of miniImageNet and CUB) and FEAT's own
PAPER: dict[str, tuple[float | None, float | None]] = {
    "mini-protonet-res12": (60.01, 75.34),
    "mini-feat-res12": (63.31, 77.90),
    "cub-protonet-convnet": (46.38, None),
    "cub-feat-convnet": (51.10, None),
}
FEAT: dict[str, tuple[float | None, float | None]] = {
    "mini-protonet-res12": (62.39, 80.53),
    "mini-feat-res12": (66.78, 82.05),
}
ORDER = (
    "mini-protonet-res12", "mini-feat-res12", "mini-protonet-convnet", "cub-protonet-convnet", "cub-feat-convnet",
    "mini-res12",
)  # fmt: skip


class Bfloat16(nn.Module):
    """The network in bfloat16, its features in float32."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast(x.device.type, torch.bfloat16):
            features: Tensor = self.module(x.contiguous(memory_format=torch.channels_last))
        return features.float()


def measure(
    folder: Path, split: str, cache: Path, episodes: int = 10_000, device: str = "cpu", precision: str = "float32"
) -> dict[str, Any]:
    """One checkpoint, both shots."""
    began = time.monotonic()
    _, card = load_checkpoint(folder)
    data = load_split(card["data"]["name"], split, cache=cache / "images")
    encoder = load_encoder(folder, device)
    if precision == "bfloat16":
        encoder.module, encoder.fingerprint = Bfloat16(encoder.module), f"{encoder.fingerprint}-bfloat16"
    head = load_head(folder) or ProtoNet("cosine")  # a pretrained backbone has none: nearest mean by cosine

    with shown():
        bank = embed(data, encoder, cache / f"{encoder.fingerprint}-{split}.safetensors", dtype=torch.float32)
    tasks = [Task(5, shot, 15, episodes, seed=0) for shot in (1, 5)]
    rows = {row.task.shot: row for row in evaluate(bank, head, tasks, [ViewUse()])}
    return {
        **{
            f"{shot}shot": {"accuracy": round(100 * r.accuracy.mean, 3), "ci95": round(100 * r.accuracy.ci95, 3)}
            for shot, r in rows.items()
        },
        "split": split,
        "way": 5,
        "queries_per_class": 15,
        "episodes": episodes,
        "seed": 0,
        "episode_fingerprints": {f"{shot}shot": r.episodes["fingerprint"] for shot, r in rows.items()},
        "head": card["head"] or {"name": "protonet", "settings": {"metric": "cosine"}},
        "precision": precision,
        "checkpoint": card["weights"],
        "data": {"name": card["data"]["name"], "fingerprint": data.fingerprint, "images": len(data)},
        "command": f"python benchmarks/fewshot_accuracy.py {folder.name} --precision {precision}",
        "commit": commit(),
        "machine": describe_machine(torch.device(device)),
        "seconds": round(time.monotonic() - began, 1),
    }


def table(results: Mapping[str, Mapping[str, Any]], cards: Mapping[str, Mapping[str, Any]]) -> str:
    """Markdown: validation and test beside what the paper and FEAT report."""
    head = "| checkpoint | validation 1 / 5 | test 1-shot | test 5-shot | paper 1 / 5 | FEAT 1 / 5 |"
    lines = [head, "|---|---|---|---|---|---|"]
    for name in (n for n in ORDER if n in results):
        found, full = results[name], cards[name]["validation"]["full"]
        tested = [f"{found[s]['accuracy']:.2f} ± {found[s]['ci95']:.2f}" for s in ("1shot", "5shot")]
        published = [_pair(source.get(name, (None, None))) for source in (PAPER, FEAT)]
        row = [f"`{name}`", _pair((full["1shot"], full["5shot"])), *tested, *published]
        lines.append("| " + " | ".join(row) + " |")
    return "\n".join(lines)


def _pair(values: tuple[float | None, float | None]) -> str:
    if values == (None, None):
        return "–"
    return " / ".join("–" if v is None else f"{v:.2f}" for v in values)


def read_cards() -> dict[str, dict[str, Any]]:
    return {p.parent.name: json.loads(p.read_text()) for p in sorted(RELEASED.glob("*/card.json"))}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="of checkpoints in artifacts/fewshot; none: all")
    parser.add_argument("--episodes", type=int, default=10_000)
    parser.add_argument("--cache", type=Path, default=ROOT / ".cache" / "fewshot")
    parser.add_argument("--precision", choices=["float32", "bfloat16"], default="float32")
    parser.add_argument("--output", type=Path, default=RESULTS)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    args = parser.parse_args()
    cards = read_cards()
    if unknown := set(args.names) - cards.keys():
        parser.error(f"no checkpoint {', '.join(sorted(unknown))}; there are {', '.join(cards)}")
    torch.backends.cudnn.allow_tf32 = False  # the same digits on every machine, as far as that goes
    results = json.loads(args.output.read_text()) if args.output.is_file() else {}
    results = {name: found for name, found in results.items() if name in cards}
    for name in args.names or [n for n in ORDER if n in cards]:
        results[name] = measure(RELEASED / name, "test", args.cache, args.episodes, args.device, args.precision)
        args.output.parent.mkdir(parents=True, exist_ok=True)
        args.output.write_text(json.dumps(results, indent=2, sort_keys=True) + "\n")
    text = table(results, cards)
    if args.output == RESULTS:
        DOCS.write_text(with_tables(DOCS.read_text(), {TABLE: f"\n{text}\n"}))
    print(text)


if __name__ == "__main__":
    main()
