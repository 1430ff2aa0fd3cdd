"""`onesdaug serve`: what it hands on, what it warns of, and that a signal stops it."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from typer.testing import CliRunner

from onesdaug.cli.serve import app
from onesdaug.scale.serve import deploy
from onesdaug.scale.serve.settings import TOKEN, Limits, Networks, Serving
from onesdaug.scale.start import RayOptions

pytest.importorskip("ray")


@pytest.mark.parametrize("token", [None, "secret"])
def test_settings_and_token(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, token: str | None
) -> None:
    seen: list[Any] = []
    monkeypatch.setattr(deploy, "serve_until_stopped", lambda *given: seen.extend(given))
    monkeypatch.delenv(TOKEN, raising=False)
    if token is not None:
        monkeypatch.setenv(TOKEN, token)
    words = ["--model", "shape", "--host", "0.0.0.0", "--replicas", "3", "--max-k", "2", "--ray", "auto"]
    found = CliRunner().invoke(app, words)
    assert found.exit_code == 0, found.exception
    serving, networks, limits, given, cluster = seen
    assert (serving.replicas, networks.model, limits.max_k, given, cluster.ray) == (3, "shape", 2, token, "auto")
    assert ("whoever reaches 0.0.0.0:8000 may use it" in caplog.text) == (token is None)


def test_it_listens_at_home_unless_told() -> None:
    assert Serving().host == "127.0.0.1"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_it_in_order(monkeypatch: pytest.MonkeyPatch, number: signal.Signals) -> None:
    ended: list[bool] = []

    @contextmanager
    def running(*_: object) -> Iterator[None]:
        yield
        ended.append(True)

    monkeypatch.setattr(deploy, "running", running)
    before = signal.getsignal(number)
    threading.Timer(0.2, os.kill, (os.getpid(), number)).start()
    deploy.serve_until_stopped(Serving(), Networks(), Limits(), None, RayOptions())
    assert ended == [True]
    assert signal.getsignal(number) is before
