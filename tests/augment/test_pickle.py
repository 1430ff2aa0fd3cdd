"""Augmenters and what they are made of travel to other processes, and make the same views there."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from onesdaug import Augmenter
from onesdaug.augment.source import find_source
from onesdaug.encoders.load import load_encoder
from onesdaug.ensemble.traditional import CropFlip, Traditional
from onesdaug.ensemble.wrap import TestTimeEnsemble
from onesdaug.errors import ConfigError
from onesdaug.generators import speed
from onesdaug.generators.load import load_generator
from onesdaug.jobs.folder import ViewFolder
from tests.conftest import make_image
from tests.jobs.fake import make


@pytest.fixture(scope="module")
def pocket() -> Augmenter:
    return Augmenter.from_pretrained("pocket", device="cpu")


class Views(Dataset[torch.Tensor]):
    def __init__(self, augmenter: Augmenter) -> None:
        self.augmenter = augmenter

    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int) -> torch.Tensor:
        return self.augmenter.tensors(torch.full((1, 3, 24, 24), 0.2 + index / 2), k=1)[0, 0]


def test_an_augmenter_and_its_copies_make_the_same_views(pocket: Augmenter) -> None:
    batch = torch.rand(1, 3, 40, 30, generator=torch.Generator().manual_seed(0))
    wanted = pocket.tensors(batch, k=2)
    for other in (pickle.loads(pickle.dumps(pocket)), copy.deepcopy(pocket)):
        assert torch.equal(other.tensors(batch, k=2), wanted)
        assert (other.fingerprint, other.config, other.batch_size) == (pocket.fingerprint, pocket.config, 4)


def test_workers_that_are_spawned(pocket: Augmenter) -> None:
    loader = DataLoader(Views(pocket), batch_size=2, num_workers=1, multiprocessing_context="spawn")
    (made,) = loader
    torch.testing.assert_close(made, torch.stack([Views(pocket)[0], Views(pocket)[1]]))


def test_everything_else_that_is_handed_to_workers(tmp_path: Path) -> None:
    make_image(0).save(tmp_path / "a.png")
    make(tmp_path, tmp_path / "out")
    shape = Augmenter.from_pretrained("shape", device="cpu")
    things: list[Any] = [
        shape, CropFlip(), Traditional(), ViewFolder(tmp_path / "out"), load_encoder("convnet"),
        load_generator("pocket", device="cpu"), TestTimeEnsemble(torch.nn.Flatten(), shape, k=1),
    ]  # fmt: skip
    for thing in things:
        for other in (pickle.loads(pickle.dumps(thing)), copy.deepcopy(thing)):
            assert type(other) is type(thing)


def test_what_is_compiled_or_of_a_file_is_loaded_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speed, "BACKEND", "eager")
    made = load_generator("pocket", device="cpu", compile="regional", side=64)
    assert made is not None
    data = pickle.dumps(made)
    other = pickle.loads(data)
    assert len(data) < 1000 and (other.compiled, other.size) == ("regional", 64)
    assert other.fingerprint == made.fingerprint
    made.origin = None
    with pytest.raises(ConfigError, match="cannot be pickled"):
        pickle.dumps(made)
    file = tmp_path / "mine.py"
    file.write_text(
        "from onesdaug.generators.pocket import Pocket\n"
        "class Mine(Pocket):\n    pass\n"
        "def mine():\n    return Mine.from_pretrained('pocket', device='cpu')\n"
    )
    assert type(pickle.loads(pickle.dumps(load_generator(f"{file}:mine")))).__name__ == "Mine"


OWN = """
from dataclasses import dataclass
import torch
from onesdaug.augment.source import ViewSource

class Net(torch.nn.Module):
    dim = 12

    def forward(self, x):
        return torch.nn.functional.adaptive_avg_pool2d(x, 2).flatten(1)

@dataclass(frozen=True)
class Mirror(ViewSource):
    def tensors(self, batch, k, seeds):
        return batch.flip(-1)[:, None].expand(-1, k, -1, -1, -1)

def mirror(batch, k, seeds):
    return Mirror().tensors(batch, k, seeds)
"""


class Looked(Dataset[torch.Tensor]):
    def __init__(self, *things: Any) -> None:
        self.encoder, *self.sources = things

    def __len__(self) -> int:
        return len(self.sources)

    def __getitem__(self, index: int) -> torch.Tensor:
        view: torch.Tensor = self.sources[index].tensors(torch.linspace(0, 1, 192).reshape(1, 3, 8, 8), 1, [0])
        return self.encoder.embed(view[:, 0])[0]


def test_encoders_and_views_of_a_file_travel_to_spawned_workers(tmp_path: Path) -> None:
    file = tmp_path / "travelled.py"
    file.write_text(OWN)
    looked = Looked(load_encoder(f"{file}:Net"), *(find_source(f"{file}:{name}") for name in ("Mirror", "mirror")))
    loader = DataLoader(looked, batch_size=2, num_workers=1, multiprocessing_context="spawn")
    (found,) = loader
    assert torch.equal(found, torch.stack([looked[0], looked[1]]))
