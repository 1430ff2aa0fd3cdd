"""The scripts that wrap classifiers of other kinds, run as a user runs them."""

from __future__ import annotations

import json
import runpy
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.tiny import save_classifier

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
LONGEST = 60
SCRIPTS = ("sklearn_model", "huggingface_pipeline", "http_classifier")


@pytest.fixture
def pets(tmp_path: Path) -> Path:
    """Two classes that differ in colour."""
    rng = np.random.default_rng(0)
    for place, name in enumerate(("cat", "dog")):
        (tmp_path / "pets" / name).mkdir(parents=True)
        for number in range(6):
            pixels = rng.integers(0, 120, (20, 24, 3))
            pixels[..., place] += 130
            Image.fromarray(pixels.astype(np.uint8)).save(tmp_path / "pets" / name / f"{number}.png")
    return tmp_path / "pets"


def run(monkeypatch: pytest.MonkeyPatch, script: str, *arguments: object) -> None:
    monkeypatch.setattr(sys, "argv", [script, *map(str, arguments)])
    runpy.run_path(str(EXAMPLES / f"{script}.py"), run_name="__main__")


@pytest.mark.parametrize("script", SCRIPTS)
def test_they_are_short_and_tell_what_they_want(
    script: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (EXAMPLES / f"{script}.py").read_text().count("\n") <= LONGEST
    with pytest.raises(SystemExit, match="0"):
        run(monkeypatch, script, "--help")
    assert f"python examples/{script}.py" in capsys.readouterr().out


def test_scikit_learn(pets: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    run(monkeypatch, "sklearn_model", pets, "--views", "crop-flip", "--k", 1)
    alone, over_views = capsys.readouterr().out.splitlines()
    assert alone.endswith("100.0% of 6 pictures") and over_views.endswith("100.0%")
    with pytest.raises(SystemExit, match="2"):
        run(monkeypatch, "sklearn_model", pets / "cat")


@pytest.mark.usefixtures("one_step")
def test_a_transformers_pipeline(
    pets: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pictures = [pets / "cat" / "0.png", pets / "dog" / "0.png"]
    run(monkeypatch, "huggingface_pipeline", save_classifier(tmp_path / "vit"), *pictures, "--k", 1)
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(":")[0] for line in lines] == [str(path) for path in pictures]
    assert all("alone" in line and "over views" in line for line in lines)


@pytest.fixture
def service() -> Iterator[tuple[str, list[tuple[int, int]]]]:
    """Says cat, the surer the redder a picture is; and keeps the sizes of what it was sent."""
    seen: list[tuple[int, int]] = []

    class Answers(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            with Image.open(BytesIO(body)) as picture:
                red, green, _ = picture.convert("RGB").resize((1, 1)).getpixel((0, 0))
                seen.append(picture.size)
            share = red / (red + green)
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps({"dog": 1 - share, "cat": share}).encode())

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/classify", seen
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_classifier_behind_http(
    pets: Path,
    service: tuple[str, list[tuple[int, int]]],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    url, seen = service
    run(monkeypatch, "http_classifier", url, pets / "cat" / "0.png", pets / "dog" / "0.png", "--generator", "shape")
    first, second = capsys.readouterr().out.splitlines()
    assert "0.png: cat (" in first and "0.png: dog (" in second
    assert seen == [(24, 20)] * 6  # two pictures, each with two views
