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
KEPT = 256  # pictures: those of a photograph are asked about in one call, or one after the other
BATCH = 32  # pictures that the graph looks at together

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
    """By content; a picture stands there once for each question about it, and is hashed once."""
    each = {id(image): image for image in images}
    marks = {
        number: hashlib.blake2b(str(image.size).encode() + image.tobytes(), digest_size=16).hexdigest()
        for number, image in each.items()
    }
    return [marks[id(image)] for image in images]


def _scores(images: list[Image.Image]) -> list[np.ndarray]:
    """(80,) for each picture: the best score of every object."""
    if Path(os.environ["DETECTOR"]).is_file():
        return [best_scores(image) for image in images]
    import torch

    graph = _graph()
    sizes: dict[tuple[int, int], list[int]] = {}
    for place, image in enumerate(images):
        sizes.setdefault(image.size, []).append(place)
    batches = [same[at : at + BATCH] for same in sizes.values() for at in range(0, len(same), BATCH)]
    found: dict[int, Any] = {}
    for batch in batches:
        pixels = torch.from_numpy(np.stack([np.asarray(images[place]) for place in batch])).to(graph.device)
        # not brought to the host yet: the next ones are prepared meanwhile
        found |= zip(batch, graph(_enlarged(pixels))[:, 4:].amax(-1), strict=True)
    return list(torch.stack([found[place] for place in range(len(images))]).cpu().numpy())


def _enlarged(pixels: Any) -> Any:
    """(B, H, W, 3) as Pillow resizes, on the device (the host would take longer): across, then down, whole values."""
    from torch.nn.functional import interpolate

    image = pixels.permute(0, 3, 1, 2).float().contiguous()
    for size in ((pixels.shape[1], SIDE), (SIDE, SIDE)):
        image = interpolate(image, size, mode="bicubic", antialias=True).round().clamp(0, 255)
    return image / 255


@cache
def _graph() -> Any:
    import torch

    graph = load_object(f"{HERE / 'onnx_torch.py'}:Graph")
    return graph(Path(os.environ["DETECTOR"]), "cuda" if torch.cuda.is_available() else "cpu")


def _draw_as_the_cpu() -> None:
    """Views that are drawn on this GPU: whether or not something was asked before, in float32 and not in TF32."""
    if Path(os.environ["DETECTOR"]).is_dir():
        import torch

        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False


def _fingerprint(path: Path) -> str:
    digest = hashlib.blake2b(digest_size=8)
    for file in sorted(path.iterdir()) if path.is_dir() else [path]:
        digest.update(file.read_bytes())
    return digest.hexdigest()


# what is said is stored under both: of the weights, and of this file as it was when it first said the same
ask.fingerprint = _fingerprint(Path(os.environ["DETECTOR"]))  # type: ignore[attr-defined]
ask.code = "48186ac1"  # type: ignore[attr-defined]
_draw_as_the_cpu()
