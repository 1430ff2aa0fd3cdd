"""The bench as users meet it, on tiny shapes: every stage, the file it writes, the errors; and diffusers beside it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner, Result

from onesdaug.augment.config import preset
from onesdaug.bench.measure import flops, linearity
from onesdaug.bench.peer import Peer
from onesdaug.bench.plan import Wanted
from onesdaug.bench.random_sd import random_parts
from onesdaug.bench.subject import load
from onesdaug.cli.bench import app
from onesdaug.common.clock import repeat
from onesdaug.errors import ConfigError
from onesdaug.generators import speed
from onesdaug.report.result import read_result

TINY = Wanted(random_weights="sd15-tiny", device="cpu")


def bench(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(a) for a in (*arguments, "--device", "cpu")])


def test_every_stage_on_tiny_shapes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speed, "BACKEND", "aot_eager")
    file, plot = tmp_path / "made" / "bench.json", tmp_path / "growth.svg"
    small = ["--batch-sizes", "1,2", "--seconds", 0.05, "--peer", "--folder-images", 4, "-o", file, "--plot", plot]
    result = bench("--random-weights", "sd15-tiny", *small)
    assert result.exit_code == 0, result.output
    found = read_result(file).details
    assert {"command", "commit", "machine", "settings", "limit", "batches", "stages", "efficiency", "growth", "folder",
            "peer", "took"} <= set(found)  # fmt: skip
    assert "failed" not in found
    assert [row["batch"] for row in found["batches"]] == [1, 2]
    assert all(0 < row["share_of_limit"] < 5 for row in found["batches"])
    assert sum(found["limit"]["by_stage"].values()) == pytest.approx(found["limit"]["flops_per_view"])
    table = {(t["solver"], t["noise_level"]): t for t in found["efficiency"]}
    assert len(table) == 8 and table["dpm++", 0.75]["paper"] == 0.23
    assert table["ddpm-ancestral", 1.0]["steps_run"] == 20 and table["dpm++", 0.75]["eager"]["calls"] > 0
    assert [p["images"] for p in found["growth"]["over_images"]][:3] == [2, 4, 8]
    assert found["folder"]["images"] == 4 and found["folder"]["views_per_second"] > 0
    assert [line["steps_run"] for line in found["peer"]] == [7, 7]
    assert "of the limit" in result.stdout and "diffusers, eager" in result.stdout
    assert plot.read_text().startswith("<svg xmlns=")


def test_a_stage_that_fails_costs_only_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onesdaug.bench.measure.stages", lambda *a: 1 / 0)
    file = tmp_path / "bench.json"
    result = bench("--random-weights", "sd15-tiny", "--batch-sizes", 1, "--seconds", 0, "--only", "batches,stages",
                   "-o", file)  # fmt: skip
    assert result.exit_code == 1
    found = read_result(file).details
    assert found["batches"] and found["failed"] == {"stages": "ZeroDivisionError: division by zero"}


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--random-weights", "sdxl"], "no random weights called 'sdxl'"),
        (["--model", "shape"], "no network to measure"),
        (["--only", "speed"], "--only: must be limit, batches,"),
        (["--batch-sizes", "1,x"], "--batch-sizes: must be a valid integer"),
        (["--batch-sizes", "0"], "--batch-sizes: must be greater than or equal to 1, got '0'"),
        (["--peer"], "add --random-weights sd15"),
        (["--compile", "fast"], "--compile: must be off, regional or max, got 'fast'"),
        (["--side", 100], "multiple of 8"),
        (["--random-weights", "sd15-tiny", "--side", 30], "multiple of 4"),
    ],
)
def test_wrong_options_are_said_before_anything_is_measured(arguments: list[object], reason: str) -> None:
    result = bench(*arguments)
    assert isinstance(result.exception, ConfigError)
    assert reason in str(result.exception)


def test_time_is_bounded_and_one_call_is_always_made() -> None:
    calls: list[int] = []
    timed = repeat(lambda: calls.append(1), torch.device("cpu"), 0.0)
    assert len(calls) == 2 and len(timed.each) == 1  # one to warm up, one to measure
    assert len(repeat(lambda: None, torch.device("cpu"), 60.0, most=3).each) == 3
    points = [{"k": 1, "seconds": 2.0}, {"k": 4, "seconds": 8.8}]
    assert linearity(points, "k") == pytest.approx(1.1)


def test_operations_are_counted_by_stage() -> None:
    """Guidance doubles the denoiser's rows; an interval leaves some of them out; the rest stays."""
    subject = load(TINY, preset("paper-fast"))
    full = flops(subject.augmenter(1))
    off = flops(subject.augmenter(1, guidance=1.0))
    part = flops(subject.augmenter(1, guidance_interval=(0.3, 1.0)))
    assert full["denoise"] == pytest.approx(2 * off["denoise"], rel=1e-6)
    guided = sum(subject.augmenter(1, guidance_interval=(0.3, 1.0)).stages.guided)
    assert part["denoise"] == pytest.approx(off["denoise"] * (7 + guided) / 7, rel=1e-6)
    assert full["encode"] == off["encode"] > 0 and full["tokens"] > 0 and full["decode"] > 0


