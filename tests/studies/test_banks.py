"""What studies keep and take up again: banks shared, killed runs, folders of one's own, nothing there."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest

from onesdaug.report.result import read_result
from onesdaug.studies.banks import requests
from onesdaug.studies.context import Missing, StudyContext
from onesdaug.studies.run import run
from onesdaug.studies.spec import load_study
from tests.studies.world import CLASSES, IMAGES, World, check_cells, only

FEW = """
kind = "fewshot"
title = "One view"
paper = "none"
about = "ProtoNet with one view."
data = ["miniimagenet"]
uses = [[1, 1]]
classifiers = [{ name = "ProtoNet-Res12", encoder = { miniimagenet = "mini-protonet-res12" } }]
rows = [{ id = "generated", label = "1S-DAug", views = "generated" }]
"""


def test_the_headline_shares_the_banks_of_the_tables(world: World) -> None:
    context = StudyContext(world.settings())
    wanted: dict[str, set[Path]] = {"headline": set(), "main": set()}
    for name, paths in wanted.items():
        for request in requests(load_study(name), context):
            with suppress(Missing):  # the small world has neither tieredImageNet nor every checkpoint
                paths.add(context.banks.path(request))
    assert wanted["main"] < wanted["headline"]
    assert len(wanted["headline"]) == 4 * 4 * 3  # classifiers on both benchmarks, rows, seeds


def test_a_preset_that_draws_from_the_condition_alone_is_called_so(world: World, tmp_path: Path) -> None:
    (tmp_path / "few.toml").write_text(
        FEW.replace('views = "generated" }', 'views = "generated", config = { noise_level = 1.0 } }')
    )
    result = only(run([str(tmp_path / "few.toml")], world.settings(tmp_path / "work"), tmp_path, ""))
    assert [c.label for c in result.cells] == ["no views", "condition alone"]


def test_studies_share_banks_and_a_rerun_makes_nothing(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = world.settings(tmp_path / "work")
    first = run(["main", "grid", "theory"], settings, tmp_path / "a", "")
    banks = sorted(path.name for path in (tmp_path / "work" / "banks").iterdir())
    # two encoders; crop + flip, traditional; generated, at the paper's noise level, both on validation classes too
    assert len(banks) == 2 * (2 + 2 + 2)

    def never(*_: object, **__: object) -> None:
        raise AssertionError("made again")

    import onesdaug.studies.banks as banks_module
    import onesdaug.studies.context as context

    monkeypatch.setattr(banks_module, "embed_all", never)
    monkeypatch.setattr(context, "load_split", never)  # no image is decoded
    again = run(["main", "grid", "theory"], settings, tmp_path / "b", "")
    for (before, _), (after, _) in zip(first.results, again.results, strict=True):
        assert before.cells == after.cells and before.theory == after.theory
    (tmp_path / "work" / "scores").rename(tmp_path / "gone")
    recomputed = run(["grid"], settings, tmp_path / "c", "")
    assert recomputed.results[0][0].cells == first.results[1][0].cells
    torn = next((tmp_path / "work" / "scores").iterdir())
    torn.write_bytes(torn.read_bytes()[:20])
    assert run(["grid"], settings, tmp_path / "c", "").results[0][0].cells == first.results[1][0].cells


def test_a_killed_run_goes_on(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import onesdaug.fewshot.embed as embed
    import onesdaug.studies.banks as banks

    monkeypatch.setitem(banks.CHUNK, "cpu", 40)
    settings, encode, seen = world.settings(tmp_path / "work"), embed._encode, []

    def dies(*args: object) -> object:
        seen.append(1)
        if len(seen) == 3:
            raise KeyboardInterrupt
        return encode(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(embed, "_encode", dies)
    with pytest.raises(KeyboardInterrupt):
        run(["grid"], settings, tmp_path, "")
    run(["grid"], settings, tmp_path, "")
    assert len(seen) == 7  # two banks of three chunks, two of them before the kill, which itself counts
    assert (tmp_path / "grid.json").is_file()


def test_more_views_are_made_when_a_study_wants_them(world: World, tmp_path: Path) -> None:
    settings = world.settings(tmp_path / "work")
    (tmp_path / "few.toml").write_text(FEW)
    first = only(run([str(tmp_path / "few.toml")], settings, tmp_path, ""))
    assert [(c.support, c.query) for c in first.cells] == [(0, 0), (1, 1)]
    more = only(run(["grid"], settings, tmp_path, ""))
    check_cells(more)
    assert len(list((tmp_path / "work" / "banks").iterdir())) == 2  # one in the same place, one at another noise level
    again = next(c for c in more.cells if (c.support, c.query) == (1, 1))
    assert again.accuracy == first.cells[1].accuracy  # the first view is the same, whatever comes after it


@pytest.mark.parametrize("given", ["whole path", "name under the root"])
def test_a_folder_of_ones_own_is_data_too(world: World, tmp_path: Path, given: str) -> None:
    mine = tmp_path / "data" / "mine"
    mine.mkdir(parents=True)
    (mine / "test").symlink_to(world.root / "cub" / "test")
    name = str(mine) if given == "whole path" else "mine"
    (tmp_path / "few.toml").write_text(FEW.replace("miniimagenet", name).replace("{ " + name, '{ "' + name + '"'))
    settings = world.settings(tmp_path / "work", root=tmp_path / "data")
    result = only(run([str(tmp_path / "few.toml")], settings, tmp_path, ""))
    assert {c.data for c in result.cells} == {"mine"} and str(tmp_path) not in result.model_dump_json()
    assert result.made.data["mine"].startswith(f"test, {CLASSES} classes, {CLASSES * IMAGES} images")
    (tmp_path / "gone.toml").write_text(FEW.replace("miniimagenet", "gone"))
    lost = run([str(tmp_path / "gone.toml")], settings, tmp_path, "").results[0][0]
    assert lost.missing[0].startswith("gone: neither a known benchmark")


def test_rows_that_come_to_the_same_settings_share_a_bank(world: World, tmp_path: Path) -> None:
    """A row may spell out what the preset has anyway; the one that wants fewer views must not win."""
    same = '{ id = "same", label = "same", views = "generated", config = { noise_level = 1.0 }, uses = [[1, 1]] },'
    text = FEW.replace("uses = [[1, 1]]", "uses = [[2, 2]]").replace("rows = [", f"rows = [{same}")
    text += '[[claims]]\nsays = "x"\nbetter = { row = "generated", support = 2, query = 2 }\nthan = { row = "none" }\n'
    (tmp_path / "twice.toml").write_text(text)
    result = only(run([str(tmp_path / "twice.toml")], world.settings(tmp_path / "work"), tmp_path, ""))
    assert [(c.row, c.support) for c in result.cells] == [("none", 0), ("same", 1), ("generated", 2)]
    assert len(list((tmp_path / "work" / "banks").iterdir())) == 1


def test_nothing_there_is_said_in_one_line_and_loses_nothing(world: World, tmp_path: Path) -> None:
    good = run(["grid"], world.settings(), tmp_path, "").results[0][1]
    assert good is not None
    before = good.read_text()
    empty = world.settings(tmp_path / "work", root=tmp_path / "nowhere")
    result, path = run(["grid"], empty, tmp_path, "").results[0]
    assert path is None and good.read_text() == before
    assert not result.cells and len(result.missing) == 1 and "\n" not in result.missing[0]
    none = run(["grid"], world.settings(tmp_path / "work", generators=("pocket-of-nobody",)), tmp_path, "")
    assert none.results[0][1] is None and "pocket-of-nobody" in none.results[0][0].missing[0]
    fresh = run(["grid"], empty, tmp_path / "other", "").results[0][1]  # where there is nothing yet, the line is kept
    assert fresh is not None and read_result(fresh).missing == result.missing


CHEAPER = """
kind = "fewshot"
title = "cheaper"
paper = "none"
about = "sides and decoders"
data = ["miniimagenet"]
uses = [[1, 1]]

