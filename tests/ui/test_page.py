"""The page in a real headless Chromium: `onesdaug ui` as a process of its own, and visitors as people are.

Screenshots are left in .cache/ui. With ONESDAUG_UI_DOCS=1 small copies of those that docs/ui.md shows go there; the
tests then draw as many views as people would.
"""

from __future__ import annotations

import http.client
import importlib.util
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from onesdaug import ViewFolder
from onesdaug.data.samples import sample_photographs
from onesdaug.generators.load import has_weights
from tests.conftest import make_image
from tests.report import chromium, example
from tests.ui.driver import Visitor

REPOSITORY = Path(__file__).parents[2]
SHOTS, DOCS = REPOSITORY / ".cache" / "ui", REPOSITORY / "docs"
FOR_DOCS = bool(os.environ.get("ONESDAUG_UI_DOCS"))
PHONE = 390

if importlib.util.find_spec("gradio") is None:
    pytest.skip("the page needs Gradio: pip install '.[ui]'", allow_module_level=True)
pytest.importorskip("skimage")


@dataclass
class Served:
    """A running `onesdaug ui`."""

    address: str
    process: subprocess.Popen[str]
    until_first_view: float = 0.0  # seconds of computing since its start

    @property
    def cpu_seconds(self) -> float:
        """What it has computed since its start: on an idle machine nothing takes longer than that."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@pytest.fixture(scope="module")
def served(browser: chromium.Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """No configuration but a short report and no window; the address is what it says."""
    results = tmp_path_factory.mktemp("results")
    example.pope().save(results)
    command = [sys.executable, "-c", "from onesdaug.cli import main; main()", "ui", "--no-browser", "--port", "0"]
    command += ["--results", str(results)]
    kept = tmp_path_factory.mktemp("kept")
    environment = {**os.environ, "TMPDIR": str(kept)}
    process = subprocess.Popen(command, cwd=REPOSITORY, env=environment, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    told = ""
    while not (found := re.search(r"http://127\.0\.0\.1:\d+/", told)):
        line = process.stderr.readline()
        assert line, told
        told += line
    threading.Thread(target=process.stderr.read, daemon=True).start()  # a full pipe would stop it
    page = Served(found[0], process)
    first_view(browser, page)
    yield page
    process.terminate()
    process.wait(20)
    assert not list(kept.glob("onesdaug-ui-*"))  # nothing that visitors gave is left


@pytest.fixture
def visit(browser: chromium.Browser, served: Served) -> Iterator[object]:
    """Visitors; at the end nothing was fetched from elsewhere, and no console had anything to say."""
    visitors: list[Visitor] = []

    def enter(width: int = 1280, scheme: str = "light") -> Visitor:
        visitors.append(Visitor(browser, served.address, width, scheme))
        return visitors[-1]

    yield enter
    for visitor in visitors:
        leave(visitor)


def leave(visitor: Visitor) -> None:
    assert visitor.elsewhere == [] and visitor.errors == []
    visitor.tab.call("Page.close")


def shoot(visitor: Visitor, name: str) -> None:
    visitor.screenshot(SHOTS / f"{name}.png")
    if FOR_DOCS and f"ui-{name}.webp" in (DOCS / "ui.md").read_text(encoding="utf-8"):
        with Image.open(SHOTS / f"{name}.png") as shot:
            shot.thumbnail((900, 4000), Image.Resampling.LANCZOS)
            shot.save(DOCS / f"ui-{name}.webp", quality=82, method=6)


def pick_sample(visitor: Visitor, tab: str, place: int) -> None:
    visitor.click(f"#{tab}-samples .gallery-item:nth-child({place}) button")
    visitor.until(f"!!document.querySelector('#{tab}-preview img')")


def drawn(visitor: Visitor, views: int) -> None:
    """Until so many views are on the page with all their stages, and none is under way."""
    visitor.until(f"document.querySelectorAll('#views-shown img').length === {4 * views}", 120)
    visitor.until("!document.querySelector('#views-start').disabled")


def says(visitor: Visitor, place: str, words: str) -> None:
    """Until a place says so; an answer that came late is mended a moment later."""
    visitor.until(f"document.querySelector('{place}').innerText.includes({json.dumps(words)})")


def first_view(browser: chromium.Browser, served: Served) -> None:
    """The first visitor's first picture, as soon as the page is there."""
    visitor = Visitor(browser, served.address)
    pick_sample(visitor, "views", 2)
    visitor.click("#views-start")
    visitor.until("document.querySelectorAll('#views-shown img').length >= 4", 120)
    served.until_first_view = served.cpu_seconds
    drawn(visitor, 3)
    shoot(visitor, "views")
    leave(visitor)


