"""The researcher: a backbone, a head and a generator of one's own → a table as LaTeX."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.walks.walk import photographs, take

FILES = {
    "mine.py": """
import torch
from torch import nn
from torch.nn.functional import avg_pool2d, interpolate, normalize

from onesdaug import Generator


class Net(nn.Module):
    preprocess = {"resize": 32, "crop": 32, "mean": [0.5] * 3, "std": [0.25] * 3}

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(3, 8, 5, 4), nn.ReLU(), nn.Flatten())

    def forward(self, x):
        return self.layers(x)


def nearest(support, query):  # (E, N, S, d), (E, Q, d) -> (E, Q, N)
    similar = torch.einsum("eqd,ensd->eqns", normalize(query, dim=-1), normalize(support, dim=-1))
    return similar.amax(-1)


class Coarse(Generator):
    size = 32

    def encode(self, x):
        return avg_pool2d(2 * x - 1, 4)

    def decode(self, z):
        return interpolate(z, scale_factor=4, mode="bilinear").div(2).add(0.5).clamp(0, 1)

    def image_tokens(self, x):
        return self.encode(x).flatten(1)[:, None]

    def null_tokens(self, n):
        return torch.zeros(n, 1, 192, device=self.device)

    def predict(self, z, t, tokens, image_scale):
        abar = torch.as_tensor(self.schedule.abar, dtype=z.dtype, device=z.device)[t][:, None, None, None]
        clean = image_scale[:, None, None, None] * tokens.reshape(z.shape)
        return (z - abar.sqrt() * clean) / (1 - abar).sqrt()
""",
    "table.toml": """
kind = "fewshot"
title = "A generator that knows coarse colours"
data = ["pets"]
generators = ["mine.py:Coarse"]
uses = [[1, 1], [2, 2]]
shots = [1, 5]
reference = "crops"

[[classifiers]]
name = "Net, nearest image"
encoder = { pets = "mine.py:Net" }
head = "mine.py:nearest"

[[rows]]
id = "crops"
label = "crop + flip"
views = "crop-flip"

[[rows]]
id = "coarse"
label = "coarse colours"
views = "generated"
config = { steps = 4, noise_level = 0.5 }
""",
}

COMMANDS = """
onesdaug augment pets/test -o look --recursive --model mine.py:Coarse --k 1 --steps 4 --sheet
onesdaug fewshot embed pets/test -o coarse.safetensors --encoder mine.py:Net --views mine.py:Coarse --k 2
onesdaug fewshot embed pets/test -o crops.safetensors --encoder mine.py:Net --views crop-flip --k 2
onesdaug fewshot evaluate coarse.safetensors --baseline crops.safetensors --head mine.py:nearest --shot 1 --episodes 50
onesdaug study run table.toml -o study --root . --episodes 50
onesdaug report study -o study/report.html --latex table.tex
"""


def test_researcher(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    photographs(tmp_path / "pets" / "test", ("ant", "bee", "cat", "dog", "owl"), each=20)
    *_, compared, told, _ = take(tmp_path, FILES, COMMANDS, monkeypatch, capsys)
    assert "mine.py:nearest" in compared and "crops.safetensors" in compared
    assert "to crop + flip, points" in told
    table = (tmp_path / "table.tex").read_text()
    assert table.count(r"\begin{tabular}") == 3  # at a glance, 1-shot and 5-shot
    assert "coarse colours" in table and r"\toprule" in table
    page = (tmp_path / "study" / "report.html").read_text()
    assert "<h1>A generator that knows coarse colours" in page and "Gain over the number of views" in page
