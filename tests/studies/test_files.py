"""A study's file, the paper's claims, and results on disk: what is data, without running much."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from onesdaug.errors import ConfigError, DataError
from onesdaug.statistics import mean_ci, paired
from onesdaug.studies.accuracy import Block, weigh
from onesdaug.studies.result import StudyResult, read_result, read_results
from onesdaug.studies.run import run
from onesdaug.studies.spec import ClaimSpec, Ref, load_study, names
from tests.studies.world import World

# -- the files themselves ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", names())
def test_a_study_file_is_whole(name: str) -> None:
    study = load_study(name)
    assert study.name == name and study.title and study.about and study.paper
    if study.kind == "fewshot":
        assert study.rows and study.claims and study.uses and study.classifiers
        places = [(v.data, v.classifier, v.shot, v.row, v.support, v.query) for v in study.paper_values]
        assert len(set(places)) == len(places)
        known = {c.name for c in study.classifiers}
        for value in study.paper_values:
            assert value.data in study.data and value.classifier in known and value.shot in study.shots
            assert value.row == "none" or (value.support, value.query) in study.uses
        for claim in study.claims:
            assert set(claim.shots) <= set(study.shots)
            for ref in (claim.better, claim.than):
                assert ref.row == "none" or (ref.support, ref.query) in study.uses


def test_an_unknown_or_broken_study_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no study 'mian'; studies are main,"):
        load_study("mian")
    broken = tmp_path / "mine.toml"
    broken.write_text("kind = ")
    with pytest.raises(ConfigError, match=r"mine\.toml is not TOML"):
        load_study(str(broken))
    wrong = tmp_path / "wrong.toml"
    wrong.write_text('kind = "fewshot"\ntitle = "t"\npaper = "p"\nabout = "a"\ncolour = "red"\n')
    with pytest.raises(ConfigError, match=r"wrong\.toml: colour: Extra inputs"):
        load_study(str(wrong))
    claim = tmp_path / "claim.toml"
    text = wrong.read_text().replace('colour = "red"\n', "")
    claim.write_text(text + '[[claims]]\nsays = "x"\nbetter = { row = "ghost" }\nthan = { row = "none" }\n')
    with pytest.raises(ConfigError, match="no row called ghost"):
        load_study(str(claim))


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ('views = "crop-flip"\ngenerator = { side = 64 }', "row r has views crop-flip, which no generator makes"),
        ('views = "generated"\ngenerator = { side = 0 }', r"rows\.0\.generator\.side: Input should be greater than 0"),
        ('views = "generated"\ngenerator = { sides = 64 }', r"rows\.0\.generator\.sides: Extra inputs"),
    ],
)
def test_a_row_that_loads_its_generator_wrongly_is_named(tmp_path: Path, row: str, reason: str) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(
        f'kind = "fewshot"\ntitle = "t"\npaper = "p"\nabout = "a"\n[[rows]]\nid = "r"\nlabel = "r"\n{row}\n'
    )
    with pytest.raises(ConfigError, match=reason):
        load_study(str(file))


def test_birds_are_studied_with_the_preset_for_them() -> None:
    from onesdaug.augment.config import preset

    for name in ("fine-grained", "transformers"):
        chosen = load_study(name).settings["cub"]["pocket-imagenet"]
        assert preset("pocket-imagenet", **chosen) == preset("pocket-imagenet-fine")


# -- claims -----------------------------------------------------------------------------------------------------------


def block(**scores: float) -> Block:
    """A block with these mean accuracies, every episode a little off."""
    rng = np.random.default_rng(0)
    found = Block("data", "classifier", 1)
    found.scores["none", "", 0, 0] = 0.5 + rng.normal(0, 0.01, 50)
    for generator, mean in scores.items():
        found.scores["generated", generator, 1, 1] = mean + rng.normal(0, 0.01, 50)
    return found


CLAIM = ClaimSpec(says="views help", better=Ref(row="generated", support=1, query=1), than=Ref(row="none"))


def test_a_claim_is_tested_for_every_generator() -> None:
    claim = weigh(CLAIM, [block(good=0.6, bad=0.4, same=0.5)])
    assert claim is not None and claim.verdict == "mixed"
    found = {instance.generator: instance.verdict for instance in claim.instances}
    assert found == {"good": "agrees", "bad": "differs", "same": "no clear difference"}
    assert weigh(CLAIM, [block(good=0.6)]).verdict == "agrees"  # type: ignore[union-attr]


def test_a_claim_without_generators_is_tested_once_and_one_without_rows_not_at_all() -> None:
    between = block(good=0.6, bad=0.4)
    between.scores["crop-flip", "", 1, 1] = between.baseline + 0.02
    crop = ClaimSpec(says="edits hurt", better=Ref(row="none"), than=Ref(row="crop-flip", support=1, query=1))
    claim = weigh(crop, [between])
    assert claim is not None and len(claim.instances) == 1 and claim.verdict == "differs"
    assert claim.instances[0].difference == paired(between.baseline, between.scores["crop-flip", "", 1, 1])
    assert weigh(CLAIM, [Block("data", "classifier", 1, {("none", "", 0, 0): between.baseline})]) is None


# -- results on disk --------------------------------------------------------------------------------------------------


def test_results_of_other_kinds_are_left_alone_and_broken_ones_named(world: World, tmp_path: Path) -> None:
    run(["theory", "grid"], world.settings(episodes=4), tmp_path, "")
    (tmp_path / "pocket.json").write_text(json.dumps({"rows": []}))
    assert [result.study for result in read_results(tmp_path)] == ["grid", "theory"]  # in the paper's order
    (tmp_path / "grid.json").write_text('{"study": "grid"}')
    with pytest.raises(DataError, match=r"grid\.json is not a study's result of this version"):
        read_results(tmp_path)


def test_a_mean_of_nothing_survives_json(tmp_path: Path) -> None:
    """A relative gain over a baseline of 0 is not a number."""
    from onesdaug.studies.result import Cell, Made

    zero, some = np.zeros(4), np.array([0.1, 0.2, 0.1, 0.3])
    made = Made(command="", commit="", date="", machine={}, seconds={}, seeds={}, data={})
    cell = Cell(
        data="d",
        classifier="c",
        shot=1,
        row="r",
        label="l",
        kind="oracle",
        accuracy=mean_ci(some),
        gain=paired(some, zero),
    )
    result = StudyResult(study="main", title="", paper="", about="", made=made, cells=(cell,))
    back = read_result(result.save(tmp_path)).cells[0]
    assert back.gain is not None and np.isnan(back.gain.relative_gain)
