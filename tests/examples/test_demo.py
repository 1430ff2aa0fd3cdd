"""`make demo` from photographs to the page, with geometric views and synthetic banks of benchmarks/demo_bank.py."""

from __future__ import annotations

import json
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from benchmarks import demo_bank
from onesdaug.augment.presets import purpose
from onesdaug.cli import app
from onesdaug.data.samples import CREDITS
from onesdaug.errors import ConfigError, DataError
from onesdaug.fewshot.bank import BankInfo, FeatureBank
from onesdaug.fewshot.evaluate import Task
from onesdaug.report import strings
from onesdaug.report.result import read_result
from onesdaug.studies.kinds.demo.banks import evaluate_folder
from onesdaug.studies.kinds.demo.photographs import sample_files
from onesdaug.studies.kinds.fewshot.panels import panels_of
from onesdaug.studies.spec import load_study
from tests.conftest import make_image

CLASSIFIER = "mini-protonet-convnet"
SOURCES = ("crop-flip", "shape", "pocket")
PER_CLASS = {CLASSIFIER: 20}
TASK = Task(episodes=40)
K = load_study("demo").k
ROOT = Path(__file__).parents[2]
BANKS = ROOT / "artifacts" / "demo"


def full_bank(source: str, k: int = 4, data: str = "synthetic", shift: float = 0.0) -> FeatureBank:
    """Eight classes of thirty images; originals are the same for every source, up to `shift`."""
    rng = torch.Generator().manual_seed(0)
    centres = torch.randn(8, 1, 1, 16, generator=rng)
    originals = (centres + torch.randn(8, 30, 1, 16, generator=rng)).flatten(0, 1)
    views = originals + torch.randn(240, k, 16, generator=torch.Generator().manual_seed(len(source)))
    names = tuple(f"n{c}" for c in range(8))
    ids = tuple(f"n{c}/{i}" for c in range(8) for i in range(30))
    about = {"source": f"/home/someone/{source}", "k": k, "generator": "f00d"}
    info = BankInfo(names, ids, data, "encoder", about, 0, "c0ffee")
    labels = torch.arange(8).repeat_interleave(30)
    return FeatureBank(torch.cat([originals * (1 + shift), views], 1), labels, info)


def make(out: Path, sources: dict[str, FeatureBank], parts: int = 0) -> None:
    """Cut with a checkpoint's card that says all that is needed of one: how its head scores."""
    card = out.parent / f"{out.name}-released" / CLASSIFIER / "card.json"
    card.parent.mkdir(parents=True, exist_ok=True)
    card.write_text(json.dumps({"head": {"name": "protonet", "settings": {"metric": "cosine"}}}))
    demo_bank.make({CLASSIFIER: sources}, out, PER_CLASS, parts, TASK, card.parents[1])


@pytest.fixture(scope="module")
def banks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("banks")
    make(out, {s: full_bank(s) for s in SOURCES}, parts=3)
    return out


@pytest.fixture
def photo(tmp_path: Path) -> Path:
    path = tmp_path / "photo <&>.png"
    make_image(0, (48, 36)).save(path)
    return path


def run(images: list[Path], out: Path, banks: Path, model: str = "shape", *beside: str) -> tuple[int, str, str]:
    """As `make demo` does, with geometric views unless told: exit code, what was printed, and the page."""
    mine = out.parent / "demo.toml"
    text = (files("onesdaug.studies") / "demo.toml").read_text(encoding="utf-8")
    text = text.replace('"artifacts/demo"', f'"{banks}"')
    options = ["--episodes", "40", "--device", "cpu"]
    if beside:
        text = text.replace('model = "pocket"', f'model = "{model}"').replace('["photo"]', json.dumps(beside))
    else:
        options += ["--generator", model]
    mine.write_text(text)
    chosen = [word for image in images for word in ("--images", str(image))]
    shown = CliRunner().invoke(app, ["study", "run", str(mine), "-o", str(out), *options, *chosen])
    return shown.exit_code, shown.output, (out / "report.html").read_text(encoding="utf-8")


def assert_numbers(page: str, banks: Path) -> None:
    """Every number of the evaluation stands in the page."""
    cells = evaluate_folder(banks, TASK).cells
    assert len(cells) == 1 + 1 + 1 + 3
    for cell in cells:
        for shown in filter(None, [strings.accuracy(cell.accuracy), cell.gain and strings.points(cell.gain)]):
            assert shown.replace("± ", '<span class="ci">± ') in page