def test_the_peer_treats_rows_one_by_one_and_can_be_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Handed one embedding per row, the pipeline does not mix references: a fair opponent."""
    monkeypatch.setattr(speed, "BACKEND", "eager")
    subject = load(TINY, preset("paper-fast"))
    peer = Peer(random_parts("sd15-tiny", subject.device, subject.dtype), subject.device, subject.dtype)
    x = subject.images(3)
    other = x.clone()
    other[1:] = 1 - other[1:]
    one, two = (peer.views(batch, 10, 0.75, 9.0) for batch in (x, other))
    assert (one[0] - two[0]).abs().max() < 1e-4 and (one[1:] - two[1:]).abs().max() > 0.02
    peer.channels_last()
    peer.compile()
    peer.compile_encoder()
    assert (peer.views(x, 10, 0.75, 9.0) - one).abs().max() < 1e-3
    peer.take_our_choices(6)
    assert (peer.views(x, 10, 0.75, 9.0) - one).abs().max() < 0.02  # eight-bit steps of CLIP's pixels
    torch._dynamo.reset()


def test_the_peer_gets_every_switch_that_ours_gets(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch's global switches are set before the first line of either side, and stand beside every rate."""
    from onesdaug.bench.measure import rate
    from onesdaug.bench.peer import compare

    monkeypatch.setattr(speed, "BACKEND", "eager")
    state = {"cudnn.benchmark": False}
    set_by: list[str] = []

    def switch(mode: str, device: torch.device) -> None:
        set_by.append(mode)
        state["cudnn.benchmark"] = mode == "max"

    monkeypatch.setattr(speed, "set_switches", switch)
    monkeypatch.setattr(speed, "switches", lambda: dict(state))
    monkeypatch.setattr("onesdaug.bench.measure.switches", lambda: dict(state))
    subject = load(TINY, preset("paper-fast"))
    lines = compare(subject, 2, 0.0)
    assert [line["what"].removeprefix("diffusers, ") for line in lines] == [
        "eager, one at a time",
        "eager, float32, channels_last",
        "compiled UNet and decoder",
        "compiled UNet, decoder and encoder",
        "compiled, with our pixels for CLIP and our attention kernel",
    ]
    ours = rate(subject, 2, 0.0)
    assert set_by == ["max"] and all(
        line["switches"] == ours["switches"] == {"cudnn.benchmark": True} for line in lines
    )
    torch._dynamo.reset()


def test_only_the_engine_that_compiles_sets_switches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Building an augmenter changes nothing for the process: what it changes, `accelerate` and `compare` ask for."""
    from onesdaug.augment.engine import Engine

    before = speed.switches()
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", False)
    Engine("max", torch.device("cuda"))
    assert torch.backends.cudnn.benchmark is False
    speed.set_switches("regional", torch.device("cuda"))
    speed.set_switches("max", torch.device("cpu"))
    assert torch.backends.cudnn.benchmark is False
    speed.set_switches("max", torch.device("cuda"))
    assert torch.backends.cudnn.benchmark is True and set(speed.switches()) == set(before)
