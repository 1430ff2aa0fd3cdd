"""The page of studies: self-contained, complete, escaped, and whole without any one part."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from onesdaug.report import strings
from onesdaug.report.records import Sheet
from onesdaug.report.result import StudyResult, read_result, read_results
from onesdaug.statistics import Paired
from onesdaug.studies.page import IN_SHORT, anchor, render, write, write_report
from tests.conftest import make_image
from tests.report import example
from tests.report.structure import parse

HOSTILE = "<script>alert('x')</script>&\"$title`"


@pytest.fixture(scope="module")
def page(page_file: Path) -> str:
    return page_file.read_text(encoding="utf-8")


def test_it_needs_nothing_beside_it_and_runs_nothing(page: str) -> None:
    found = parse(page)
    assert {"h1", "nav", "table", "svg", "img", "details"} <= found.seen
    assert not {"script", "iframe", "object", "form", "video"} & found.seen
    links = [uri for uri in found.fetched if not uri.startswith("data:")]
    assert links and all(uri.startswith("#") and uri[1:] in found.ids for uri in links)
    assert len(found.ids) == len(set(found.ids))
    assert "url(" not in page and "@import" not in page and "default-src 'none'" in page
    assert "prefers-color-scheme: dark" in page and 'name="viewport"' in page


def test_a_folder_in_one_call(tmp_path: Path) -> None:
    for result in (example.efficiency(), example.efficiency("cpu"), example.pope()):
        result.save(tmp_path)
    written = write_report(tmp_path, tmp_path / "report.html").read_text(encoding="utf-8")
    assert written == render(read_results(tmp_path), tmp_path) and written.count("<svg") == 2


def test_every_part_is_there(page: str, folder: Path) -> None:
    text = parse(page).text
    assert text.index(IN_SHORT) < text.index("Differs from the paper") < text.index("Agrees with the paper")
    for result in read_results(folder):
        assert f'<section class="study" id="{anchor(result)}">' in page
        assert result.title in text and result.about.split("`")[0] in text
        assert result.made.command in text and result.made.commit in text and result.file in text
        for claim in result.claims:
            assert text.count(claim.says) >= 2  # in short, and with its comparisons
        for line in result.missing:
            assert line.replace("`", "") in text
    for fact in (
        "df321420a19a99f6",
        "e5fbab992ce058ed-f2cae47d",
        "noise_level 0.85",
        "views 0, episodes 0",
        "NVIDIA H200",
    ):
        assert fact in text
    assert "images 8.1 s, views and features 212.4 s, episodes 31.2 s" in text
    assert "Others, as quoted by the paper, not run here" in text and "Not run here:" in text
    assert "Stable Diffusion 1.5 with IP-Adapter" in text
    assert page.count('<img src="data:image/webp;base64,') == 2


def test_the_numbers_are_those_of_the_files(page: str, folder: Path) -> None:
    rows = [" ".join(row) for row in parse(page).rows]
    cells = [cell for result in read_results(folder) for cell in result.cells]
    assert len(cells) > 100
    for cell in cells:
        wanted = [strings.accuracy(cell.accuracy)]
        wanted += [strings.points(gain) for gain in (cell.gain, cell.over_tta) if gain is not None]
        wanted += [f"{cell.paper.value:.2f}"] if cell.paper is not None else []
        assert any(all(number in row for number in wanted) for row in rows), cell


def test_whatever_stands_in_a_file_is_escaped(folder: Path) -> None:
    main = example.fewshot("main")
    cells = tuple(
        cell.model_copy(update={"label": HOSTILE, "generator": HOSTILE if cell.generator else "", "data": HOSTILE})
        for cell in main.cells
    )
    claims = tuple(
        claim.model_copy(
            update={
                "says": HOSTILE,
                "instances": tuple(i.model_copy(update={"where": HOSTILE}) for i in claim.instances),
            }
        )
        for claim in main.claims
    )
    made = main.made.model_copy(
        update={"command": HOSTILE, "machine": {HOSTILE: HOSTILE}, "generators": {HOSTILE: HOSTILE}, "commit": HOSTILE}
    )
    update = {"cells": cells, "claims": claims, "made": made, "study": HOSTILE, "title": HOSTILE, "about": HOSTILE}
    sheets = (Sheet(title=HOSTILE, caption=HOSTILE, file="qualitative-0.webp"),)
    literature = tuple(row.model_copy(update={"method": HOSTILE}) for row in main.literature)
    hostile = main.model_copy(
        update={**update, "missing": (HOSTILE,), "paper": HOSTILE, "sheets": sheets, "literature": literature}
    )
    text = render([hostile], folder)
    assert "script" not in parse(text).seen and "<script" not in text
    assert "&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt;&amp;&#34;$title`" in text


def test_a_picture_that_cannot_be_shown_costs_only_its_place(tmp_path: Path) -> None:
    make_image(0, (64, 48)).save(tmp_path / "good.png")
    (tmp_path / "broken.webp").write_bytes(b"RIFF....WEBPVP8 nothing")
    (tmp_path / "empty.png").touch()
    make_image(0, (64, 48)).save(tmp_path / "strange.tiff")
    names = ["good.png", "gone.png", "broken.webp", "empty.png", "strange.tiff", "../outside.png"]
    sheets = tuple(Sheet(title=f"sheet {n}", caption="c", file=name) for n, name in enumerate(names))
    text = render([example.qualitative().model_copy(update={"sheets": sheets})], tmp_path)
    found = parse(text)
    assert text.count("<img") == 1 and text.count("This picture cannot be shown: ") == 5
    assert all(f"sheet {n}" in found.text for n in range(6))
    assert "gone.png does not exist" in found.text and "empty.png is empty" in found.text
    assert "../outside.png does not lie beside the results" in found.text and "TIFF" in found.text
    assert str(tmp_path) not in text  # no machine's folders


def test_an_empty_page_says_so(tmp_path: Path) -> None:
    path = write([], tmp_path, tmp_path / "deep" / "report.html")
    assert "No results." in parse(path.read_text(encoding="utf-8")).text
    assert [p.name for p in path.parent.iterdir()] == ["report.html"]


def test_a_study_of_which_nothing_ran_says_what_is_missing(tmp_path: Path) -> None:
    bare = example.fewshot("main").model_copy(update={"cells": (), "claims": (), "literature": ()})
    found = parse(render([bare], tmp_path))
    assert "No statement of the paper was tested." in found.text
    assert "Not run here:" in found.text and "table" not in found.seen


def test_a_relative_gain_that_is_no_number(tmp_path: Path) -> None:
    main = example.fewshot("main")
    cells = list(main.cells)
    cells[1] = cells[1].model_copy(update={"gain": Paired(0.0123, 0.001, 0.0, math.nan, 400)})
    path = main.model_copy(update={"cells": tuple(cells)}).save(tmp_path)
    rows = parse(render([read_result(path)], tmp_path)).rows  # through the file and back
    assert next(row for row in rows if "+1.23 ± 0.10" in row)[4] == "–"


def test_runs_of_one_study_are_told_apart(page: str) -> None:
    assert "(cpu)</h2>" in page and 'id="study-efficiency-cpu"' in page and 'id="study-efficiency"' in page


def test_one_episode_has_no_interval_and_no_gain(tmp_path: Path) -> None:
    main = example.fewshot("main")
    cells = tuple(cell.model_copy(update={"gain": None, "over_tta": None}) for cell in main.cells)
    found = parse(render([StudyResult(**{**main.model_dump(), "cells": cells})], tmp_path))
    assert "table" in found.seen and "svg" not in found.seen
