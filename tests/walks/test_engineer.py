"""The engineer: a scikit-learn model and a folder of pictures → whether views help, and the code to keep."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.walks.walk import photographs, take

pytest.importorskip("sklearn")

FILES = {
    # the model that is there already: trained on plain pictures, stored, knows nothing of views
    "mymodel.py": """
import pickle
from pathlib import Path

import numpy as np
from PIL import Image
from sklearn.linear_model import LogisticRegression

PATHS = sorted(Path("photos").glob("*/*.png"))
LABELS = [path.parent.name for path in PATHS]


def features(picture):
    return np.asarray(picture.resize((8, 8)), dtype=float).ravel() / 255


if __name__ == "__main__":
    pictures = [Image.open(path).convert("RGB") for path in PATHS]
    model = LogisticRegression(max_iter=1000).fit([features(picture) for picture in pictures], LABELS)
    Path("model.pkl").write_bytes(pickle.dumps(model))
""",
    # the answer: the same model, cross-validated with and without views
    "does_it_help.py": """
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_score

from mymodel import LABELS, PATHS, features
from onesdaug import TestTimeEnsemble

for views, k in (("shape", 0), ("shape", 4), ("views", 2)):
    model = TestTimeEnsemble(LogisticRegression(max_iter=1000), views, k=k, preprocess=features)
    print(views, k, cross_val_score(model, PATHS, LABELS, cv=3).mean().round(3))
""",
    # the code: what goes into the service
    "answer.py": """
import pickle
import sys
from pathlib import Path

from mymodel import features
from onesdaug import TestTimeEnsemble

model = TestTimeEnsemble(pickle.loads(Path("model.pkl").read_bytes()), "shape", k=4, preprocess=features)
Path("service.pkl").write_bytes(pickle.dumps(model))
for path, label, p in zip(sys.argv[1:], model.predict(sys.argv[1:]), model.predict_proba(sys.argv[1:])):
    print(path, label, f"{p.max():.2f}")
""",
}

COMMANDS = """
python mymodel.py
onesdaug augment photos -o views --recursive --k 2 --model pocket --steps 2 --sheet
python does_it_help.py
python answer.py photos/cat/0.png photos/owl/1.png
"""


def test_engineer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    photographs(tmp_path / "photos", ("cat", "dog", "owl"), each=5)
    _, made, help_, answers = take(tmp_path, FILES, COMMANDS, monkeypatch, capsys)
    assert "30 views made" in made and (tmp_path / "views" / "sheet.png").is_file()
    assert len((tmp_path / "views" / "manifest.jsonl").read_text().splitlines()) == 30
    scores = {tuple(line.split()[:2]): float(line.split()[2]) for line in help_.splitlines()}
    assert set(scores) == {("shape", "0"), ("shape", "4"), ("views", "2")} and min(scores.values()) > 0.6
    assert [line.split()[1] for line in answers.splitlines()] == ["cat", "owl"]
    assert (tmp_path / "service.pkl").is_file()
