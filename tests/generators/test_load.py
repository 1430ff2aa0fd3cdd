"""From a name to a generator: one's own as class, instance or factory, and what is said about one that will not do."""

from __future__ import annotations

import logging
import re
import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
import torch

from onesdaug import Augmenter, Generator, TestTimeEnsemble
from onesdaug.common.registry import GENERATORS
from onesdaug.errors import ConfigError, WeightsMissing
from onesdaug.generators.load import default_preset, find_generator, load_generator
from onesdaug.generators.pocket import Pocket

OWN = """
import torch
from onesdaug import Generator

class Grey(Generator):
    size, default_preset = 16, "paper-fast"
    def __init__(self): self.shift = torch.nn.Linear(1, 1)
    def encode(self, x): return 2 * x - 1
    def decode(self, z): return (z / 2 + 0.5).clamp(0, 1)
    def image_tokens(self, x): return x.mean((2, 3))[:, None]
    def null_tokens(self, n): return torch.zeros(n, 1, 3, device=self.device)
    def predict(self, z, t, tokens, image_scale): return z

class Unfinished(Generator):
    def encode(self, x): return x

made = Grey()
def make(): return Grey()
def wrong(): return 3
number = 3
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "own_generators.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    return tmp_path / "own_generators.py"


@pytest.mark.parametrize("name", ["Grey", "made", "make"])
def test_a_class_an_instance_or_a_factory(own: Path, name: str) -> None:
    generator = load_generator(f"{own}:{name}", device="cpu")
    assert isinstance(generator, Generator) and generator.size == 16 and generator.device.type == "cpu"
    assert re.search(r"own_generators\.Grey-[0-9a-f]{8}$", generator.identity)  # the digits change with the file
    assert default_preset(f"{own}:{name}") == ("paper" if name == "make" else "paper-fast")
    aug = Augmenter.from_pretrained(f"own_generators:{name}", device="cpu", preset="paper-fast")
    x = torch.rand(2, 3, 20, 24)
    assert aug.tensors(x, k=2).shape == (2, 2, 3, 20, 24)
    # as a source of views a function is f(batch, k, seeds), so a factory cannot be named there
    views = aug if name == "make" else f"own_generators:{name}"
    wrapped = TestTimeEnsemble(lambda batch: batch.mean((2, 3)), views, k=1)
    assert wrapped(x).shape == (2, 3)


def test_what_will_not_do_is_named(own: Path) -> None:
    for name, words in (
        ("wrong", r"gives int; want a subclass of onesdaug\.Generator"),
        ("number", r"gives int; want a subclass of onesdaug\.Generator"),
        ("nothing", "cannot be loaded: AttributeError"),
    ):
        with pytest.raises(ConfigError, match=words):
            load_generator(f"{own}:{name}")
    with pytest.raises(ConfigError, match="Unfinished lacks decode, image_tokens, null_tokens, predict"):
        load_generator(f"{own}:Unfinished")
    with pytest.raises(ConfigError, match=r"takes no side, decoder; leave that out \(its own options: none\)"):
        load_generator(f"{own}:Grey", side=8, decoder="x")
    with pytest.raises(ConfigError, match="Grey cannot be compiled with 'regional'"):
        load_generator(f"{own}:make", device="cpu", compile="regional")
    with pytest.raises(ConfigError, match=r"is no onesdaug\.Generator"):
        Augmenter(object())  # type: ignore[arg-type]


def test_names_that_are_not_known() -> None:
    with pytest.raises(
        ConfigError, match=r"there is no generator 'pokcet': did you mean 'pocket'\?; known are pocket, sd15"
    ):
        find_generator("pokcet")
    with pytest.raises(WeightsMissing, match=r"the folder \./nowhere does not exist"):
        find_generator("./nowhere")
    with pytest.raises(ConfigError, match="no network to compile"):
        load_generator("shape", compile="max", device="cpu")


def test_a_broken_plug_in_harms_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "card.json").write_text('{"kind": "pocket"}')
    broken = EntryPoint("broken", "no_such_module:Thing", GENERATORS.group)
    monkeypatch.setattr(GENERATORS, "_installed", {"broken": [broken]})
    with caplog.at_level(logging.WARNING, "onesdaug"):
        assert find_generator(tmp_path) is Pocket
    assert "generator 'broken' of the package ? (no_such_module:Thing) cannot be loaded" in caplog.text


def test_a_generator_is_loaded_without_torchs_compiler() -> None:
    """A second of every start."""
    code = "import sys; from onesdaug import Augmenter; Augmenter.from_pretrained('pocket', device='cpu'); "
    code += "print([name for name in sys.modules if name.startswith('torch._dynamo')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
