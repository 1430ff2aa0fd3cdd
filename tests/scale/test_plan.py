"""Planning: sums that anyone can check, and a simulation that agrees with the theory of queues where there is one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from onesdaug.cli.plan import app
from onesdaug.errors import ConfigError
from onesdaug.scale.plan import Demand, Profile, Work, amount, replicas_needed, simulate

PROFILE = {
    "machine": {"device": "NVIDIA H200"},
    "model": {"model": "sd15", "side": 512},
    "batches": [
        {"batch": 1, "views_per_second": 5.0, "latency_seconds": 0.2},
        {"batch": 64, "views_per_second": 32.0, "latency_seconds": 2.0},
    ],
    "folder": {"share_of_in_memory": 0.5, "seconds": 3.0},
}


@pytest.fixture
def profile() -> Profile:
    return Profile.model_validate(PROFILE)


def test_a_billion_images(profile: Profile) -> None:
    """3e9 views at 32 · 0.5 = 16 views/s are 52,083 hours; 8 nodes of 8 GPUs need 33.9 days."""
    found = amount(profile, Work(images=1e9, k=3, devices=8, nodes=8))
    assert found.device_hours == pytest.approx(3e9 / 16 / 3600)
    assert found.days == pytest.approx(found.device_hours / 64 / 24)
    assert found.terabytes == pytest.approx(3e9 * 512 * 512 * 2 / 1e12)
    back = amount(profile, Work(images=1e9, k=3, devices=8, days=found.days * 1.001))
    assert back.nodes == 8
    with pytest.raises(ConfigError, match="--nodes or --days"):
        amount(profile, Work(images=1, nodes=1, days=1))


def test_time_of_a_batch(profile: Profile) -> None:
    assert profile.seconds(1) == 0.2
    assert profile.seconds(64) == 2.0
    assert profile.seconds(128) == 4.0
    assert 0.2 < profile.seconds(32) < 2.0


@pytest.mark.parametrize("load", [0.3, 0.6, 0.85])
def test_one_at_a_time_is_the_queue_md1(profile: Profile, load: float) -> None:
    """The mean of M/D/1 is service · (1 + ρ / (2 (1 − ρ)))."""
    demand = Demand(rate=load / 0.2, max_batch=1, batch_wait=0, overhead=0, p99=100)
    single = Profile.model_validate({"batches": [PROFILE["batches"][0]]})  # type: ignore[index]
    found = simulate(single, demand, 1, 1, count=100_000)
    assert found.busy == pytest.approx(load, rel=0.03)
    assert found.mean == pytest.approx(0.2 * (1 + load / (2 * (1 - load))), rel=0.08)


def test_batches_carry_what_single_requests_cannot(profile: Profile) -> None:
    alone, together = (Demand(rate=8, max_batch=size, p99=5) for size in (1, 32))
    assert not simulate(profile, alone, 1, 1).stable
    found = simulate(profile, together, 1, 1)
    assert found.stable and found.batch > 1 and found.p99 < 5


def test_as_many_replicas_as_needed_and_no_more(profile: Profile) -> None:
    demand = Demand(rate=40, p99=2)
    found = replicas_needed(profile, demand, 3)
    assert found.p99 <= 2
    fewer = simulate(profile, demand, 3, found.replicas - 1)
    assert not fewer.stable or fewer.p99 > 2
    with pytest.raises(ConfigError, match="no number of replicas"):
        replicas_needed(profile, Demand(rate=1, p99=0.1), 3)


def test_the_command(tmp_path: Path) -> None:
    file = tmp_path / "bench.json"
    file.write_text(json.dumps(PROFILE))
    found = CliRunner().invoke(app, ["--profile", str(file), "--images", "1e9", "--days", "30", "--rate", "10"])
    assert found.exit_code == 0, found.exception
    assert "1,000,000,000 images × 3 views: 52,083.3 device hours" in found.output
    assert "10 requests/s with K=3" in found.output
    assert "nothing to plan" in str(CliRunner().invoke(app, ["--profile", str(file)]).exception)
    file.write_text("{}")
    wrong = CliRunner().invoke(app, ["--profile", str(file), "--images", "5"]).exception
    assert "is not a profile" in str(wrong)