[[classifiers]]
name = "ProtoNet-Res12"
encoder = { miniimagenet = "mini-protonet-res12" }

[[rows]]
id = "released"
label = "as released"
views = "generated"
config = { steps = 2 }

[[rows]]
id = "small"
label = "16 px"
views = "generated"
config = { steps = 2 }
generator = { side = 16 }

[[rows]]
id = "tiny"
label = "tiny decoder"
views = "generated"
config = { steps = 2 }
generator = { decoder = "decoder" }

[[rows]]
id = "odd"
label = "20 px"
views = "generated"
generator = { side = 20 }
"""


def test_a_row_may_load_its_generator_in_another_way(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other networks, other banks; what cannot be loaded costs its row and is said in one line."""
    from onesdaug.generators.pocket import Pocket
    from tests.generators.test_pocket_cheaper import save_decoder

    generator = Pocket.from_pretrained(world.generator, device="cpu")
    save_decoder(tmp_path / "decoder", generator.latents, channels=4)
    monkeypatch.chdir(tmp_path)  # a relative path starts where the study is run
    (tmp_path / "cheaper.toml").write_text(CHEAPER)
    result = only(run([str(tmp_path / "cheaper.toml")], world.settings(tmp_path / "work", per_class=17), tmp_path, ""))
    assert [cell.row for cell in result.cells] == ["none", "released", "small", "tiny"]
    assert len(list((tmp_path / "work" / "banks").iterdir())) == 3
    assert result.made.generators["tiny, 16 px"] == f"{generator.fingerprint}:16px"
    assert result.made.generators["tiny, tiny decoder"].startswith(f"{generator.fingerprint}:")
    (line,) = result.missing
    assert "side=20" in line and "multiple of 8 from 8 to 128" in line