def test_the_first_view_comes_soon(served: Served) -> None:
    """Within 20 s of computing where loading its libraries takes 5 s of it; slow and busy machines take longer."""
    loading = "import time, gradio, kornia, torch; print(time.process_time())"
    libraries = float(subprocess.check_output([sys.executable, "-c", loading], text=True))
    print(f"{served.until_first_view:.1f} s from the command to the first view, libraries alone {libraries:.1f} s")
    assert served.until_first_view < 4 * libraries


def test_nobody_else_is_answered(served: Served) -> None:
    """Another site whose name leads to this machine would act for the visitor."""
    for host, status in (("127.0.0.1", 200), ("evil.example", 400)):
        connection = http.client.HTTPConnection("127.0.0.1", int(served.address.rsplit(":", 1)[1].strip("/")))
        connection.request("GET", "/", headers={"Host": host})
        assert connection.getresponse().status == status


def test_a_late_answer_does_not_stay(visit: Any) -> None:
    """On a busy machine the answer for the last change but one comes last: here it is made of the first answer."""
    visitor = visit()
    visitor.js("""{
      const ask = window.fetch;
      window.fetch = async (...given) => {
        const answer = await ask(...given);
        if (window.late || !String(given[0]).endsWith('/run/predict')) return answer;
        const text = await answer.clone().text();
        if (!text.includes('--seed 4')) return answer;
        window.late = text.replaceAll('--seed 4', '--seed 0').replaceAll('seed=4', 'seed=0');
        return new Response(window.late, answer);
      };
    }""")
    visitor.fill("#views-seed input", 4)
    visitor.until("!!window.late")
    says(visitor, "#command", "--seed 4")
    says(visitor, "#snippet", "seed=4")


