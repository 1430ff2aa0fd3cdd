"""What is chosen for birds, and where it is written."""

import json
import tomllib
from importlib.resources import files

import pytest

from benchmarks.photo_choose import GENERATOR, NAMES, best, written
from benchmarks.photo_sheet import ROOT

STUDY = 'kind = "fewshot"\n\n[settings.cub.pocket]\nsteps = 20\n\n[[classifiers]]\nname = "a"\n'


def row(side: int, guidance: float, *gains: float) -> dict:
    return {
        "side": side, "mode": "class", "noise_level": 1.0, "guidance": guidance, "steps": 4,
        "gains": dict(zip(("1shot", "5shot"), gains, strict=True)),
    }  # fmt: skip


def test_the_row_with_the_largest_mean_gain_of_those_drawn_small_is_chosen() -> None:
    rows = [row(128, 4.0, 5.0, 1.0), row(128, 8.0, 4.0, 3.0), row(256, 16.0, 9.0, 9.0)]
    assert best({"rows": rows}) is rows[1]


def test_settings_are_written_once_and_others_stay() -> None:
    text = written(written(STUDY, row(128, 4.0, 1.0, 1.0)), row(128, 8.0, 1.0, 1.0))
    assert tomllib.loads(text)["settings"]["cub"] == {
        "pocket": {"steps": 20},
        "photo-128": {"mode": "class", "noise_level": 1.0, "guidance": 8.0, "steps": 4},
    }
    assert text.startswith(STUDY.partition("[[")[0]) and text.endswith('[[classifiers]]\nname = "a"\n')


@pytest.mark.parametrize("study", ["headline", "tuned", "fine-grained", "transformers"])
def test_studies_have_what_the_stored_sweep_says(study: str) -> None:
    stored = json.loads((ROOT / "benchmarks/results/photo-validation-cub.json").read_text())
    text = (files("onesdaug.studies") / f"{study}.toml").read_text(encoding="utf-8")
    chosen = {name: best(stored)[name] for name in NAMES}
    assert tomllib.loads(text)["settings"]["cub"][GENERATOR] == chosen
    assert written(text, best(stored)) == text
