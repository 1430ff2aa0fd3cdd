"""The tiny LLaVA, made once per run, and a key to ask endpoints with."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def tiny_llava(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from tests.vlm.tiny import save_llava

    return save_llava(tmp_path_factory.mktemp("llava"))


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.vlm.asking import SECRET

    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    monkeypatch.setenv("NO_PROXY", "*")