def test_the_whole_demo(photo: Path, tmp_path: Path, banks: Path) -> None:
    code, printed, page = run([photo], tmp_path / "out", banks)
    assert code == 0, printed
    assert_numbers(page, banks)
    assert page.count("data:image/jpeg") == 1 + K
    assert "photo &lt;&amp;&gt;.png" in page and "<h1>onesdaug: views of one image" in page
    assert not any(text in page for text in (str(tmp_path), "/home", str(ROOT), "http://", "https://"))
    assert "1S-DAug-3 · pocket" in printed and "docs/generators.md" in printed
    assert f"page: {tmp_path / 'out' / 'report.html'}" in printed
    assert (tmp_path / "out" / "views-shape" / "sheet.png").is_file()
    result = read_result(tmp_path / "out" / "demo.json")
    assert result.kind == "demo" and result.cells == tuple(evaluate_folder(banks, TASK).cells)
    assert str(tmp_path) not in result.model_dump_json()
    assert all(fact in page for fact in ("f00d", "c0ffee", "metric cosine", "20 images of each of 8 classes"))


def test_a_bad_image_loses_neither_the_others_nor_the_table(photo: Path, tmp_path: Path, banks: Path) -> None:
    bad = tmp_path / "bad.jpg"
    bad.write_bytes(b"not a picture")
    code, _, page = run([bad, photo], tmp_path / "out", banks)
    assert code == 1
    assert_numbers(page, banks)
    assert page.count("data:image/jpeg") == 1 + K
    assert "<li>bad.jpg: " in page and str(tmp_path) not in page


def test_no_image_at_all_still_gives_the_table(tmp_path: Path, banks: Path) -> None:
    code, _, page = run([tmp_path / "none.jpg"], tmp_path / "out", banks)
    assert code == 1
    assert_numbers(page, banks)
    assert "no views were made: " in page and "none.jpg" in page


def test_missing_banks_are_one_line_and_the_views_are_shown(photo: Path, tmp_path: Path) -> None:
    code, printed, page = run([photo], tmp_path / "out", tmp_path / "nothing")
    assert code == 1
    assert "git checkout -- artifacts/demo" in printed and "demo_bank.py" in printed
    assert page.count("no feature banks in nothing") == 1
    assert page.count("data:image/jpeg") == 1 + K


def test_a_damaged_bank_costs_only_its_rows(banks: Path, tmp_path: Path) -> None:
    for file in banks.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    (tmp_path / f"{CLASSIFIER}.shape.safetensors").write_bytes(b"version https://git-lfs")
    found = evaluate_folder(tmp_path, TASK)
    (panel,) = panels_of(found.cells)
    generated = [f"1S-DAug-{k} · pocket" for k in (1, 2, 3)]
    assert [panel.method(cell) for cell in panel.cells] == ["no views", "crop + flip, K = 3", *generated]
    assert len(found.problems) == 1 and "shape views left out" in found.problems[0]
    assert str(tmp_path) not in found.problems[0]
    (tmp_path / "card.json").write_text('{"banks": [{}]}')
    with pytest.raises(DataError, match="not a card"):
        evaluate_folder(tmp_path)


def test_cut_banks_are_balanced_small_and_described(banks: Path) -> None:
    card = json.loads((banks / "card.json").read_text())
    assert card["heads"][CLASSIFIER]["name"] == "protonet"
    assert [entry["source"] for entry in card["banks"]] == list(SOURCES)
    assert "/home" not in json.dumps(card)
    loaded = [FeatureBank.load(banks / entry["file"]) for entry in card["banks"]]
    whole = full_bank("pocket")
    for entry, bank in zip(card["banks"], loaded, strict=True):
        assert bank.features.shape == (160, 4, 16) and bank.features.dtype == torch.float16
        assert torch.bincount(bank.labels).tolist() == [20] * 8
        assert torch.equal(bank.features[:, 0], loaded[0].features[:, 0]) and bank.info.ids == loaded[0].info.ids
        assert entry["spread"] is None and entry["of_images"] == 240  # 20 of 30: mostly the same images
        assert entry["bytes"] == (banks / entry["file"]).stat().st_size
    assert demo_bank.spread(whole, "pocket", 10, {"name": "protonet", "settings": {}}, 3, replace(TASK, query=5)) > 0
    rows = [whole.info.ids.index(name) for name in loaded[2].info.ids]
    assert rows == sorted(rows)
    assert torch.equal(loaded[2].features, whole.features[rows, :4].half())


