"""`onesdaug pope` as users meet it: a real LLaVA (tiny, random), views, files, resume, all parsers, an endpoint."""

from __future__ import annotations

import base64
import io
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner, Result

from onesdaug.cli import app
from onesdaug.errors import ConfigError, DataError, WeightsMissing
from onesdaug.vlm.local import LocalModel
from onesdaug.vlm.score import load_summary
from onesdaug.vlm.transcript import NAME
from tests.tune.file import stored
from tests.vlm.server import completion, good, refuse, say, serving
from tests.vlm.tiny import save_llava, save_questions

SECRET = "sk-not-for-your-eyes-0123456789"


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["pope", *map(str, arguments)])


def rows_of(out: Path) -> list[dict[str, Any]]:
    """The answers without what they cost."""
    lines = [json.loads(line) for line in (out / NAME).read_text().splitlines()]
    return [{k: v for k, v in line.items() if "seconds" not in k} for line in lines]


@pytest.fixture(scope="module")
def llava(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_llava(tmp_path_factory.mktemp("llava"))


@pytest.fixture
def common(tmp_path: Path, llava: Path) -> list[object]:
    pictures, file = save_questions(tmp_path)
    return ["--images", pictures, "--questions", file, "--vlm", llava, "--model", "shape", "--device", "cpu"]


def test_from_images_and_questions_to_every_file(common: list[object], tmp_path: Path) -> None:
    out = tmp_path / "out"
    result = run(*common, "--k", 4, "--preset", "vlm", "-o", out)
    assert result.exit_code == 0, result.output
    assert {file.name for file in out.iterdir()} == {
        NAME,
        "summary.json",
        "pope-run.json",
        "views",
        ".onesdaug-lock",
        *(f"aug_views_{k}_split_questions_shapetweak_{k > 0}_num12.txt" for k in range(5)),
    }
    assert len(list((out / "views").glob("p*_view*.png"))) == 16
    for line in rows_of(out)[1:]:
        assert list(line["replies"]) == ["plain/greedy", "plain/sample", "vcd/greedy", "vcd/sample", "repeat/sample"]
        assert all(len(rows) == 5 and all("text" in row for row in rows) for rows in line["replies"].values())
        assert all("margin" in row for name in ("plain/greedy", "vcd/sample") for row in line["replies"][name])
    summary = load_summary(out)
    assert summary.settings["model"]["suffix"] == " Please answer this question with one word."
    assert (summary.settings["model"]["seed"], summary.settings["model"]["dtype"]) == (1234, "bfloat16")
    assert summary.settings["views"]["config"]["shape"]["stretch"] == 0.4
    assert summary.commit and summary.machine["torch"]
    assert summary.cost["view_seconds_per_image"]["total"] > 0
    for method in ("plain", "vcd"):
        for decoding in ("greedy", "sample"):
            assert [r.k for r in summary.pick(method=method, decoding=decoding, parser="official")] == [0, 1, 2, 3, 4]
    shown = [line.split("│")[1].strip().split(", ") for line in result.stdout.splitlines() if "│" in line]
    assert shown[:2] == [["plain", "greedy", "K=0"], ["plain", "greedy", "K=1"]]
    assert all(decoding in ("greedy", "sample") for _, decoding, _ in shown)  # the decoding beside every number
    assert max(map(len, result.stdout.splitlines())) <= 100
    assert "POPE questions" in result.stdout and "parser official" in result.stdout


def test_views_by_stable_diffusion_with_ip_adapter(
    common: list[object], tmp_path: Path, tiny_sd: Path, tiny_ip: dict[str, Path]
) -> None:
    """The paper's generator in its real format, tiny; a second run with more views makes only the new ones."""
    store, drawn = tmp_path / "store", ["--model", tiny_sd, "--ip-repo", tiny_ip["base"], "--no-vcd"]
    two = run(*common, *drawn, "--k", 2, "--views", store, "-o", tmp_path / "two")
    assert two.exit_code == 0, two.output
    assert "1 of 10 steps run, 2 network rows per view" in two.stderr
    stamps = {file.name: file.stat().st_mtime_ns for file in store.glob("*.png")}
    assert run(*common, *drawn, "--k", 3, "--views", store, "-o", tmp_path / "three").exit_code == 0
    after = {file.name: file.stat().st_mtime_ns for file in store.glob("*.png")}
    assert len(stamps) == 8 and len(after) == 12
    assert stamps.items() < after.items()
    few, many = (load_summary(tmp_path / name) for name in ("two", "three"))
    assert few.settings["views"]["weights"] == many.settings["views"]["weights"]
    for k in range(3):  # the smaller run is inside the larger one
        rows = [s.pick(method="plain", decoding="greedy", parser="exact", combine="vote", k=k)[0] for s in (few, many)]
        assert rows[0].metrics == rows[1].metrics


def test_a_terminal_gets_a_bar_with_the_running_accuracy(
    common: list[object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from onesdaug.common import progress

    shown = io.StringIO()
    terminal = Console(file=shown, force_terminal=True, width=120, color_system=None)
    monkeypatch.setattr(progress, "console", lambda: terminal)
    result = run(*common, "--k", 1, "-o", tmp_path / "out")
    assert result.exit_code == 0, result.output
    (row,) = load_summary(tmp_path / "out").pick(
        method="plain", decoding="greedy", parser="official", combine="vote", k=1
    )
    assert row.metrics.accuracy.value is not None
    assert f"12/12 {100 * row.metrics.accuracy.value:.2f} % right (greedy)" in shown.getvalue()


def test_a_rerun_asks_nothing_and_scores_by_other_rules(
    common: list[object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    common = [*common, "--k", 2, "-o", out]
    first = run(*common)
    answers = (out / NAME).read_bytes()
    monkeypatch.setattr(LocalModel, "from_pretrained", lambda *a, **k: pytest.fail("the model was loaded again"))
    assert run(*common).stdout == first.stdout
    tables = set()
    for rule in (["--parser", "vcd"], ["--parser", "exact"], ["--combine", "margin"], ["--orig_logit_weight", 5]):
        result = run(*common, *rule)
        assert result.exit_code == 0, result.output
        tables.add(result.stdout)
    assert len(tables) == 4
    assert "logits" in run(*common, "--combine", "margin").stdout
    assert (out / NAME).read_bytes() == answers
    text = (out / "aug_views_2_split_questions_shapetweak_True_num12.txt").read_text()
    assert "combined by margin, parser none" in text and "[vcd, logits decoding]" in text
    # a weight of 5 outvotes two views
    heavy = load_summary(out)
    run(*common, "--orig-logit-weight", 5)
    heavy = load_summary(out)
    for decoding in ("greedy", "sample"):
        rows = heavy.pick(method="plain", decoding=decoding, parser="exact", combine="vote")
        assert rows[2].metrics.accuracy == rows[0].metrics.accuracy or rows[0].metrics.unknown


def test_cut_and_resumed_is_the_run_that_was_never_cut(
    common: list[object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        pass

    whole, cut = tmp_path / "whole", tmp_path / "cut"
    common = [*common, "--k", 2, "--batch-size", 2]
    assert run(*common, "-o", whole).exit_code == 0
    real = LocalModel.ask

    def dying(self: LocalModel, images: Any, question: str, key: str) -> Any:
        if key == "8":
            raise Killed
        return real(self, images, question, key)

    with monkeypatch.context() as patch:
        patch.setattr(LocalModel, "ask", dying)
        with pytest.raises(Killed):
            CliRunner().invoke(app, ["pope", *map(str, common), "-o", str(cut)], catch_exceptions=False)
    assert len(rows_of(cut)) == 8
    resumed = run(*common, "-o", cut)
    assert resumed.exit_code == 0
    assert rows_of(cut) == rows_of(whole)
    assert load_summary(cut).rows == load_summary(whole).rows


def test_the_papers_baseline_has_no_views(common: list[object], tmp_path: Path) -> None:
    out = tmp_path / "out"
    result = run(*common, "--k", 0, "--limit", 7, "--no-vcd", "--decoding", "sample", "-o", out)
    assert result.exit_code == 0, result.output
    assert not (out / "views").exists()
    assert (out / "aug_views_0_split_questions_shapetweak_False_num7.txt").is_file()
    assert {(r.method, r.decoding) for r in load_summary(out).rows} == {("plain", "sample"), ("plain", "logits")}


def test_longer_answers(common: list[object], tmp_path: Path) -> None:
    result = run(*common, "--k", 1, "--limit", 3, "--max-new-tokens", 3, "--prompt", "vcd", "-o", tmp_path / "out")
    assert result.exit_code == 0, result.output
    replies = rows_of(tmp_path / "out")[1]["replies"]
    assert any(" " in row["text"] for rows in replies.values() for row in rows)


def test_mistakes_are_found_before_anything_is_loaded(
    common: list[object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LocalModel, "from_pretrained", lambda *a, **k: pytest.fail("the model was loaded"))
    out = ["-o", tmp_path / "out"]
    for arguments, kind, text in (
        ((*common, *out, "--parser", "regex"), ConfigError, "parser must be one of official, vcd, exact"),
        ((*common, *out, "--combine", "median"), ConfigError, "combine must be one of vote, margin"),
        ((*common, *out, "--decoding", "beam"), ConfigError, "--decoding: must be greedy or sample, got 'beam'"),
        ((*common, *out, "--vcd-beta", 2), ConfigError, "--vcd-beta: must be less than or equal to 1, got 2.0"),
        ((*common, *out, "--no-vcd", "--vcd-alpha", 1), ConfigError, "--vcd-alpha do nothing with --no-vcd"),
        ((*common, *out, "--timeout", 9), ConfigError, "--timeout are for an --endpoint"),
        ((*common, *out, "--endpoint", "http://h/v1", "--vcd"), ConfigError, "which no endpoint gives"),
        ((*common, *out, "--endpoint", "http://h/v1", "--prompt", "vcd"), ConfigError, "server's own business"),
        ((*common, *out, "--aug-logit-weight", -1), ConfigError, "must not be negative"),
        ((*common, *out, "--preset", "nice"), ConfigError, "there is no preset"),
        ((*common, *out, "--prompt", "nice"), ConfigError, "prompt must be one of"),
        ((*common, *out, "--vlm", "llava-hf/llava-1.5-7b-hf"), WeightsMissing, "hf download llava-hf/llava-1.5-7b"),
        ((*common, *out, "--images", tmp_path / "gone"), DataError, "does not exist"),
    ):
        found = run(*arguments).exception
        assert isinstance(found, kind), (arguments, found)
        assert text in str(found)
        assert "\n" not in str(found)
    assert not (tmp_path / "out").exists()
    (tmp_path / "pictures" / "p1.png").unlink()
    missing = run(*common, *out, "--vlm", "llava-hf/llava-1.5-7b-hf").exception
    assert "1 of 4 images are not in" in str(missing)  # images before weights


def test_views_are_drawn_as_a_tuned_file_says(common: list[object], tmp_path: Path) -> None:
    """Its generator draws with its settings; another generator is refused before anyone is asked."""
    without = [word for word in common if word not in ("--model", "shape")]
    file = stored(tmp_path / "tuned.json", source="shape", generator="shape")
    words = ("--k", 1, "--no-vcd", "--preset", file, "-o")
    result = run(*without, *words, tmp_path / "out")
    assert result.exit_code == 0, result.output
    views = load_summary(tmp_path / "out").settings["views"]
    assert (views["generator"], views["config"]["noise_level"], views["weights"]) == ("shape", 0.6, "shape")
    stored(file, generator="another")
    for model in ("shape", "pocket"):
        refused = run(*without, "--model", model, *words, tmp_path / model).exception
        assert isinstance(refused, ConfigError) and "tuned with generator another, not" in str(refused)
        assert not (tmp_path / model / NAME).exists()


@pytest.fixture
def remote(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[object]:
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    monkeypatch.setenv("NO_PROXY", "*")
    pictures, file = save_questions(tmp_path)
    return ["--images", pictures, "--questions", file, "--model", "shape", "--vlm", "remote", "--device", "cpu"]


def test_an_endpoint_with_troubles(remote: list[object], tmp_path: Path) -> None:
    out = tmp_path / "out"

    def plan(n: int) -> Any:
        return refuse(500, f"key was {SECRET}") if n in (5, 6) else refuse(429, Retry_After="0.05") if n == 9 else good

    with serving(plan) as server:
        arguments = [*remote, "--endpoint", server.url, "--k", 1, "--retries", 0, "--workers", 1, "-o", out]
        result = run(*arguments)
        assert result.exit_code == 1
        assert "2 questions have replies that failed" in result.stderr
        row = load_summary(out).pick(method="plain", decoding="greedy", parser="official", combine="vote", k=1)[0]
        assert (row.metrics.n, row.metrics.errors) == (10, 2)
        asked = len(server.requests)
        result = run(*arguments)  # only what failed is asked again
        assert result.exit_code == 0, result.output
        assert len(server.requests) - asked == 8
    row = load_summary(out).pick(method="plain", decoding="greedy", parser="official", combine="vote", k=1)[0]
    assert (row.metrics.n, row.metrics.errors) == (12, 0)
    assert load_summary(out).pick(combine="margin")
    for file in [*out.rglob("*.json*"), *out.rglob("*.txt")]:
        assert SECRET not in file.read_text(), file
    assert SECRET not in result.output


def test_a_hostile_endpoint_gets_nothing_written(remote: list[object], tmp_path: Path) -> None:
    """It repeats the key wherever it can, and nests what nobody can read; each costs its own question."""
    out, coded = tmp_path / "out", base64.b64encode(f"me:{SECRET}".encode()).decode()
    plan = {
        1: say(completion(f"Yes {SECRET} {coded}")),
        2: say(completion(None, reason=SECRET)),
        3: say({"choices": [{"message": {"content": None, "refusal": [coded]}}]}),
        4: say(b"[" * 100_000),
        5: refuse(400, f"{SECRET.upper()} {coded}"),
        6: say({"choices": [{"message": {"content": SECRET}, "logprobs": SECRET}]}),
    }
    with serving(lambda n: plan.get(n, good)) as server:
        arguments = ["--endpoint", server.url, "--k", 0, "--retries", 0, "--decoding", "greedy", "-o", out]
        result = run(*remote, *arguments)
    assert result.exit_code == 1 and "4 questions have replies that failed" in result.stderr
    assert load_summary(out).rows[0].metrics.n == 8
    for text in [result.output, *(file.read_text() for file in out.rglob("*") if file.is_file())]:
        assert SECRET not in text and SECRET.upper() not in text and coded[8:40] not in text


def test_questions_whose_name_is_no_text(tmp_path: Path) -> None:
    pictures, file = save_questions(tmp_path)
    (tmp_path / "my_vlm.py").write_text("def answer(images, questions):\n    return ['yes'] * len(images)\n")
    odd = file.rename(tmp_path / os.fsdecode(b"q\xff.json"))
    function = f"{tmp_path / 'my_vlm.py'}:answer"
    result = run("--images", pictures, "--questions", odd, "--vlm", function, "--k", 0, "-o", tmp_path / "out")
    assert result.exit_code == 0, result.output
    assert load_summary(tmp_path / "out").questions["file"].endswith("q?.json")


def test_names_no_system_takes_are_one_line_and_pipes_do_not_hang(tmp_path: Path) -> None:
    """As users meet it: the whole program, because what it catches last is its own."""
    pictures, file = save_questions(tmp_path)
    (tmp_path / "my_vlm.py").write_text("def one(images, questions):\n    return ['yes'] * len(images)\n")
    os.mkfifo(tmp_path / "pipe.py")
    long, code = "x" * 5000, "from onesdaug.cli import main; main()"
    ask = {"--images": pictures, "--questions": file, "--vlm": "my_vlm.py:one", "--k": 0, "-o": "out"}
    for wrong in ({"-o": long}, {"--vlm": long}, {"--vlm": f"{long}.py:a"}, {"--vlm": "pipe.py:a"}, {"-o": "pipe.py"}):
        words = [str(word) for pair in {**ask, **wrong}.items() for word in pair]
        command = [sys.executable, "-c", code, "pope", *words]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
        assert done.returncode == 2 and "Traceback" not in done.stderr
        assert done.stderr.splitlines()[-1].startswith("error: "), done.stderr
        assert str(next(iter(wrong.values())))[:100].removesuffix(":a") in done.stderr.splitlines()[-1]


def test_a_function_named_like_an_emoji_keeps_its_name(tmp_path: Path) -> None:
    pictures, file = save_questions(tmp_path)
    (tmp_path / "my_vlm.py").write_text("def one(images, questions):\n    return ['yes'] * len(images)\n")
    function = f"{tmp_path / 'my_vlm.py'}:one"
    result = run("--images", pictures, "--questions", file, "--vlm", function, "--k", 0, "-o", tmp_path / "out")
    assert "my_vlm.py:one: 12 of 12 questions to ask" in result.stderr


def test_kill_dash_nine_and_resume(remote: list[object], tmp_path: Path) -> None:
    """A process killed in the middle of a question; the second one asks only what is missing."""
    out = tmp_path / "out"
    code = "import typer; from onesdaug.cli.pope import pope; typer.run(pope)"

    def command(url: str) -> list[str]:
        arguments = [*remote, "--endpoint", url, "--k", 0, "--decoding", "greedy", "-o", out]
        return [sys.executable, "-c", code, *map(str, arguments)]

    def stuck(handler: Any, body: Any) -> None:
        time.sleep(30)

    phase = {"stuck": True}
    with serving(lambda n: stuck if n == 6 and phase["stuck"] else good) as server:
        first = subprocess.Popen(command(server.url), env={**os.environ}, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + 60
        while len(server.requests) < 6 and time.monotonic() < deadline:
            time.sleep(0.02)
        os.kill(first.pid, signal.SIGKILL)
        first.wait()
        assert len(rows_of(out)) == 6  # the settings and five answers
        phase["stuck"] = False
        done = subprocess.run(command(server.url), env={**os.environ}, capture_output=True, text=True, check=True)
        assert len(server.requests) == 6 + 7
    rows = rows_of(out)
    assert [row["question_id"] for row in rows[1:]] == list(range(1, 13))
    assert re.search(r"plain, greedy, K=0\s+│", done.stdout)


def test_who_is_asked_and_who_draws() -> None:
    """Commands of before, with --generator, mean what they meant; what would now mean something else is refused."""
    from onesdaug.cli.pope import LLAVA, _words

    assert _words(None, None, None, 4, None) == (LLAVA, "sd15")
    assert _words("mine", "pocket", None, 4, None) == ("mine", "pocket")
    assert _words(None, "mine", "pocket", 4, None) == ("mine", "pocket")
    assert _words(None, "pocket", None, 4, None) == (LLAVA, "pocket")
    for name, k, endpoint in (("pocket", 0, None), ("pocket", 4, "http://h/v1"), ("mine", 4, None)):
        with pytest.raises(ConfigError, match="say with --vlm who is asked"):
            _words(None, name, None, k, endpoint)
        assert _words("mine", None, None, k, endpoint) == ("mine", "sd15")
