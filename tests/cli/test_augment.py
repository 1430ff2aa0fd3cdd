"""The command as users meet it: bad inputs, exit codes, flags, a real kill -9."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from typer.testing import CliRunner, Result

from onesdaug import cli
from onesdaug.augment.presets import purpose
from onesdaug.jobs import sheet as sheets
from tests.conftest import make_image
from tests.data.test_images import png_claiming
from tests.jobs.fake import contents

PROGRAM = [sys.executable, "-c", "from onesdaug.cli import main; main()"]


def augment(*arguments: object) -> Result:
    return CliRunner().invoke(cli.app, ["augment", *map(str, arguments)])


def rows_of(out: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in (out / "manifest.jsonl").read_text().splitlines()]


@pytest.fixture
def zoo(tmp_path: Path) -> Path:
    """One file of every kind of trouble, and a good one."""
    folder = tmp_path / "zoo"
    folder.mkdir()
    good = make_image(0, (40, 30))
    good.save(folder / "good.png")
    good.resize((300, 300)).save(folder / "cut.jpg")
    (folder / "cut.jpg").write_bytes((folder / "cut.jpg").read_bytes()[:2000])
    (folder / "text.png").write_text("hello")
    (folder / "bomb.png").write_bytes(png_claiming(60_000, 60_000))
    (folder / "folder.png").mkdir()
    (folder / "link.png").symlink_to(folder / "gone.png")
    good.convert("CMYK").save(folder / "cmyk.jpg")
    Image.new("I;16", (9, 9), 30_000).save(folder / "deep.png")
    good.convert("P").save(folder / "palette.png")
    exif = Image.Exif()
    exif[0x0112] = 6
    good.save(folder / "turned.jpg", exif=exif)
    good.save(folder / "film.gif", save_all=True, append_images=[Image.new("RGB", good.size)])
    Image.new("RGB", (1, 1), "red").save(folder / "dot.png")
    Image.new("RGB", (20_000, 10), "red").save(folder / "strip.png")
    return folder


def test_every_bad_input_has_its_line_and_the_rest_goes_on(zoo: Path, tmp_path: Path) -> None:
    out = zoo / "out"
    result = augment(zoo, "-o", out, "--model", "shape", "--k", 1)
    assert result.exit_code == 1
    rows = {Path(str(row["source"])).name: row for row in rows_of(out)}
    errors = {
        "cut.jpg": "cut off",
        "text.png": "text file",
        "bomb.png": "decompression bomb",
        "folder.png": "is a folder",
        "link.png": "link to a file that does not exist",
    }
    notes = {
        "cmyk.jpg": "CMYK converted to RGB",
        "deep.png": "16-bit greyscale scaled to 8 bits",
        "palette.png": "palette converted to RGB",
        "turned.jpg": "EXIF rotation applied",
        "film.gif": "frame 1 of 2 used",
    }
    for name, reason in errors.items():
        assert rows[name]["status"] == "error"
        assert reason in str(rows[name]["reason"])
        assert any(line.startswith("failed:") and name in line for line in result.stderr.splitlines())
    for name, note in notes.items():
        assert rows[name]["status"] == "ok"
        assert note in rows[name]["notes"]  # type: ignore[operator]
        assert f"{name}: {note}" in result.stderr
    sizes = {"good.png": [40, 30], "turned.jpg": [30, 40], "dot.png": [1, 1], "strip.png": [20_000, 10]}
    for name, size in sizes.items():
        assert rows[name]["size"] == size
        assert list(Image.open(out / str(rows[name]["view"])).size) == size
    assert rows["out"]["status"] == "note"
    assert "output folder inside the input" in result.stderr
    assert "8 views made" in result.stdout


def test_empty_folder(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    result = augment(tmp_path / "empty", "-o", tmp_path / "out")  # no weights are needed to say so
    assert result.exit_code == 1
    assert "no jpg" in result.stderr
    (row,) = rows_of(tmp_path / "out")
    assert (row["status"], row["source"]) == ("error", str(tmp_path / "empty"))


def test_resume_k_raised_no_overwrite_and_sheet(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for number in range(2):
        make_image(number).save(tmp_path / "in" / f"{number}.png")
    common = [tmp_path / "in", "-o", tmp_path / "out", "--model", "shape", "--sheet"]
    assert augment(*common, "--k", 1).exit_code == 0
    before = contents(tmp_path / "out")
    result = augment(*common, "--k", 2, "--save_aug")  # the paper's spelling
    assert result.exit_code == 0
    after = contents(tmp_path / "out")
    assert set(after) - set(before) == {f"{n}_{f}" for n in (0, 1) for f in ("view2.png", "tweak1.png", "tweak2.png")}
    assert all(after[name] == data for name, data in before.items() if name != "sheet.png")
    other = augment(*common, "--shape-aug-rotate", 5)
    assert other.exit_code == 1
    assert "--overwrite" in other.stderr
    assert contents(tmp_path / "out")["0_view1.png"] == before["0_view1.png"]
    assert augment(*common, "--shape-aug-rotate", 5, "--overwrite").exit_code == 0
    assert contents(tmp_path / "out")["0_view1.png"] != before["0_view1.png"]


def test_with_a_generator_the_start_line_says_what_really_runs(
    tiny_sd: Path, tiny_ip: dict[str, Path], tmp_path: Path
) -> None:
    make_image(0, (48, 32)).save(tmp_path / "a.png")
    common = [tmp_path / "a.png", "-o", tmp_path / "out", "--model", tiny_sd, "--ip-repo", tiny_ip["base"]]
    result = augment(*common, "--k", 2, "--device", "cpu", "--sheet", "--ip_scale", 0.5, "--steps", 4)
    assert result.exit_code == 0, result.output
    row = rows_of(tmp_path / "out")[0]
    assert f"enters at t={row['t0']}" in result.stderr
    assert f"{row['steps_run']} of 4 steps" in result.stderr
    assert Image.open(tmp_path / "out" / "a_view2.png").size == (48, 32)
    assert Image.open(tmp_path / "out" / "sheet.png").width > 4 * 200  # original, tweaked, two views


def test_flags_become_settings_and_unset_ones_keep_the_preset() -> None:
    from onesdaug.cli.augment import _config

    assert _config("paper-fast", {"guidance": 2.0}, None, {}).steps == 10
    vlm = _config("vlm", {}, None, {"rotate": 3.0}).shape
    assert vlm is not None
    assert (vlm.rotate, vlm.stretch) == (3.0, 0.40)
    assert _config("vlm", {"condition": False}, False, {}).shape is None


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--noise-level", "1.5"], ["--noise-level: "]),
        (["--cfg", "0", "--shape-aug-persp", "3"], ["--cfg: ", "--shape-aug-persp: "]),
        (["--solver", "euler"], ["--solver: ", "ddim"]),
        (["--preset", "fast"], ["paper-fast"]),
        (["--no-shape-aug", "--shape-aug-rotate", "3"], ["contradict"]),
        (["--model", "/no/such/model"], ["/no/such/model"]),
        (["--device", "gpu"], ["device 'gpu' is not known"]),
        (["--no-ip-adapter", "--ip-scale", "0.5"], ["--no-ip-adapter leaves nothing"]),
        (["--model", "shape", "--steps", "5", "--cfg", "3"], ["--steps, --cfg would do nothing"]),
    ],
)
def test_wrong_settings_are_readable_lines(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    flags: list[str],
    said: list[str],
) -> None:
    make_image(0).save(tmp_path / "a.png")
    monkeypatch.setattr(
        sys, "argv", ["onesdaug", "augment", str(tmp_path / "a.png"), "-o", str(tmp_path / "o"), *flags]
    )
    with pytest.raises(SystemExit) as caught:
        cli.main()
    assert caught.value.code == 2
    shown = capsys.readouterr().err
    assert shown.startswith("error: ")
    assert all(text in shown for text in said)
    assert "Traceback" not in shown
    assert not (tmp_path / "o").exists()


@pytest.mark.parametrize("model", ["shape", "sd"])
def test_kill_9_then_rerun_is_byte_identical(
    tmp_path: Path, model: str, tiny_sd: Path, tiny_ip: dict[str, Path]
) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    for number in range(8):
        make_image(number, (400, 300)).save(folder / f"{number}.png")
    which = ["shape"] if model == "shape" else [tiny_sd, "--ip-repo", tiny_ip["base"], "--steps", 5]
    common = [folder, "--model", *which, "--k", 3, "--batch-size", 4]
    assert augment(*common, "-o", tmp_path / "whole").exit_code == 0
    out = tmp_path / "cut"
    child = subprocess.Popen(
        [*PROGRAM, "augment", *map(str, common), "-o", str(out)],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + 60
    while len(list(out.glob("*_view*.png"))) < 6 and child.poll() is None and time.monotonic() < deadline:
        time.sleep(0.002)
    child.send_signal(signal.SIGKILL)
    assert child.wait() == -signal.SIGKILL, "the job was over before it could be killed"
    assert 6 <= len(contents(out)) < 24
    for data in contents(out).values():
        assert data.endswith(b"IEND\xaeB`\x82")  # no half-written file under a final name
    result = augment(*common, "-o", out)
    assert result.exit_code == 0
    assert contents(out) == contents(tmp_path / "whole")


def test_ctrl_c_exits_with_130(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from onesdaug.augment.operator import Augmenter

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    make_image(0).save(tmp_path / "a.png")
    monkeypatch.setattr(Augmenter, "run", interrupted)
    result = augment(tmp_path / "a.png", "-o", tmp_path / "out", "--model", "shape")
    assert result.exit_code == 130
    assert "again to go on" in result.stderr


def test_an_output_that_cannot_be_written_is_said_before_loading(tmp_path: Path) -> None:
    make_image(0).save(tmp_path / "a.png")
    (tmp_path / "file").write_text("")
    result = augment(tmp_path / "a.png", "-o", tmp_path / "file" / "x", "--model", "/no/such/model")
    assert "is not a folder that can be written to" in str(result.exception)


def test_a_sheet_that_fails_does_not_hide_the_summary(tmp_path: Path) -> None:
    make_image(0).save(tmp_path / "a.png")
    out = tmp_path / "o"
    (out / "sheet.png").mkdir(parents=True)
    result = augment(tmp_path / "a.png", "-o", out, "--model", "shape", "--k", 1, "--sheet")
    assert result.exit_code == 1
    assert "1 views made" in result.output
    assert (out / "a_view1.png").is_file() and (out / "sheet.png").is_dir()  # the folder is somebody else's


def test_thin_images_fail_alone_with_crop_and_a_sheet(tmp_path: Path, tiny_sd: Path, tiny_ip: dict[str, Path]) -> None:
    folder, out = tmp_path / "in", tmp_path / "o"
    folder.mkdir()
    Image.new("RGB", (2000, 10), "red").save(folder / "thin.png")
    make_image(0, (40, 30)).save(folder / "good.png")
    flags = ["--model", tiny_sd, "--ip-repo", tiny_ip["base"], "--steps", 2, "--fit", "crop", "--k", 1, "--sheet"]
    result = augment(folder, "-o", out, *flags)
    assert result.exit_code == 1 and "1 views made" in result.output and "1 inputs failed" in result.output
    assert {"good_view1.png", "sheet.png"} == set(contents(out))


def test_other_seeds_are_not_shown_as_this_one(tmp_path: Path) -> None:
    make_image(0).save(tmp_path / "a.png")
    out = tmp_path / "o"
    assert augment(tmp_path / "a.png", "-o", out, "--model", "shape", "--k", 1, "--sheet").exit_code == 0
    assert augment(tmp_path / "a.png", "-o", out, "--model", "shape", "--k", 1, "--seed", 1, "--sheet").exit_code == 1
    assert Image.open(out / "sheet.png").size[1] < 2 * 200  # empty: OUT holds views of seed 0 only


def test_links_are_followed_and_loops_end(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "elsewhere").mkdir()
    make_image(0).save(tmp_path / "in" / "a.png")
    make_image(1).save(tmp_path / "elsewhere" / "b.png")
    (tmp_path / "in" / "linked").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "in" / "loop").symlink_to(tmp_path / "in")
    augment(tmp_path / "in", "-o", tmp_path / "o", "--model", "shape", "--k", 1, "--recursive")
    assert set(contents(tmp_path / "o")) == {"a_view1.png", "linked/b_view1.png"}


def test_the_tweaks_flip_has_a_flag(tmp_path: Path) -> None:
    """Without it no view is mirrored; all else, the other draws of the tweak included, stays."""
    import json

    make_image(1, (40, 30)).save(tmp_path / "a.png")
    psis = {}
    for flag in ("--shape-aug-flip", "--no-shape-aug-flip"):
        out = tmp_path / flag
        assert augment(tmp_path / "a.png", "-o", out, "--model", "shape", "--k", 8, flag).exit_code == 0
        psis[flag] = [json.loads(line)["psi"] for line in (out / "manifest.jsonl").read_text().splitlines()]
    assert any(psi["flip"] for psi in psis["--shape-aug-flip"])
    assert psis["--no-shape-aug-flip"] == [{**psi, "flip": False} for psi in psis["--shape-aug-flip"]]


def test_the_manifest_can_make_a_view_again(tmp_path: Path) -> None:
    from onesdaug import AugmentConfig
    from onesdaug.augment.config import preset

    make_image(0).save(tmp_path / "a.png")
    augment(tmp_path / "a.png", "-o", tmp_path / "o", "--model", "shape", "--k", 1, "--shape-aug-rotate", 5)
    row = rows_of(tmp_path / "o")[0]
    assert AugmentConfig(**row["settings"]) == preset("paper", shape={"rotate": 5})


def test_speed_options_reach_the_model_or_are_refused(
    tiny_sd: Path, tiny_ip: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from onesdaug.errors import ConfigError
    from onesdaug.generators import speed

    monkeypatch.setattr(speed, "BACKEND", "eager")
    make_image(0, (48, 32)).save(tmp_path / "a.png")
    common = [tmp_path / "a.png", "--model", tiny_sd, "--ip-repo", tiny_ip["base"], "--device", "cpu", "--k", 1]
    common += ["--steps", 2, "--batch-size", 1, "--cfg_interval", 0.5, 1]
    for name, more in (("plain", []), ("fast", ["--compile", "regional"]), ("large", ["--side", 48])):
        result = augment(*common, "-o", tmp_path / name, *more)
        assert result.exit_code == 0, result.output
    plain, fast, large = (rows_of(tmp_path / name)[0] for name in ("plain", "fast", "large"))
    assert plain["settings"]["guidance_interval"] == [0.5, 1.0]  # type: ignore[index]
    assert plain["key"] == fast["key"] and str(large["generator"]).endswith(":48px")
    for wrong, reason in (
        (["--compile", "fast"], "--compile: must be off, regional or max, got 'fast'"),
        (["--cfg-interval", 0.9, 0.1], "--cfg-interval"),
        (["--side", 30], "multiple of 4"),
        (["--decoder", tiny_sd / "vae"], "AutoencoderTiny"),
        (["--model", "shape", "--compile", "max"], "no network"),
    ):
        failed = augment(*(common if wrong[0] != "--model" else common[:1]), "-o", tmp_path / "none", *wrong)
        assert isinstance(failed.exception, ConfigError) and reason in str(failed.exception)


@pytest.mark.parametrize("encoding", ["latin-1", "ascii"])
def test_terminals_that_know_few_signs_and_names_that_command_them(tmp_path: Path, encoding: str) -> None:
    folder = tmp_path / "\x1b]0;mine\x07→"
    folder.mkdir()
    make_image(0).save(folder / "\x1b[2Ja.png")
    (folder / "\x1b[31mb.png").write_text("no image")
    environment = {**os.environ, "PYTHONIOENCODING": encoding, "LC_ALL": "C"}
    call = [*PROGRAM, "augment", str(folder), "-o", str(folder / "out"), "--model", "shape"]
    done = subprocess.run(call, env=environment, capture_output=True, check=False)
    assert done.returncode == 1 and b"3 views made" in done.stdout, done.stderr
    assert encoding == "ascii" or b"->" in done.stdout  # click takes ASCII for a mistake, and writes UTF-8
    assert b"Traceback" not in done.stderr and b"\x1b" not in done.stdout + done.stderr
    assert b"\\x1b[31mb.png" in done.stderr
    shown = subprocess.run([*PROGRAM, "augment", "--help"], env=environment, capture_output=True, check=False)
    assert shown.returncode == 0 and b"Eta" in shown.stdout


def test_the_first_command_draws_what_the_picture_shows_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    titles: list[list[str]] = []

    def drawn(*given: Any) -> Image.Image:
        titles.append(given[2].split(" · ")[:2])
        return draw(*given)

    draw = sheets.draw_sheet
    monkeypatch.setattr(sheets, "draw_sheet", drawn)
    make_image(0, (48, 36)).save(tmp_path / "cat.png")
    common = [tmp_path / "cat.png", "--sheet", "--k", 1, "--device", "cpu"]
    told = augment(*common, "-o", tmp_path / "v").stderr
    assert f"pocket, preset {purpose('pocket-faithful')}: dpm++, noise level 0.4 " in told
    told = augment(*common, "-o", tmp_path / "w", "--preset", "pocket-accuracy", "--steps", 2).stderr
    assert f"preset {purpose('pocket-accuracy')}, changed: dpm++" in told
    assert titles == [["pocket", "preset pocket-faithful"], ["pocket", "preset pocket-accuracy, changed"]]
    assert [rows_of(tmp_path / name)[0]["noise_level"] for name in "vw"] == [0.4, 1.0]
