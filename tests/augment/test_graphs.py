"""CUDA graphs, without CUDA: when a batch is recorded, what a replay reads and writes, and what that keeps."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

from onesdaug.augment.engine import Engine, Graphed
from onesdaug.common.devices import peak_memory_mb
from tests.augment.test_engine import CONFIG, images, sd


class Replayed(Graphed):
    """Records as CUDA does, as far as memory goes: fixed inputs, one output that every replay writes into."""

    records = 0

    def record(self, static):
        self.records += 1
        out = self.function(*static).clone()

        class Graph:
            def replay(_) -> None:
                out.copy_(self.function(*static))

        return Graph(), static, out


def test_a_recorded_function_follows_its_inputs() -> None:
    graphed = Replayed(lambda x, y: 2 * x + y)
    plain = graphed(torch.ones(2), torch.zeros(2))
    assert plain.tolist() == [2.0, 2.0] and graphed.records == 0  # who wants one view waits for no recording
    first = graphed(torch.full((2,), 3.0), torch.zeros(2))
    second = graphed(torch.full((2,), 5.0), torch.ones(2))
    assert first.tolist() == [6.0, 6.0] and second.tolist() == [11.0, 11.0]  # the first was not overwritten
    assert graphed.records == 1
    for _ in range(3):
        graphed(torch.ones(3), torch.zeros(3))
    assert graphed.records == 2


def test_a_call_that_fails_is_no_first_meeting() -> None:
    """Out of memory, say: the batch is halved then, and this size never recorded."""
    answers = iter([torch.OutOfMemoryError("out of memory"), torch.ones(1), torch.ones(1)])

    def function(x: torch.Tensor) -> torch.Tensor:
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    graphed = Replayed(function)
    with pytest.raises(torch.OutOfMemoryError):
        graphed(torch.zeros(1))
    graphed(torch.zeros(1))
    assert graphed.records == 0


@pytest.mark.parametrize("error", [RuntimeError, torch.OutOfMemoryError])
def test_a_function_that_cannot_be_recorded_still_runs(
    caplog: pytest.LogCaptureFixture, error: type[RuntimeError]
) -> None:
    class Refusing(Graphed):
        def record(self, static):
            raise error("operation not permitted when stream is capturing\nmore")

    graphed = Refusing(lambda x: x + 1)
    assert [graphed(torch.zeros(1)).item() for _ in range(3)] == [1.0, 1.0, 1.0]
    assert [r.message for r in caplog.records] == [
        "no CUDA graph could be recorded, going on without: operation not permitted when stream is capturing"
    ]


def test_graphs_are_for_fixed_shapes_on_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", False)
    assert not Engine("max", torch.device("cpu")).records
    assert not Engine("off", torch.device("cuda")).records
    assert Engine("max", torch.device("cuda")).records and Engine("regional", torch.device("cuda")).records


def test_what_recordings_keep_counts_as_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """The allocator does not see it: a replay allocates nothing."""
    engine = Engine()
    for name in ("encode", "denoise"):
        engine._graphs[name] = Graphed(torch.clone)
        engine._graphs[name].held = 2**30
    assert engine.held_mb == 2048
    allocated = {"now": 3 * 2**30, "peak": 4 * 2**30}
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: allocated["now"])
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda device: allocated["peak"])
    cuda = torch.device("cuda")
    assert (peak_memory_mb(cuda), peak_memory_mb(cuda, engine.held_mb)) == (4096, 5120)


def test_the_whole_operator_through_recorded_parts(
    tiny_sd: Path, tiny_ip: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    aug = sd(tiny_sd, tiny_ip, CONFIG.model_copy(update={"solver": "ddpm-ancestral"}))
    expected = aug.tensors(images(3), k=3)
    monkeypatch.setattr("onesdaug.augment.engine.Graphed", Replayed)
    aug.stages.engine.fixed = True
    monkeypatch.setattr(Engine, "records", True)
    monkeypatch.setattr(Engine, "_pool", None)
    aug.generator.adapter.on_device = False
    parts = aug.stages.engine._graphs
    for _ in range(3):
        assert (aug.tensors(images(3), k=3) - expected).abs().max() < 2e-5
    assert set(parts) == {"encode", "tokens", "denoise"} and parts["denoise"].records == 1


def test_threads_do_not_mix_their_inputs(monkeypatch: pytest.MonkeyPatch) -> None:
    """A recording has one set of inputs: who comes between another's inputs and replay would change its result."""

    class Slow(Replayed):
        def record(self, static):
            graph, static, out = super().record(static)

            class Late:
                def replay(_) -> None:
                    time.sleep(0.001)
                    graph.replay()

            return Late(), static, out

    monkeypatch.setattr("onesdaug.augment.engine.Graphed", Slow)
    monkeypatch.setattr(Engine, "records", True)
    monkeypatch.setattr(Engine, "_pool", None)
    engine = Engine("max")
    with ThreadPoolExecutor(4) as pool:
        made = list(pool.map(lambda i: engine.run("double", lambda x: 2 * x, torch.full((2,), float(i))), range(40)))
    assert [row.tolist() for row in made] == [[2.0 * i] * 2 for i in range(40)]
