"""A generator that was written is where its training goes on from, on another machine."""

from __future__ import annotations

from pathlib import Path

import torch

from benchmarks.photo_carry import stages_of
from onesdaug.data.dataset import Dataset
from onesdaug.encoders.checkpoint import load_checkpoint
from tests.generators.photos import train


def test_training_goes_on_from_what_was_written(
    glance: None, pictures: list[tuple[str, Dataset]], tmp_path: Path
) -> None:
    made = train(pictures, tmp_path / "first", until="guidance")
    made.write(tmp_path / "released", "pictures", int8=True)
    stages_of(tmp_path / "released", tmp_path / "next.state")
    held, last = load_checkpoint(tmp_path / "next.state" / "denoiser-1")[0], made.denoiser.state_dict()
    assert held.keys() == last.keys()  # what guidance made of it, in bytes
    assert all(torch.allclose(held[name], last[name], atol=2e-3) for name in held)
    run = train(pictures, tmp_path / "next", until="denoiser-2")
    assert set(run.stages) == {"autoencoder", "decoder", "denoiser-1", "denoiser-2"}
    assert set(run.stages["denoiser-1"]["then"]) == {"polish", "guidance"}
    drawn, before = run.autoencoder.state_dict(), made.autoencoder.state_dict()
    assert all(torch.equal(drawn[name], before[name]) for name in before)
    card = run.write(tmp_path / "again", "pictures")  # all the time it took, what was polished before included
    stages = [*made.stages.values(), run.stages["denoiser-2"]]
    assert abs(card["seconds"] - sum(stage["seconds"] for stage in stages)) < 0.11
