"""Embedding and POPE's views by workers: the same banks and the same views as here."""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from onesdaug.data.dataset import Dataset
from onesdaug.data.registry import load_data
from onesdaug.encoders.load import load_encoder
from onesdaug.errors import OnesdaugError
from onesdaug.fewshot.embed import ELSEWHERE, embed, spending
from onesdaug.fewshot.views import resolve_views
from onesdaug.jobs.plan import list_inputs
from onesdaug.jobs.survey import JobSettings
from onesdaug.scale import batch
from onesdaug.scale.spread import in_process
from tests.conftest import make_image
from tests.jobs.fake import contents
from tests.scale.test_batch import Here


def cross(make: Callable[[], Any], units: Sequence[Any]) -> Iterator[tuple[Any, Any]]:
    """One worker behind a wall of bytes."""
    yield from Here().run(make, units)


@contextmanager
def elsewhere(spreading: Any) -> Iterator[None]:
    before = ELSEWHERE.set(spreading)
    try:
        yield
    finally:
        ELSEWHERE.reset(before)


@pytest.fixture
def pets(tmp_path: Path) -> Dataset:
    for number in range(12):
        folder = tmp_path / "pets" / "ab"[number % 2]
        folder.mkdir(parents=True, exist_ok=True)
        make_image(number, (120, 100)).save(folder / f"{number}.png")
    return load_data(str(tmp_path / "pets"), None, None, "test")


@pytest.mark.parametrize("encoder", ["convnet", "whole"])
def test_a_bank_made_elsewhere_is_the_same(pets: Dataset, tmp_path: Path, encoder: str) -> None:
    name = "convnet"
    if encoder == "whole":  # an encoder that looks at the files' own pixels
        name = f"{tmp_path / 'own.py'}:means"
        code = "def means(pictures):\n    return np.stack([np.asarray(p).mean((0, 1)) for p in pictures])\n"
        (tmp_path / "own.py").write_text(f"import numpy as np\n{code}")
    views = resolve_views("shape", None, "cpu")
    here = embed(pets, load_encoder(name), tmp_path / "here.safetensors", views, 2, chunk=5)
    with elsewhere(cross):
        there = embed(pets, load_encoder(name), tmp_path / "there.safetensors", views, 2, chunk=5)
    torch.testing.assert_close(there.features, here.features, rtol=0, atol=0)
    assert there.info == here.info


def test_what_a_killed_run_left_is_not_embedded_again(pets: Dataset, tmp_path: Path) -> None:
    encoder, out, sent = load_encoder("convnet"), tmp_path / "bank.safetensors", []

    def dying(make: Callable[[], Any], units: Sequence[Any]) -> Iterator[tuple[Any, Any]]:
        for number, found in enumerate(cross(make, units)):
            if number == 2:
                raise KeyboardInterrupt
            yield found

    def counting(make: Callable[[], Any], units: Sequence[Any]) -> Iterator[tuple[Any, Any]]:
        sent.extend(units)
        return cross(make, units)

    with elsewhere(dying), pytest.raises(KeyboardInterrupt):
        embed(pets, encoder, out, chunk=4)
    with elsewhere(counting):
        bank = embed(pets, encoder, out, chunk=4)
    assert len(sent) == 1
    here = embed(pets, encoder, tmp_path / "here.safetensors", chunk=4)
    np.testing.assert_array_equal(bank.features.numpy(), here.features.numpy())


def test_workers_that_die_each_time_are_told(pets: Dataset, tmp_path: Path) -> None:
    with (
        elsewhere(lambda make, units: ((unit, None) for unit in units)),
        pytest.raises(OnesdaugError, match="the workers that embed a/0 to"),
    ):
        embed(pets, load_encoder("convnet"), tmp_path / "bank.safetensors")


def test_the_time_of_others_is_told_without_waiting_for_them(pets: Dataset, tmp_path: Path) -> None:
    def slowly(make: Any, units: Any) -> Any:
        time.sleep(0.1)  # workers that start
        return in_process(make, units)

    for name, spread in (("there", slowly), ("here", None)):
        began = time.perf_counter()
        with elsewhere(spread) if spread else nullcontext(), spending() as spent:
            embed(pets, load_encoder("convnet"), tmp_path / f"{name}.safetensors", chunk=4)
        idle = time.perf_counter() - began - sum(spent)
        assert len(spent) == 3 and all(seconds > 0 for seconds in spent) and idle > (0.1 if spread else 0)


def test_views_of_pope_are_drawn_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the command's own loader, pickled as for a worker."""
    from onesdaug.augment.config import preset
    from onesdaug.cli.pope import _drawn_on_ray
    from onesdaug.jobs.job import run_job
    from onesdaug.scale.start import RayOptions
    from onesdaug.vlm.run import Job

    monkeypatch.setattr(batch, "Spread", Here)
    monkeypatch.setattr(batch, "connected", lambda _: nullcontext())
    (tmp_path / "in").mkdir()
    for number in range(3):
        make_image(number).save(tmp_path / "in" / f"{number}.png")
    listing, config = list_inputs([tmp_path / "in"], tmp_path / "there"), preset("paper")
    job = Job(None, tmp_path, tmp_path, {}, lambda: None, generator="shape", config=config, device="cpu")  # type: ignore[arg-type, return-value]
    report = _drawn_on_ray(RayOptions(ray="auto"), job, listing, JobSettings(tmp_path / "there", 2, 5))
    assert report.made == 6
    load = batch.loader({"name": "shape", "ip_repo": job.ip_repo, "device": "cpu"}, config)
    run_job(pickle.loads(pickle.dumps(load))(), listing, JobSettings(tmp_path / "here", 2, 5))
    assert contents(tmp_path / "there") == contents(tmp_path / "here")
