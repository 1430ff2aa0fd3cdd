"""Training on synthetic classes: it learns, resumes exactly, and repeats itself."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from onesdaug.data.dataset import Dataset
from onesdaug.encoders.checkpoint import load_checkpoint
from onesdaug.encoders.load import load_encoder
from onesdaug.errors import ConfigError, DataError
from onesdaug.fewshot.heads import load_head
from onesdaug.fewshot.meta import MetaTraining, meta_train
from onesdaug.fewshot.pretrain import Pretraining, pretrain
from onesdaug.fewshot.recipes import PAPER_FEAT, PAPER_PROTONET, MetaConfig, PretrainConfig
from onesdaug.training.loop import OutOfTime
from onesdaug.training.stage import Stage, mix

PRETRAIN = PretrainConfig(
    backbone="convnet", epochs=3, batch=12, lr=0.05, eval_every=2, num_eval_episodes=20, eval_query=3, rotate=0.25,
    ema=0.9, eval_shots=(1,), warmup_epochs=1,
)  # fmt: skip
META = MetaConfig(
    head="feat", way=3, query=2, max_epoch=2, episodes_per_epoch=4, tasks=2, num_eval_episodes=20, eval_way=3,
    eval_query=3, eval_shots=(1,), lr=1e-3, shot=(1, 2), scheduler="cosine", ema=0.5,
)  # fmt: skip


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """Steps this small only wait for each other on more threads; on a busy machine, for long."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def synthetic(n_classes: int, per_class: int, seed: int) -> Dataset:
    """Each class is a colour and a stripe width: easy, but not without a network that looks."""
    rng = np.random.default_rng(seed)
    images, labels = [], []
    for c in range(n_classes):
        colour, width = rng.integers(60, 255, 3), 3 + 2 * (c % 4)
        stripes = ((np.arange(84) // width) % 2)[:, None, None] * colour
        for _ in range(per_class):
            noise = rng.integers(-30, 30, (84, 84, 3))
            images.append(np.clip(np.broadcast_to(stripes, (84, 84, 3)) + noise, 0, 255).astype(np.uint8))
            labels.append(c)
    names = tuple(f"c{i}" for i in range(n_classes))
    ids = tuple(f"c{c}/{i}" for i, c in enumerate(labels))
    return Dataset(np.stack(images), np.asarray(labels, np.int64), names, ids, f"synthetic-{seed}")


@pytest.fixture(scope="module")
def data() -> tuple[Dataset, Dataset]:
    return synthetic(4, 6, 0), synthetic(5, 4, 1)


@pytest.fixture(scope="module")
def pretrained(data: tuple[Dataset, Dataset], tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("training") / "base"
    pretrain(PRETRAIN, *data, out, data_name="synthetic")
    return out


def tensors(folder: Path) -> dict[str, torch.Tensor]:
    return load_checkpoint(folder)[0]


def same(a: Path, b: Path) -> bool:
    one, two = tensors(a), tensors(b)
    return one.keys() == two.keys() and all(torch.equal(one[k], two[k]) for k in one)


def test_a_checkpoint_says_how_it_was_made(pretrained: Path) -> None:
    _, card = load_checkpoint(pretrained)
    assert [h["step"] for h in card["history"]] == [4, 6]
    assert card["validation"]["score"] > 25  # chance is 20
    assert card["data"]["train"] == {"fingerprint": "synthetic-0", "classes": 4, "images": 24}
    assert card["arguments"]["epochs"] == 3
    assert card["preprocess"]["resize"] in (84, 92)
    assert {"commit", "seconds", "machine", "weights"} <= card.keys()
    assert load_encoder(pretrained).dim == 64
    assert load_head(pretrained) is None


def test_same_seed_same_result_another_seed_another(
    data: tuple[Dataset, Dataset], pretrained: Path, tmp_path: Path
) -> None:
    torch.manual_seed(99)  # whatever the caller's stream holds
    pretrain(PRETRAIN, *data, tmp_path / "again")
    assert same(pretrained, tmp_path / "again")
    pretrain(replace(PRETRAIN, seed=1), *data, tmp_path / "other")
    assert not same(pretrained, tmp_path / "other")


def test_resumed_pretraining_equals_the_uninterrupted(
    data: tuple[Dataset, Dataset], pretrained: Path, tmp_path: Path
) -> None:
    stops = 0
    ended = pretrain(PRETRAIN, *data, tmp_path / "ended", deadline=0.0, cut=True)
    assert ended["cut"] == {"step": 1, "of": 6} and load_encoder(tmp_path / "ended").dim == 64
    while True:
        try:
            pretrain(PRETRAIN, *data, tmp_path / "cut", data_name="synthetic", deadline=0.0)  # a step
            break
        except OutOfTime:
            stops += 1
            assert not (tmp_path / "cut").exists()
    assert stops == 5
    assert same(pretrained, tmp_path / "cut")
    with pytest.raises(DataError, match="other settings"):
        pretrain(replace(PRETRAIN, lr=0.01), *data, tmp_path / "cut")


def test_a_kill_in_the_middle_of_a_step_costs_nothing_but_that_step(
    data: tuple[Dataset, Dataset],
    pretrained: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    whole = Pretraining.loss
    seen: list[int] = []

    def killed(self: Pretraining, step: int) -> torch.Tensor:
        seen.append(step)
        if step == 3:
            raise KeyboardInterrupt
        return whole(self, step)

    with monkeypatch.context() as patch:
        patch.setattr(Pretraining, "loss", killed)
        with pytest.raises(KeyboardInterrupt):
            pretrain(PRETRAIN, *data, tmp_path / "cut", data_name="synthetic", save_seconds=0)
    with caplog.at_level("INFO", "onesdaug"):
        pretrain(PRETRAIN, *data, tmp_path / "cut", data_name="synthetic")
    assert seen == [0, 1, 2, 3] and "at step 3 of 6" in caplog.messages[0]
    assert same(pretrained, tmp_path / "cut")


def test_meta_training_resumes_repeats_and_keeps_its_head(
    data: tuple[Dataset, Dataset], pretrained: Path, tmp_path: Path
) -> None:
    card = meta_train(META, pretrained, *data, tmp_path / "whole")
    with pytest.raises(OutOfTime):
        meta_train(META, pretrained, *data, tmp_path / "cut", deadline=time.monotonic() - 1)
    meta_train(META, pretrained, *data, tmp_path / "cut")
    assert same(tmp_path / "whole", tmp_path / "cut")
    assert card["head"]["name"] == "feat"
    assert card["init"] == load_checkpoint(pretrained)[1]["weights"]
    head = load_head(tmp_path / "whole")
    assert head is not None
    settings = card["head"]["settings"]
    assert head.temperature == settings["temperature"] == settings["temperature2"]
    assert head(torch.rand(2, 3, 1, 64), torch.rand(2, 6, 64)).shape == (2, 6, 3)


def test_fixed_statistics_stay_fixed(data: tuple[Dataset, Dataset], pretrained: Path, tmp_path: Path) -> None:
    meta_train(replace(META, head="protonet", max_epoch=1), pretrained, *data, tmp_path / "meta")
    before, after = tensors(pretrained), tensors(tmp_path / "meta")
    for name in before:
        if "running" in name:
            assert torch.allclose(before[name], after[name]), name
    with pytest.raises(ConfigError, match="from scratch"):
        meta_train(META, "convnet", *data, tmp_path / "scratch")


def test_an_untrained_network_learns_episodes(data: tuple[Dataset, Dataset]) -> None:
    config = replace(META, head="protonet", fix_bn=False, temperature=8.0, shot=(1,), jitter=0.0)
    stage = MetaTraining(config, "convnet", *data, torch.device("cpu"))
    assert learns(stage, torch.optim.Adam(stage.model.parameters(), lr=3e-3))


def test_an_untrained_network_learns_classes(data: tuple[Dataset, Dataset]) -> None:
    config = replace(PRETRAIN, rotate=0.0, jitter=0.0, lr=0.1, epochs=10)
    stage = Pretraining(config, *data, torch.device("cpu"))
    assert learns(stage, stage.optimizer())


def learns(stage: Stage, optimizer: torch.optim.Optimizer) -> bool:
    losses = []
    for step in range(10):
        optimizer.zero_grad()
        loss = stage.loss(step)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        losses.append(float(loss.detach()))
    return bool(np.mean(losses[-3:]) < 0.8 * np.mean(losses[:3]))


def test_a_budget_chooses_epochs_once(data: tuple[Dataset, Dataset], tmp_path: Path) -> None:
    config = replace(PRETRAIN, batch=24)
    card = pretrain(config, *data, tmp_path / "timed", seconds=0.5)
    again = pretrain(config, *data, tmp_path / "timed", seconds=60.0)
    assert card["arguments"]["epochs"] == again["arguments"]["epochs"]


def test_the_papers_arguments_are_the_defaults() -> None:
    p, f = PAPER_PROTONET, PAPER_FEAT
    assert (p.way, p.shot, p.query, p.max_epoch, p.episodes_per_epoch, p.num_eval_episodes) == (
        5,
        (1,),
        15,
        400,
        100,
        200,
    )
    assert (p.lr, p.scheduler, p.step_size, p.gamma) == (1e-4, "step", 20, 0.2)
    assert (p.momentum, p.weight_decay, p.temperature, p.use_euclidean) == (0.9, 5e-4, 1.0, True)
    assert (f.lr, f.lr_mul, f.step_size, f.gamma, f.temperature, f.temperature2) == (2e-4, 10, 40, 0.5, 64.0, 64.0)


def test_schedules_and_seeds() -> None:
    step = replace(PAPER_FEAT, warmup_epochs=0)
    assert [step.lr_scale(e * 100, 100, 40_000) for e in (0, 39, 40, 80)] == [1, 1, 0.5, 0.25]
    cosine = replace(PRETRAIN, warmup_epochs=2)
    assert cosine.lr_scale(0, 10, 100) < cosine.lr_scale(19, 10, 100) <= cosine.lr_scale(20, 10, 100) == 1
    assert cosine.lr_scale(99, 10, 100) < 0.01
    assert len({mix(s, a, b) for s in range(3) for a in range(3) for b in range(3)}) == 27
