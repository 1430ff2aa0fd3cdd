"""`make docs`: the site is built without a warning, holds every page, and loads nothing from elsewhere."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from html import unescape
from pathlib import Path

import pytest

from tests.docs.blocks import PAGES, ROOT
from tests.report.chromium import Browser, Tab

pytest.importorskip("material", reason="mkdocs-material is not installed: pip install '.[docs]'")
pytest.importorskip("mkdocstrings")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("site")
    recipe = re.search(r"^docs: .*\n\t(.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert recipe, "make docs is gone"
    command = recipe[1].replace("$(BIN)/mkdocs", f"{sys.executable} -m mkdocs")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    shell = [f"{command} --site-dir {out}"]
    done = subprocess.run(shell, shell=True, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0 and "--quiet" in command and done.stdout + done.stderr == ""
    return out


def test_every_page_is_there_and_reachable(site: Path) -> None:
    start = (site / "index.html").read_text(encoding="utf-8")
    for page in (Path(name).stem for name in PAGES if name.startswith("docs/")):
        assert (site / f"{page}.html").is_file() and (f'href="{page}.html"' in start or page == "index")
    assert not (site / "tools").exists()


def test_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    """No script, style, font or picture with an address; what is fetched lies beside the page."""
    for file in [*site.glob("*.html"), *site.rglob("*.css")]:
        text = file.read_text(encoding="utf-8")
        loaded = re.findall(r"<(?:script|img|iframe|source|link)\b[^>]*?(?:src|href)=\"?([^\" >]+)", text)
        loaded += re.findall(r"(?:@import|url\()\s*['\"]?([^'\")]+)", text)
        assert not [each for each in loaded if re.match(r"(https?:)?//", each)], file.name
        for each in re.findall(r"<(?:script|img)\b[^>]*?src=\"?([^\" >]+)", text):
            assert each.startswith("data:") or (site / each.lstrip("/")).is_file(), f"{file.name}: {each}"


def test_the_reference_is_written_from_the_program(site: Path) -> None:
    commands = unescape((site / "cli.html").read_text(encoding="utf-8"))
    for word in ("onesdaug fewshot evaluate", "--noise-level", "Views per image.", "onesdaug study run"):
        assert word in commands
    python = unescape(re.sub(r"<[^>]+>", "", (site / "api.html").read_text(encoding="utf-8")))
    for word in (
        "TestTimeEnsemble",
        "the original's share; the views split the rest",
        "Classifier-free guidance scale",
    ):
        assert word in python


FOUND = """new Promise(done => {
  const look = () => document.querySelector(".md-search-result__item") ? done(true) : setTimeout(look, 50)
  look()
})"""


def opened(browser: Browser, url: str) -> Tab:
    """On a phone, from a file, with scripts. Nothing is blocked, so that whatever is asked for is seen."""
    tab = browser.tab()
    tab.open("about:blank", 390)
    tab.call("Emulation.setScriptExecutionDisabled", value=False)
    tab.call("Network.setBlockedURLs", urls=[])
    tab.events.clear()
    tab.call("Page.navigate", url=url)
    browser.until(lambda: any(event["method"] == "Page.loadEventFired" for event in tab.events))
    return tab


@pytest.mark.parametrize("page", ["index", "concepts", "ambiguities", "cli", "api"])
def test_pages_fit_a_phone(browser: Browser, site: Path, page: str) -> None:
    tab = opened(browser, (site / f"{page}.html").as_uri())
    assert tab.evaluate("document.scrollingElement.scrollWidth") <= 390
    assert tab.complaints == [] and all(url.startswith(site.as_uri()) for url in tab.requests)


def test_search_works_from_files(browser: Browser, site: Path) -> None:
    tab = opened(browser, f"{(site / 'index.html').as_uri()}?q=noise+level")
    assert tab.evaluate(FOUND)
