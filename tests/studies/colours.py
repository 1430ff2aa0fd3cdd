"""A study of a model of one's own on photographs of one colour each, small enough to be run in a second."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import numpy as np
from PIL import Image

from onesdaug.studies.run import Outcome, run
from onesdaug.studies.settings import Settings

OBJECTS = ("red", "green", "blue")
MODEL = """
import json
from pathlib import Path
import numpy as np

SEEN = Path(__file__).with_suffix(".seen")

def ask(images, questions):
    with SEEN.open("a") as file:
        file.write(json.dumps([len(images), questions[0]]) + "\\n")
        if SEEN.with_suffix(".stop").exists() and SEEN.read_text().count("\\n") > 30:
            raise KeyboardInterrupt
    place = {"red": 0, "green": 1, "blue": 2}
    def margin(image, question):
        means = np.asarray(image).mean((0, 1)) / 10
        return float(means[place[question.split()[3]]] - 9)
    return [margin(i, q) for i, q in zip(images, questions)]

ask.fingerprint = "f00d"
"""
STUDY = """
kind = "pope"
title = "Colours"
about = "A model that knows colours."
model = "MODEL:ask"
questions = ["one.json", "two.json"]
images = "pope/images.zip"
calibrate = 4
counts = [1, 2]
pope = [{ method = "LLaVA", accuracy = 78.83, f1 = 77.41 }]

[[rows]]
id = "traditional"
label = "traditional edits"
views = "traditional"

[[rows]]
id = "shape"
label = "shape tweak, vlm"
views = "shape"

[[rows]]
id = "flip"
label = "mirrored"
views = "shape"
config = { shape = { rotate = 0.0, stretch = 0.0, translate = 0.0, perspective = 0.0 } }
to_choose = true

[[rows]]
id = "vlm"
label = "vlm"
views = "generated"

[[rows]]
id = "tuned-shape"
label = "shape tweak, tuned"
views = "tuned"
among = ["shape", "flip"]

[[claims]]
says = "Two views help."
row = "shape"
k = 2
split = "one"

[worse]
rows = ["traditional", "tuned-shape"]
k = 2

[worse.kinds]
dark = [0.5]
jpeg = [10]
"""


def colours(tmp_path: Path) -> Path:
    """Photographs of one colour each with some noise, two files of questions, a model and a study."""
    rng, folder = np.random.default_rng(0), tmp_path / "data" / "pope"
    folder.mkdir(parents=True)
    with zipfile.ZipFile(folder / "images.zip", "w") as archive:
        for number in range(9):
            pixels = rng.integers(0, 120, (24, 32, 3)) + 110 * (np.arange(3) == number % 3)
            Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(tmp_path / "x.png")
            archive.write(tmp_path / "x.png", f"p{number}.png")
    for name, objects in (("one", OBJECTS), ("two", OBJECTS[:2])):
        rows = [
            {"image": f"p{n}.png", "text": f"Is there a {o} in the image?", "label": "yes" if n % 3 == i else "no"}
            for n in range(10)  # there is no p9
            for i, o in enumerate(objects)
        ]
        lines = [json.dumps({"question_id": i, **row}) for i, row in enumerate(rows)]
        (folder / f"{name}.json").write_text("\n".join(lines))
    (tmp_path / "model.py").write_text(MODEL)
    (tmp_path / "pope-colours.toml").write_text(STUDY.replace("MODEL", str(tmp_path / "model.py")))
    return tmp_path


def ran(place: Path, **changes: object) -> Outcome:
    how = {"work": place / "work", "root": place / "data", "device": "cpu", "generators": ("no-such",), **changes}
    return run([str(place / "pope-colours.toml")], Settings(**how), place / "out", "onesdaug study run")  # type: ignore[arg-type]


def pictures(place: Path) -> int:
    """Looked at; the model is asked once for each question about a picture."""
    lines = [json.loads(line) for line in (place / "model.seen").read_text().splitlines()]
    return sum(count for count, question in lines if " red " in question)


def calls(place: Path) -> list[int]:
    """Pictures in each call of the model."""
    return [json.loads(line)[0] for line in (place / "model.seen").read_text().splitlines()]
