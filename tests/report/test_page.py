"""The page: self-contained, escaped, and with the very numbers of the evaluation."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest
import torch
from PIL import Image

from onesdaug.fewshot.bank import BankInfo, FeatureBank
from onesdaug.fewshot.evaluate import Task, ViewUse, evaluate
from onesdaug.fewshot.heads import ProtoNet
from onesdaug.report.page import FULL_FIGURES, Page, render, write
from onesdaug.report.pictures import Gallery, PhotoRow, Picture, data_uri, gallery
from onesdaug.report.plot import gain_plots
from onesdaug.report.table import Block, Origin, cells, terminal_table, to_row
from tests.conftest import make_image
from tests.jobs.fake import Fake, make
from tests.report.structure import parse

HOSTILE = "<script>alert('x')</script>&\"\udcff.png"


def make_block() -> Block:
    rng = torch.Generator().manual_seed(0)
    centres = torch.randn(6, 1, 1, 8, generator=rng)
    features = (centres + torch.randn(6, 30, 4, 8, generator=rng)).flatten(0, 1)
    views = {"source": "pocket", "k": 3, "generator": "f00d", "config": {"noise_level": 0.5, "shape": {"rotate": 20}}}
    info = BankInfo(tuple("abcdef"), tuple(f"a/{i}" for i in range(180)), "data", "encoder<1>", views, 7, "c0ffee")
    bank = FeatureBank(features, torch.arange(6).repeat_interleave(30), info)
    results = evaluate(bank, ProtoNet(), [Task(episodes=60)], [ViewUse(n, n) for n in (1, 2, 3)])
    rows = tuple(to_row("pocket", result) for result in results)
    return Block("some <classifier>", "protonet", "a part & more", rows, (Origin("pocket", info, 0.0123),))


@pytest.fixture(scope="module")
def block() -> Block:
    return make_block()


def full_page(block: Block) -> Page:
    image = make_image(1, (40, 30))
    pictures = tuple(Picture(name, data_uri(image), image.size) for name in ("original", "tweaked", "view 1"))
    rows = (PhotoRow(HOSTILE, "CC0", "40 × 30", pictures),)
    shown = Gallery(rows, (f"{HOSTILE}: is empty",), 3, "shape")
    return Page("onesdaug augment '<i>'", shown, (block,), ("<b>gone</b>",), "abc123", {"device": "cpu"})


def test_the_page_needs_nothing_beside_it_and_runs_nothing(block: Block) -> None:
    text = render(full_page(block))
    found = parse(text)
    assert {"h1", "table", "svg", "img", "details"} <= found.seen
    assert not {"script", "iframe", "object", "b", "i", "classifier"} & found.seen
    assert found.fetched and all(uri.startswith("data:") for uri in found.fetched)
    assert "url(" not in text and "@import" not in text and "http://" not in text and "https://" not in text
    assert "prefers-color-scheme: dark" in text and 'name="viewport"' in text
    assert FULL_FIGURES in text and "$" not in text.replace("$ onesdaug", "")


def test_names_are_escaped(block: Block) -> None:
    text = render(full_page(block))
    assert "<script" not in text
    assert "&lt;script&gt;alert(&#x27;x&#x27;)&lt;/script&gt;&amp;&quot;?.png" in text
    assert "&lt;b&gt;gone&lt;/b&gt;" in text and "3 more images" in text


def test_the_numbers_are_those_of_the_evaluation(block: Block) -> None:
    table = [row for row in parse(render(full_page(block))).rows if "±" in "".join(row)]
    assert len(table) == len(block.rows) == 4
    for shown, row in zip(table, block.rows, strict=True):
        result = row.result
        assert shown[:2] == [row.method, f"{100 * result.accuracy.mean:.2f} ± {100 * result.accuracy.ci95:.2f}"]
        gain = result.gain
        if gain is None:
            assert shown[2:] == ["–", "–"]
        else:
            assert shown[2] == f"{100 * gain.difference:+.2f} ± {100 * gain.ci95:.2f}"
            assert shown[3] == f"{100 * gain.relative_gain:+.2f} %"
    assert table[0][0] == "no views (baseline)" and table[3][0] == "1S-DAug-3 · pocket"


def test_what_made_them_is_said(block: Block) -> None:
    text = render(full_page(block))
    for fact in ("f00d", "c0ffee", "abc123", "a part &amp; more", "60, fingerprint", "noise_level 0.5", "rotate 20"):
        assert fact in text
    assert "pocket 1.23." in text  # the luck of the part, in points


def test_the_plot_shows_the_same_gains_to_scale(block: Block) -> None:
    plot = gain_plots([block])[0]
    dots = [float(x) for x in re.findall(r'<circle class="dot" cx="([\d.]+)"', plot)]
    zero = re.search(r'class="zero" x1="([\d.]+)"', plot)
    assert zero is not None
    gains = [row.result.gain.difference for row in block.rows if row.result.gain is not None]
    ratios = [(x - float(zero[1])) / gain for x, gain in zip(dots, gains, strict=True)]
    assert ratios == pytest.approx([ratios[0]] * 3, rel=0.05)
    assert all(f"{cells(row).gain} ± {cells(row).gain_ci}" in plot for row in block.rows[1:])
    whiskers = [float(x) for x in re.findall(r"[MH]([\d.]+)", plot)]
    assert 0 <= min(whiskers) <= max(whiskers) <= 360
    assert gain_plots([Block("x", "h", "d", block.rows[:1], block.origins)]) == [""]


def test_terminal_and_page_show_the_same_strings(block: Block) -> None:
    from rich.console import Console

    console = Console(width=120, file=io.StringIO())
    with console.capture() as captured:
        console.print(terminal_table([block]))
    text = captured.get()
    for row in block.rows:
        c = cells(row)
        assert f"{c.accuracy} ± {c.accuracy_ci}" in text and c.method in text and c.gain in text
    assert "5-way 1-shot, 15 queries a class, 60 episodes, seed 0" in text


def test_an_empty_page_still_says_so(tmp_path: Path) -> None:
    path = write(Page(), tmp_path / "deep" / "index.html")
    text = path.read_text(encoding="utf-8")
    parse(text)
    assert "No views to show." in text and "No evaluation." in text
    assert [p.name for p in path.parent.iterdir()] == ["index.html"]


def test_a_gallery_of_what_a_job_left(tmp_path: Path) -> None:
    photos, out = tmp_path / "photos", tmp_path / "views"
    photos.mkdir()
    images = {name: make_image(n, (40, 30)) for n, name in enumerate(("good", "bad"))}
    for name, image in images.items():
        image.save(photos / f"{name}.png")
    (photos / "empty.png").touch()
    make(photos, out, Fake(bad=[images["bad"]]), k=2, save_aug=True)
    shown = gallery(out, [photos], 2, {"good": "CC0"})
    assert [row.name for row in shown.rows] == ["good.png"]
    row = shown.rows[0]
    assert [p.caption for p in row.pictures] == ["original", "tweaked", "view 1", "view 2"]
    assert (row.credit, row.note) == ("CC0", "40 × 30 · 14 steps from t = 651, noise level 0.7 · 0.1 s a view")
    assert shown.generator == "fake" and row.pictures[1].uri == row.pictures[0].uri != row.pictures[2].uri
    assert shown.problems == (
        "bad.png: RuntimeError: this image breaks the network",
        "empty.png: is empty (0 bytes)",
    )


def test_pictures_are_small() -> None:
    assert len(data_uri(Image.effect_noise((3000, 2000), 80).convert("RGB"))) < 120_000
