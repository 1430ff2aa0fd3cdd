"""What a view costs on this machine: warm with K = 4, and cold from the shell to the first view.

    python benchmarks/pocket_speed.py

Medians of several runs, on a photograph of scikit-image at its own size. Writes
`benchmarks/results/pocket-speed.json`; `benchmarks/pocket_report.py` puts it into docs/generators.md.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "src"))

import torch  # noqa: E402
from PIL import Image  # noqa: E402

from onesdaug import Augmenter  # noqa: E402
from onesdaug.common.provenance import commit, describe_machine  # noqa: E402
from onesdaug.generators.load import has_weights  # noqa: E402

OUT = ROOT / "benchmarks" / "results" / "pocket-speed.json"
SETTINGS = (
    ("pocket", "pocket-accuracy"), ("pocket", "pocket-faithful"),
    ("pocket-imagenet", "pocket-faithful"), ("pocket-imagenet", "pocket-imagenet-accuracy"),
    ("photo", "photo"), ("photo", "photo-accuracy"), ("photo-128", "photo-accuracy"),
)  # fmt: skip


def warm(model: str, preset: str, photo: Image.Image, runs: int = 5) -> dict[str, object]:
    augmenter = Augmenter.from_pretrained(model, preset=preset, device="cpu")
    augmenter(photo, k=4)
    spent = []
    for seed in range(1, runs + 1):
        began = time.perf_counter()
        augmenter(photo, k=4, seed=seed)
        spent.append((time.perf_counter() - began) / 4)
    seconds = round(statistics.median(spent), 3)
    return {"model": model, "preset": preset, "what": augmenter.summary(), "seconds_per_view": seconds}


def cold(photo: Image.Image, runs: int = 3) -> float:
    """A new process: import, load, one view on disk."""
    spent = []
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "photo.png"
        photo.save(file)
        for number in range(runs):
            command = [sys.executable, "-m", "onesdaug", "augment", str(file), "-o", f"{folder}/{number}", "--k", "1"]
            command += ["--preset", "pocket-accuracy"]
            began = time.perf_counter()
            subprocess.run(
                command, check=True, capture_output=True, env={**os.environ, "PYTHONPATH": str(ROOT / "src")}
            )
            spent.append(time.perf_counter() - began)
    return round(statistics.median(spent), 2)


def main() -> None:
    from skimage import data

    photo = Image.fromarray(data.astronaut())
    began = time.perf_counter()
    Augmenter.from_pretrained("pocket", device="cpu")
    load = round(time.perf_counter() - began, 3)
    result = {
        "command": "python benchmarks/pocket_speed.py",
        "commit": commit(),
        "machine": {**describe_machine(torch.device("cpu")), "threads": torch.get_num_threads()},
        "photo": "skimage.data.astronaut, 512 x 512",
        "load_seconds": load,
        "cold_seconds": cold(photo),
        "warm": [warm(model, preset, photo) for model, preset in SETTINGS if has_weights(model)],
    }
    OUT.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
