"""The pages in a real headless Chromium, scripts off, network blocked: nothing fetched, nothing cut."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from onesdaug.studies import page as study_page
from tests.report import chromium
from tests.report.test_page import demo_result

# Run by the test from outside, over the protocol: the page itself has no scripts. Everything folded is opened first.
LOOK = """
(async () => {
  document.querySelectorAll('details').forEach(d => { d.open = true });
  const images = [...document.images];
  await Promise.all(images.map(i => i.decode().catch(() => null)));
  const name = e => e.tagName + '.' + (e.className.baseVal ?? e.className) + ': ' + e.textContent.trim().slice(0, 60);
  const wide = document.documentElement.clientWidth;
  const shown = e => e.getClientRects().length > 0;
  const plots = [...document.querySelectorAll('svg.plot')];
  const cut = [], covered = [], small = [];
  let smallest = 99;
  for (const plot of plots) {
    const [, , w, h] = plot.getAttribute('viewBox').split(' ').map(Number);
    const texts = [...plot.querySelectorAll('text')];
    const boxes = texts.map(t => t.getBBox());
    boxes.forEach((b, i) => {
      if (b.x < -1 || b.y < -1 || b.x + b.width > w + 1 || b.y + b.height > h + 1)
        cut.push(plot.getAttribute('aria-label') + ': ' + texts[i].textContent);
      const size = parseFloat(getComputedStyle(texts[i]).fontSize);
      if (size < 11) small.push(texts[i].textContent);
      smallest = Math.min(smallest, size * plot.getBoundingClientRect().width / w);
      boxes.slice(0, i).forEach((o, j) => {
        const across = Math.min(b.x + b.width, o.x + o.width) - Math.max(b.x, o.x);
        const down = Math.min(b.y + b.height, o.y + o.height) - Math.max(b.y, o.y);
        if (across > 2 && down > 4)
          covered.push(plot.getAttribute('aria-label') + ': ' + texts[j].textContent + ' / ' + texts[i].textContent);
      });
    });
  }
  const cells = [...document.querySelectorAll('th, td, h1, h2, h3, p, li, summary, dd, figcaption, .badge')];
  const scrolls = [...document.querySelectorAll('.scroll:not(.sheet)')];
  const luminance = c => { const [r, g, b] = c.match(/[\\d.]+/g).map(Number); return (r + g + b) / 765; };
  return {
    overflow: document.documentElement.scrollWidth - wide,
    sticking_out: [...document.body.querySelectorAll('*')].filter(e => shown(e) && !e.closest('.sheet')
      && !e.closest('svg') && e.getBoundingClientRect().right > wide + 1).map(name),
    cells_cut: cells.filter(e => shown(e) && e.scrollWidth > e.clientWidth + 1 && e.clientWidth).map(name),
    tables_cut: scrolls.filter(e => e.scrollWidth > e.clientWidth + 1).map(name),
    broken_images: images.filter(i => !i.complete || !i.naturalWidth || !shown(i)).map(i => i.alt),
    images: images.length,
    plots: plots.length,
    flat_plots: plots.map(p => p.getBoundingClientRect()).filter(r => r.width < 200 || r.height < 60).length,
    text_cut: cut, text_covered: covered, text_small: small,
    ink: luminance(getComputedStyle(document.body).color),
    paper: luminance(getComputedStyle(document.body).backgroundColor),
    smallest,
  };
})()
"""


def look(browser: chromium.Browser, page: Path, width: int, scheme: str = "light") -> dict[str, Any]:
    """Everything that must hold on any page at any width; what remains is returned."""
    tab = browser.tab()
    tab.open(page.as_uri(), width, scheme)
    seen: dict[str, Any] = tab.evaluate(LOOK)
    assert tab.requests == [page.as_uri()]
    assert tab.complaints == []
    for trouble in (
        "sticking_out",
        "cells_cut",
        "tables_cut",
        "broken_images",
        "text_cut",
        "text_covered",
        "text_small",
    ):
        assert seen[trouble] == [], trouble
    assert seen["overflow"] <= 0 and seen["flat_plots"] == 0
    return seen


@pytest.mark.parametrize("width", [320, 390, 1280])
def test_the_studies_fit_any_screen(browser: chromium.Browser, page_file: Path, width: int) -> None:
    seen = look(browser, page_file, width)
    assert seen["plots"] >= 20 and seen["images"] == 2
    assert seen["ink"] < 0.3 < 0.8 < seen["paper"]
    assert seen["smallest"] >= (9 if width < 360 else 11)  # pixels of the smallest text in any plot


def test_dark_mode_is_dark(browser: chromium.Browser, page_file: Path) -> None:
    seen = look(browser, page_file, 390, "dark")
    assert seen["paper"] < 0.2 < 0.7 < seen["ink"]


def test_the_demo_page_fits_too(browser: chromium.Browser, tmp_path: Path) -> None:
    page = study_page.write([demo_result(tmp_path)], tmp_path, tmp_path / "index.html")
    for width in (320, 390, 1280):
        assert look(browser, page, width)["plots"] == 1


def test_a_script_would_not_run_and_a_request_would_be_seen(browser: chromium.Browser, tmp_path: Path) -> None:
    """The test can fail: what it forbids is noticed when it happens."""
    bad = tmp_path / "bad.html"
    bad.write_text("<p>x</p><img src='https://example.com/a.png'><script>document.title = 'ran'</script>", "utf-8")
    tab = browser.tab()
    tab.open(bad.as_uri(), 390)
    assert "https://example.com/a.png" in tab.requests
    assert tab.evaluate("document.title") == ""
    with pytest.raises(AssertionError):
        look(browser, bad, 390)