def test_a_smaller_part_lies_inside_a_larger_one_and_the_seed_decides() -> None:
    labels = full_bank("pocket").labels
    small, large = (set(demo_bank.part_rows(labels, n, 0).tolist()) for n in (5, 20))
    assert small < large and small != set(demo_bank.part_rows(labels, 5, 1).tolist())
    with pytest.raises(ConfigError, match="30 images, 31 asked for"):
        demo_bank.part_rows(labels, 31, 0)


def test_banks_that_cannot_be_compared_or_shown_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out, shape = tmp_path / "out", full_bank("shape")
    with pytest.raises(DataError, match="differ by up to"):
        make(out, {"shape": shape, "pocket": full_bank("pocket", shift=0.05)})
    with pytest.raises(DataError, match="other images"):
        make(out, {"shape": shape, "pocket": full_bank("pocket", data="another")})
    with pytest.raises(ConfigError, match="2 stored views"):
        make(out, {"pocket": full_bank("pocket", k=2)})
    with pytest.raises(DataError, match="novel test classes only"):
        make(out, {"pocket": full_bank("pocket", data="b96cfa27ba4eb6db")})  # miniImageNet's validation classes
    monkeypatch.setattr(demo_bank, "LIMIT", 1000)
    with pytest.raises(ConfigError, match="the limit is"):
        make(out, {"shape": shape})
    assert not out.exists()


def test_the_sample_photographs_are_there(tmp_path: Path) -> None:
    assert [Path(p).stem for p in sample_files(tmp_path)] == list(CREDITS)
    assert all("CC0" in credit or "public domain" in credit for credit in CREDITS.values())


def test_the_embedded_banks_are_what_their_card_says() -> None:
    if not (BANKS / "card.json").is_file():
        pytest.skip("artifacts/demo is not cut yet: benchmarks/demo_bank.py")
    files = [file for file in BANKS.iterdir() if file.is_file()]
    assert sum(file.stat().st_size for file in files) < 16_000_000
    card = json.loads((BANKS / "card.json").read_text())
    assert {file.name for file in files} == {"card.json", *(entry["file"] for entry in card["banks"])}
    assert all(demo_bank.file_hash(BANKS / entry["file"]) == entry["sha256"] for entry in card["banks"])
    assert not any(path in json.dumps(card) for path in ("/tmp", "/work", "/home", "/root"))
    found = evaluate_folder(BANKS, TASK)
    assert found.problems == [] and {cell.classifier for cell in found.cells} == set(card["heads"])


def test_the_views_behind_the_numbers_are_shown_too(photo: Path, tmp_path: Path, banks: Path) -> None:
    code, printed, page = run([photo], tmp_path / "out", banks, model="pocket")
    assert code == 0, printed
    assert page.count("data:image/jpeg") == 2 * (2 + K)  # original, tweaked and views, of both presets
    told = ["the views to look at", "the views behind the numbers of pocket"]
    assert all(text in page for text in [*told, purpose("pocket-accuracy"), purpose("pocket-faithful")])
    assert "--preset pocket-faithful" in printed and "--preset pocket-accuracy --k" in printed
    folders = [tmp_path / "out" / name for name in ("views-pocket", "views-pocket-pocket-accuracy")]
    assert [(folder / "sheet.png").is_file() for folder in folders] == [True, True]


def test_generators_that_are_ready_are_shown_beside_it(photo: Path, tmp_path: Path, banks: Path) -> None:
    """`pocket` in the place of `photo`: fewer views. One that is not installed is not missed."""
    code, printed, page = run([photo], tmp_path / "out", banks, "shape", "pocket", "not-installed")
    assert code == 0, printed
    few = load_study("demo").beside_k
    assert few < K and page.count("data:image/jpeg") == (1 + K) + 2 * (2 + few)
    assert "the views to look at, by shape" in page and "the views to look at, by pocket" in page
    assert "not-installed" not in printed and load_study("demo").beside == ("photo",)


def test_several_generators_can_be_named(photo: Path, tmp_path: Path, banks: Path) -> None:
    words = ["study", "run", "demo", "--images", str(photo), "-o", str(tmp_path / "out"), "--episodes", "40"]
    done = CliRunner().invoke(app, [*words, "--generator", "shape", "--generator", "pocket", "--device", "cpu"])
    assert all((tmp_path / "out" / f"views-{name}" / "sheet.png").is_file() for name in ("shape", "pocket")), done
