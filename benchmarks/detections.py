"""The detector of `examples/detector.py` as the study `benchmarks/plans/pope-detector.toml` asks it: many at once.

    export DETECTOR=yolov8m.onnx          run by onnxruntime on the CPU, as in the example
    export DETECTOR=FOLDER                made of it by `onnx_torch.py convert`: run by torch, on a GPU if there is one

A picture is looked at once, whatever is asked about it; the study keeps what was said. The margin is the log-odds of
the best score: the study sets the threshold.
"""

from __future__ import annotations

import hashlib
import os
from collections import OrderedDict
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from onesdaug.common.registry import load_object

if TYPE_CHECKING:
    from PIL import Image

HERE = Path(__file__).resolve().parent
EXAMPLE = HERE.parent / "examples" / "detector.py"
named, log_odds, best_scores = (load_object(f"{EXAMPLE}:{name}") for name in ("named", "_log_odds", "best_scores"))
SIDE: int = load_object(f"{EXAMPLE}:SIDE")
_seen: OrderedDict[str, np.ndarray] = OrderedDict()
_last: list[tuple[Image.Image, str]] = []
KEPT = 256  # pictures: those of a photograph are asked about one after the other

if not os.environ.get("DETECTOR"):
    raise RuntimeError(
        "set DETECTOR to yolov8m.onnx, or to a folder of benchmarks/onnx_torch.py (examples/detector.py)"
    )


def ask(images: list[Image.Image], questions: list[str]) -> list[float]:
    """A margin for each pair: the log-odds of the detector's best score for what the question names."""
    keys = _keys(images)
    new = {key: image for key, image in zip(keys, images, strict=True) if key not in _seen}
    if new:
        _seen.update(zip(new, _scores(list(new.values())), strict=True))
    said = [log_odds(float(_seen[key][named(text)])) for key, text in zip(keys, questions, strict=True)]
    while len(_seen) > KEPT:
        _seen.popitem(last=False)
    return said


def _keys(images: list[Image.Image]) -> list[str]:
    """By content; the same pictures are asked about many times in a row, and told then by being the same objects."""
    if len(_last) != len(images) or any(one is not two for (one, _), two in zip(_last, images, strict=True)):
        _last[:] = [
            (image, hashlib.blake2b(np.asarray(image).tobytes(), digest_size=16).hexdigest()) for image in images
        ]
    return [key for _, key in _last]


def _scores(images: list[Image.Image]) -> list[np.ndarray]:
    """(80,) for each picture: the best score of every object."""
    if Path(os.environ["DETECTOR"]).is_file():
        return [best_scores(image) for image in images]
    import torch

    graph = _graph()
    batch = torch.cat([_enlarged(torch.from_numpy(np.array(image)).to(graph.device)) for image in images])
    return list(graph(batch)[:, 4:].amax(-1).cpu().numpy())


def _enlarged(pixels: Any) -> Any:
    """As Pillow resizes, on the device (on the host it takes longer than looking): across, then down, whole values."""
    from torch.nn.functional import interpolate

    image = pixels.permute(2, 0, 1)[None].float()
    for size in ((len(pixels), SIDE), (SIDE, SIDE)):
        image = interpolate(image, size, mode="bicubic", antialias=True).round().clamp(0, 255)
    return image / 255


@cache
def _graph() -> Any:
    import torch

    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False  # as the CPU computes
    graph = load_object(f"{HERE / 'onnx_torch.py'}:Graph")
    return graph(Path(os.environ["DETECTOR"]), "cuda" if torch.cuda.is_available() else "cpu")


def _fingerprint(path: Path) -> str:
    digest = hashlib.blake2b(digest_size=8)
    for file in sorted(path.iterdir()) if path.is_dir() else [path]:
        digest.update(file.read_bytes())
    return digest.hexdigest()


# what is said is stored under it
ask.fingerprint = _fingerprint(Path(os.environ["DETECTOR"]))  # type: ignore[attr-defined]
