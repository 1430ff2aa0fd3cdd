"""Count the operations of one view with Stable Diffusion 1.5's shapes: python benchmarks/operations.py

On the meta device, which has shapes and no numbers: half a minute, no memory, the same count everywhere. Writes
benchmarks/results/operations.json, from which benchmarks/speed_report.py makes the table of docs/speed.md.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch

from onesdaug.augment.config import preset
from onesdaug.augment.operator import Augmenter
from onesdaug.bench.measure import flops
from onesdaug.bench.random_sd import random_sd
from onesdaug.bench.run import rounded
from onesdaug.common.provenance import commit

FILE = Path(__file__).resolve().parent / "results" / "operations.json"
# label → settings of the operator, and how the generator is loaded
CHOICES: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("preset `paper` at noise level 0.75", {"name": "paper", "noise_level": 0.75}, {}),
    ("`paper-fast`", {"name": "paper-fast"}, {}),
    ("`paper-cheap`: fewer steps, guidance only where t/T ≥ 0.3", {"name": "paper-cheap"}, {}),
    ("`paper-fast --side 384`", {"name": "paper-fast"}, {"side": 384}),
    ("`paper-fast --side 256`", {"name": "paper-fast"}, {"side": 256}),
    ("`paper-fast --decoder FOLDER` (AutoencoderTiny, TAESD)", {"name": "paper-fast"}, {"tiny_decoder": True}),
    ("`paper-cheap --side 384`", {"name": "paper-cheap"}, {"side": 384}),
    ("`paper-cheap --side 384 --decoder FOLDER`", {"name": "paper-cheap"}, {"side": 384, "tiny_decoder": True}),
]


def count(settings: dict[str, Any], loading: dict[str, Any]) -> dict[str, Any]:
    """Operations of one view by stage, and the steps that are run."""
    meta = torch.device("meta")
    generator = random_sd("sd15", meta, torch.bfloat16, **loading)
    assert generator.adapter is not None
    generator.adapter.on_device = True  # there is no picture for the host to resize
    augmenter = Augmenter(generator, preset(**settings), batch_size=1, device=meta)
    assert augmenter.table is not None
    return {
        "steps_run": len(augmenter.table),
        "network_rows": len(augmenter.table) + sum(augmenter.stages.guided),
        "by_stage": flops(augmenter),
    }


if __name__ == "__main__":
    views = [{"what": what, **count(settings, loading)} for what, settings, loading in CHOICES]
    record = {"command": "python benchmarks/operations.py", "commit": commit(), "torch": torch.__version__}
    FILE.write_text(json.dumps(rounded({**record, "views": views}), indent=1) + "\n")