def test_upload_views_download(visit: Any, tmp_path: Path) -> None:
    make_image(5, (80, 60)).save(tmp_path / "my photo.png")
    visitor = visit()
    visitor.upload("#views-photo", [tmp_path / "my photo.png"])
    says(visitor, "#views-preview", "my photo.png, 80 × 60")
    visitor.fill("#views-k input[type=number]", 2)
    visitor.fill("#views-seed input", 4)
    says(visitor, "#command", "onesdaug augment 'my photo.png' -o views --k 2 --seed 4")
    says(visitor, "#snippet", "k=2, seed=4")
    visitor.click("#views-start")
    drawn(visitor, 2)
    assert [
        name for name in ("original", "tweaked", "noised", "view 2") if name not in visitor.text("#views-shown")
    ] == []
    assert re.search(r"2 views of 80 × 60 pixels, [\d.]+ s each", visitor.text("#views-took"))
    visitor.tab.browser.call("Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(tmp_path)})
    visitor.click("#views-download")
    archive = tmp_path / "my photo-views.zip"
    end = time.monotonic() + 20
    while not archive.is_file() and time.monotonic() < end:
        time.sleep(0.1)
    with zipfile.ZipFile(archive) as packed:
        packed.extractall(tmp_path / "views")
    assert len(ViewFolder(tmp_path / "views").views(tmp_path / "my photo.png")) == 2


def test_another_generator_is_chosen(visit: Any) -> None:
    if not has_weights("pocket-imagenet"):
        pytest.skip("pocket-imagenet is not installed")
    visitor = visit()
    pick_sample(visitor, "views", 3)
    visitor.choose("#views-generator", "pocket-imagenet")
    says(visitor, "#command", "--model pocket-imagenet")
    assert "from_pretrained('pocket-imagenet', preset='pocket-faithful')" in visitor.text("#snippet")
    visitor.choose("#views-preset", "pocket-imagenet-accuracy")
    says(visitor, "#command", "--preset pocket-imagenet-accuracy")
    visitor.fill("#views-k input[type=number]", 1)
    visitor.click("#views-start")
    drawn(visitor, 1)
    shoot(visitor, "generator")


def test_a_text_file_gets_a_sentence(visit: Any, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("this is no picture")
    (tmp_path / "photo.jpg").write_text("nor is this")
    visitor = visit()
    for place, name in enumerate(("notes.txt", "photo.jpg")):
        if place:
            visitor.click("#views-photo button[aria-label=Clear], #views-photo button[aria-label=Remove]")
        visitor.upload("#views-photo", [tmp_path / name])
        visitor.until(f"document.querySelector('#views-preview').innerText === '{name} is a text file, not an image'")
        visitor.click("#views-start")
        visitor.until(f"document.querySelector('#views-status').innerText === '{name} is a text file, not an image'")
    shoot(visitor, "message")
    visitor.open_tab("Few-shot")
    visitor.upload("#support-1", [tmp_path / "notes.txt"])
    visitor.until("document.body.innerText.includes('notes.txt is a text file, not an image')")


def test_few_shot_from_files_to_answers(visit: Any) -> None:
    visitor = visit()
    visitor.open_tab("Few-shot")
    visitor.click("#fewshot-start")
    says(visitor, "#fewshot-status", "Name two classes or more")
    visitor.click("#fewshot-example")
    visitor.until("document.querySelectorAll('.strip.small img').length === 6")
    k = 3 if FOR_DOCS else 1
    visitor.fill("#fewshot-k input[type=number]", k)
    visitor.click("#fewshot-start")
    visitor.until("!!document.querySelector('#fewshot-map svg')", 120)
    told = visitor.text("#fewshot-shown")
    for name in ("cat", "cup", "rocket"):
        assert f"Without views: {name}" in told and f"With views: {name}" in told and f"{name}-query.png" in told
    assert visitor.js("document.querySelectorAll('#fewshot-shown table td').length") == 3 * (1 + k) * 3
    assert visitor.js("document.querySelectorAll('#fewshot-map svg title').length") > 3 + (1 + k) * 6
    shoot(visitor, "fewshot")


def test_explore_draws_the_figure(visit: Any) -> None:
    """Without the plot, which takes more views, unless the screenshot is to show it."""
    visitor = visit(scheme="dark")
    visitor.open_tab("Explore")
    pick_sample(visitor, "explore", 3)
    visitor.fill("#explore-k input[type=number]", 3 if FOR_DOCS else 1)
    visitor.click("#explore-start")
    visitor.until("document.querySelectorAll('#explore-shown img').length === 14", 180)
    visitor.until("!document.querySelector('#explore-start').disabled", 60)
    assert visitor.js("document.querySelectorAll('#explore-plot svg').length") == (1 if FOR_DOCS else 0)
    assert visitor.js("getComputedStyle(document.querySelector('.card')).backgroundColor") == "rgb(26, 27, 30)"
    shoot(visitor, "explore-dark")


def test_long_work_is_cancelled_and_another_visitor_is_not(visit: Any, tmp_path: Path) -> None:
    first, second = visit(), visit(PHONE, "dark")
    pick_sample(first, "views", 1)
    first.fill("#views-k input[type=number]", 8)
    first.click("#views-start")
    first.until("!!document.querySelector('#views-status [role=progressbar]')")
    pick_sample(second, "views", 4)
    second.fill("#views-k input[type=number]", 1)
    second.click("#views-start")
    first.click("#views-cancel")
    first.until("document.querySelector('#views-status').innerText === 'Cancelled.'")
    first.until("!document.querySelector('#views-start').disabled")
    drawn(second, 1)
    own = "document.querySelector('{} img').src"
    assert second.js(own.format("#views-shown")) == second.js(own.format("#views-preview"))
    assert first.js(own.format("#views-shown")) == first.js(own.format("#views-preview"))
    assert first.js(own.format("#views-shown")) != second.js(own.format("#views-shown"))
    shoot(second, "views-phone")


@pytest.fixture
def class_folders() -> Iterator[Path]:
    """Parts of the sample photographs, a folder for each; where they lie is seen on a screenshot."""
    with tempfile.TemporaryDirectory(prefix="photos-") as folder:
        for name, photo in sample_photographs().items():
            (Path(folder) / name).mkdir()
            for number in range(4):
                left, top = (number % 2) * photo.width // 3, (number // 2) * photo.height // 3
                part = photo.crop((left, top, left + photo.width * 2 // 3, top + photo.height * 2 // 3))
                part.resize((96, 96)).save(Path(folder) / name / f"{number}.png")
        yield Path(folder)


def test_tuning_is_watched_to_its_sentence(visit: Any, class_folders: Path) -> None:
    visitor = visit()
    visitor.open_tab("Tune")
    visitor.fill("#tune-folder textarea, #tune-folder input", class_folders)
    sources = "pocket,shape,crop-flip" if FOR_DOCS else "shape,crop-flip"
    visitor.fill("#tune-sources textarea, #tune-sources input", sources)
    visitor.fill("#tune-minutes input", 1)
    visitor.fill("#tune-shots textarea, #tune-shots input", "1")
    says(visitor, "#tune-command", f"--sources {sources}")
    visitor.click("#tune-start")
    visitor.until("document.querySelector('#tune-answer').innerText.includes('1-shot: ')", 120)
    says(visitor, "#tune-files", "tuned")
    assert visitor.js("document.querySelectorAll('#tune-shown svg').length") == 1
    shoot(visitor, "tune")


def test_the_report_is_shown_and_everything_fits_a_phone(visit: Any) -> None:
    visitor = visit(PHONE)
    for tab in ("Views", "Explore", "Few-shot", "Tune", "Results"):
        visitor.open_tab(tab)
        if tab == "Results":
            visitor.until("!!document.querySelector('iframe.report')", 120)
            time.sleep(1)  # nothing inside the frame can be asked
        assert visitor.overflow <= 0, tab
        cut = visitor.js(
            "[...document.querySelectorAll('button, p, label, figure, svg, .block')].filter(e => "
            "e.getClientRects().length && e.getBoundingClientRect().right > innerWidth + 1).map(e => e.outerHTML)"
        )
        assert [one for one in cut if "overflow" not in one] == [], tab
    shoot(visitor, "results-phone")
