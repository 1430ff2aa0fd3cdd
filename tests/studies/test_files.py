"""A study's file, the paper's claims, and results on disk: what is data, without running much."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from onesdaug.augment.config import AugmentConfig
from onesdaug.errors import ConfigError, DataError
from onesdaug.report.result import StudyResult, read_result, read_results
from onesdaug.statistics import mean_ci, paired
from onesdaug.studies.kinds.fewshot.claims import ClaimSpec, EpisodeScores, Ref, weigh
from onesdaug.studies.run import run
from onesdaug.studies.spec import load_study, names
from tests.studies.world import World

# -- the files themselves ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", names())
def test_a_study_file_is_whole(name: str) -> None:
    study = load_study(name)
    assert study.name == name and study.title and study.about and study.paper
    if study.kind == "fewshot":
        assert study.rows and study.uses and study.classifiers and (study.claims or name in ("headline", "tuned"))
        places = [(v.data, v.classifier, v.shot, v.row, v.support, v.query) for v in study.paper_values]
        assert len(set(places)) == len(places)
        known = {c.name for c in study.classifiers}
        assert {c.of_paper for c in study.classifiers} - {""} <= known
        for value in study.paper_values:
            assert value.data in study.data and value.classifier in known and value.shot in study.shots
            assert value.row == "none" or (value.support, value.query) in study.uses
        for claim in study.claims:
            assert set(claim.shots) <= set(study.shots)
            for ref in (*claim.better, claim.than):
                assert ref.row == "none" or (ref.support, ref.query) in study.uses
            assert set(claim.classifiers) <= known


@pytest.mark.parametrize("name", [name for name in names() if load_study(name).kind in ("fewshot", "theory")])
def test_every_table_shows_the_papers_operating_point(name: str) -> None:
    """Beside each preset, and the statements of the paper are judged there."""
    from onesdaug.augment.config import preset
    from onesdaug.augment.solvers import table
    from onesdaug.generators.pocket import Pocket

    study = load_study(name)
    (row,) = [row for row in study.rows if row.id in ("paper-point", "strength")]
    schedule = Pocket.from_pretrained("pocket", device="cpu").schedule
    for own in ("pocket-accuracy", "pocket-imagenet-accuracy"):
        config = preset(own, **row.config)
        assert config.noise_level == AugmentConfig().noise_level == 0.7 and config.noise_map == "strength"
        assert table(schedule, config.solver, config.steps, 0.7, "strength").t0 == 699  # as img2img at 0.7 of 1,000
        assert config.guidance == preset(own).guidance and config.mode == preset(own).mode
    assert not any(
        ref.row == "generated" for claim in getattr(study, "claims", ()) for ref in (*claim.better, claim.than)
    )


def test_both_maps_run_the_same_steps_at_noise_level_1() -> None:
    """So the ablation needs one row for it, not two."""
    from onesdaug.augment.config import preset
    from onesdaug.augment.solvers import table
    from onesdaug.generators.pocket import Pocket

    schedule = Pocket.from_pretrained("pocket", device="cpu").schedule
    for own in ("pocket-accuracy", "pocket-imagenet-accuracy"):
        config = preset(own)
        one, two = (
            table(schedule, config.solver, config.steps, 1.0, noise_map) for noise_map in ("strength", "cumulative")
        )
        assert one.t.tolist() == two.t.tolist()


def test_traditional_edits_are_judged_on_the_papers_own() -> None:
    for name in names():
        study = load_study(name)
        for claim in getattr(study, "claims", ()):
            if "raditional" in claim.says:
                rows = [ref.row for ref in (*claim.better, claim.than)]
                assert "traditional" in rows and "crop-flip" not in rows and "shape" not in rows


def test_no_sentence_of_a_file_says_how_a_classifier_was_trained_or_is_scored() -> None:
    """That is read off the cards (`studies/provenance.py`), so that it cannot drift; captions are measured."""
    import re

    for name in names():
        study = load_study(name)
        for text in (study.title, study.about, *(figure.shows for figure in getattr(study, "figures", ()))):
            assert not re.search(r"cosine|uclidean|trained for|trained on episodes|faithful|stays", text), (name, text)


@pytest.mark.parametrize(
    ("checkpoint", "metric", "told"),
    [
        (
            "mini-protonet-res12",
            {},
            "trained with Euclidean distance on 1- and 5-shot episodes, scored by cosine similarity (the paper: "
            "Euclidean distance, trained on 1-shot episodes)",
        ),
        (
            "mini-protonet-res12",
            {"miniimagenet": "euclidean"},
            "trained with Euclidean distance on 1- and 5-shot episodes, scored by Euclidean distance (the paper: "
            "trained on 1-shot episodes)",
        ),
        (
            "mini-feat-res12",
            {},
            "trained with Euclidean distance on 1- and 5-shot episodes, scored by Euclidean distance (the paper: "
            "trained on 1-shot episodes)",
        ),
    ],
)
def test_what_is_said_of_a_classifier_is_what_its_card_says(
    checkpoint: str, metric: dict[str, str], told: str
) -> None:
    from onesdaug.fewshot.heads import load_head
    from onesdaug.studies.provenance import describe
    from onesdaug.studies.spec import Classifier

    folder = Path(__file__).parents[2] / "artifacts" / "fewshot" / checkpoint
    encoder, paper = {"miniimagenet": checkpoint}, {"miniimagenet": "euclidean"}
    classifier = Classifier(name="x", encoder=encoder, metric=metric, paper_metric=paper)
    head = load_head(folder, **({"metric": metric["miniimagenet"]} if metric else {}))
    assert head is not None
    card = json.loads((folder / "card.json").read_text())
    assert describe(classifier, "miniimagenet", head, card) == told
    assert describe(classifier, "miniimagenet", head, None).startswith("not trained here, scored by ")
    one = {
        **card,
        "arguments": {**card["arguments"], "shot": 1},
        "head": {**card["head"], "trained_with": {"metric": "cosine"}},
    }
    assert describe(classifier, "miniimagenet", head, one).startswith(
        "trained with cosine similarity on 1-shot episodes"
    )


def test_an_unknown_or_broken_study_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no study 'mian'; studies are headline, tuned, main,"):
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
        assert preset("pocket-imagenet-accuracy", **chosen) == preset("pocket-imagenet-fine")


# -- claims -----------------------------------------------------------------------------------------------------------


def block(**scores: float) -> EpisodeScores:
    """A block with these mean accuracies, every episode a little off."""
    rng = np.random.default_rng(0)
    found = EpisodeScores("data", "classifier", 1)
    found.by_row["none", "", 0, 0] = 0.5 + rng.normal(0, 0.01, 50)
    for generator, mean in scores.items():
        found.by_row["generated", generator, 1, 1] = mean + rng.normal(0, 0.01, 50)
    return found


VIEWS = Ref(row="generated", support=1, query=1)
CLAIM = ClaimSpec(says="views help", better=(VIEWS,), than=Ref(row="none"))


def test_a_claim_is_tested_for_every_generator() -> None:
    claim = weigh(CLAIM, [block(good=0.6, bad=0.4, same=0.5)])
    assert claim.verdict == "mixed"
    found = {instance.generator: instance.verdict for instance in claim.instances}
    assert found == {"good": "agrees", "bad": "differs", "same": "no clear difference"}
    assert weigh(CLAIM, [block(good=0.6)]).verdict == "agrees"


def test_a_claim_without_generators_is_tested_once_and_one_without_rows_not_at_all() -> None:
    between = block(good=0.6, bad=0.4)
    between.by_row["crop-flip", "", 1, 1] = between.baseline + 0.02
    crop = ClaimSpec(says="edits hurt", better=(Ref(row="none"),), than=Ref(row="crop-flip", support=1, query=1))
    claim = weigh(crop, [between])
    assert len(claim.instances) == 1 and claim.verdict == "differs"
    assert claim.instances[0].difference == paired(between.baseline, between.by_row["crop-flip", "", 1, 1])
    bare = weigh(CLAIM, [EpisodeScores("data", "classifier", 1, {("none", "", 0, 0): between.baseline})])
    assert bare.verdict == "not tested here" and not bare.instances


def test_a_claim_about_the_papers_models_is_not_tested_on_others() -> None:
    named = CLAIM.model_copy(update={"classifiers": ("ViT-Small",)})
    other = weigh(named, [block(good=0.6)])
    assert other.verdict == "other model" and [i.generator for i in other.instances] == ["good"]  # told, not judged
    assert weigh(named, []).verdict == "not tested here"
    theirs = block(good=0.6)
    theirs.classifier = "ViT-Small"
    assert weigh(named, [theirs, block(bad=0.4)]).verdict == "agrees"


@pytest.mark.parametrize(
    ("shift", "margin", "verdict"),
    [
        (0.02, 0.0, "agrees"),
        (-0.02, 0.0, "differs"),
        (-0.02, 5.0, "agrees"),  # worse, but by less than five points
        (-0.02, 1.0, "differs"),  # the whole interval lies below minus one point
        (-0.02, 2.0, "no clear difference"),
    ],
)
def test_no_worse_is_tested_as_such(shift: float, margin: float, verdict: str) -> None:
    between = block(good=0.5)
    noise = np.random.default_rng(1).normal(0, 0.01, 50)
    between.by_row["generated", "good", 1, 1] = between.baseline + shift + noise - noise.mean()
    claim = weigh(CLAIM.model_copy(update={"margin": margin}), [between])
    assert claim.verdict == verdict and claim.margin == margin


def test_what_matters_most_has_to_cost_more_than_everything_else() -> None:
    """Every other change has to be better than the one that is said to matter most; the closest one speaks."""
    ref = {name: Ref(row=name, support=1, query=1) for name in ("condition", "weight", "tweak")}
    most = ClaimSpec(says="x", better=(ref["weight"], ref["tweak"]), than=ref["condition"])
    found = block()
    for name, mean in (("condition", 0.40), ("weight", 0.45), ("tweak", 0.60)):
        found.by_row[name, "g", 1, 1] = found.baseline - 0.5 + mean
    claim = weigh(most, [found])
    assert claim.verdict == "agrees" and claim.instances[0].row == "weight"
    assert claim.instances[0].difference.difference == pytest.approx(0.05)
    found.by_row["weight", "g", 1, 1] = found.baseline - 0.5 + 0.35  # another change costs more
    assert weigh(most, [found]).verdict == "differs"


def test_seeds_are_rows_of_scores() -> None:
    found = block(good=0.5)
    rng = np.random.default_rng(2)
    found.by_row["generated", "good", 1, 1] = 0.52 + rng.normal(0, 0.02, (3, 1)) + rng.normal(0, 0.01, (3, 50))
    difference = weigh(CLAIM, [found]).instances[0].difference
    assert (difference.seeds, difference.n) == (3, 50)
    alone = paired(found.by_row["generated", "good", 1, 1][0], found.baseline)
    assert difference.ci95 > alone.ci95


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
    from onesdaug.report.records import Cell
    from onesdaug.report.result import Made

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
