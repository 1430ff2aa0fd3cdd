"""An endpoint that is slow, broken, busy or picky: retries, deadlines, and errors that are never answers."""

from __future__ import annotations

import json
import logging
import sys
import time
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from itertools import pairwise
from typing import Any

import pytest

from onesdaug.augment.seeds import image_digest
from onesdaug.errors import ConfigError, OnesdaugError
from onesdaug.vlm.endpoint import Endpoint
from onesdaug.vlm.model import find_model
from onesdaug.vlm.settings import Asking
from onesdaug.vlm.transport import check_url
from tests.vlm.asking import PICTURES, SECRET, ask, client
from tests.vlm.server import (
    completion,
    cut_short,
    dripping,
    good,
    hang_up,
    picture_of,
    refuse,
    say,
    serving,
    slow,
)

pytestmark = pytest.mark.usefixtures("environment")


def test_requests_are_chat_completions_and_answers_come_in_order() -> None:
    with serving(lambda n: good) as server:
        replies = client(server, "greedy", "sample", temperature=0.7).ask(PICTURES, "Is there a cat?", "q1")
    values = [int(image_digest(image)[:4], 16) / 0x8000 - 1 for image in PICTURES]
    for rows in replies.values():
        assert [r.text for r in rows] == ["Yes" if v > 0 else "No" for v in values]
        assert [r.margin for r in rows] == pytest.approx(values)
    assert list(replies) == ["plain/greedy", "plain/sample"]
    assert len(server.requests) == 6
    for path, headers, body, _ in server.requests:
        assert path == "/v1/chat/completions"
        assert headers["Authorization"] == f"Bearer {SECRET}"
        assert (body["model"], body["max_tokens"], body["top_logprobs"]) == ("some-model", 1, 20)
        assert (
            body["messages"][0]["content"][1]["text"] == "Is there a cat? Please answer this question with one word."
        )
        assert picture_of(body).size == (40, 30)
    assert sorted({body["temperature"] for _, _, body, _ in server.requests}) == [0, 0.7]
    sent = {image_digest(picture_of(body)) for _, _, body, _ in server.requests}
    assert sent == {image_digest(image) for image in PICTURES}  # lossless
    seeds = [body["seed"] for _, _, body, _ in server.requests]
    assert len(set(seeds)) == 3  # one per picture, the same in every run


@pytest.mark.parametrize(
    "trouble",
    [
        refuse(500),
        refuse(503, "overloaded"),
        refuse(408),
        say(b"<html>not JSON</html>"),
        say(b'{"choices": [{"mess'),
        say([1, 2]),
        hang_up,
        cut_short,
        slow(1.6),
        dripping,
    ],
    ids=["500", "503", "408", "html", "broken-json", "list", "hang-up", "cut-short", "slow", "dripping"],
)
def test_trouble_that_passes_is_tried_again(trouble: Any) -> None:
    with serving(lambda n: trouble if n == 1 else good) as server:
        (reply,) = ask(server)
    assert reply.error is None
    assert reply.text in ("Yes", "No")
    assert len(server.requests) == 2


@pytest.mark.parametrize(
    ("trouble", "reason"),
    [
        (refuse(500, "out of order"), "HTTP 500: out of order"),
        (say(b"not JSON"), "not JSON"),
        (slow(1.6), "timed out"),
        (dripping, "no whole answer within 0.8 s"),
        (hang_up, "disconnected without sending a response"),
    ],
    ids=["500", "broken-json", "slow", "dripping", "hang-up"],
)
def test_trouble_that_stays_is_an_error_and_no_answer(trouble: Any, reason: str) -> None:
    with serving(lambda n: trouble) as server:
        (reply,) = ask(server)
    assert reply.text is None and reply.margin is None
    assert reason in str(reply.error)
    assert len(server.requests) == 2


def test_pauses_double_and_retry_after_is_kept() -> None:
    plan = {1: refuse(429), 2: refuse(429, Retry_After="0.35"), 3: refuse(429)}
    with serving(lambda n: plan.get(n, good)) as server:
        (reply,) = ask(server, limits={"timeout": 5, "retries": 3, "pause": 0.05})
    assert reply.error is None
    times = [at for _, _, _, at in server.requests]
    gaps = [later - sooner for sooner, later in pairwise(times)]
    assert gaps[0] >= 0.05
    assert gaps[1] >= 0.35
    assert gaps[2] >= 0.2


def test_retry_after_as_a_date_and_one_too_far_off() -> None:
    soon = format_datetime(datetime.now(UTC) + timedelta(seconds=2), usegmt=True)
    with serving(lambda n: refuse(429, Retry_After=soon) if n == 1 else good) as server:
        started = time.monotonic()
        (reply,) = ask(server)
        assert reply.error is None
        assert time.monotonic() - started > 0.5
    with (
        serving(lambda n: refuse(429, "daily limit", Retry_After="7200")) as server,
        pytest.raises(OnesdaugError, match=r"asks to wait 7200 s .*daily limit.*finished answers are kept"),
    ):
        ask(server)


@pytest.mark.parametrize("status", [401, 403])
def test_a_refused_key_stops_at_once_and_is_not_repeated(
    status: int, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    echo = refuse(status, f"Incorrect API key provided: {SECRET}")
    with serving(lambda n: echo) as server, pytest.raises(ConfigError, match="refuses the key in OPENAI_API_KEY") as e:
        ask(server, count=3)
    assert len(server.requests) <= 2  # two at a time
    shown = str(e.value) + caplog.text + "".join(capsys.readouterr())
    assert SECRET not in shown
    assert "***" in str(e.value)


def test_without_a_key_none_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY")
    with serving(lambda n: good) as server:
        assert ask(server)[0].error is None
    assert "Authorization" not in server.requests[0][1]
    with serving(lambda n: refuse(401)) as server, pytest.raises(ConfigError, match="wants a key: set OPENAI_API_KEY"):
        ask(server)


def test_the_key_never_reaches_an_error_text() -> None:
    with serving(lambda n: refuse(500, f"debug: headers {'x' * 290}{SECRET}")) as server:
        (reply,) = ask(server)
    assert SECRET[:8] not in str(reply.error)


def test_redirects_are_not_followed() -> None:
    with serving(lambda n: refuse(302, Location="http://127.0.0.1:9/elsewhere")) as server, pytest.raises(ConfigError):
        ask(server)
    assert len(server.requests) == 1


def test_a_wrong_address_or_model_stops_at_once() -> None:
    with (
        serving(lambda n: refuse(404, "no such model")) as server,
        pytest.raises(ConfigError, match=r"does not have this model .*no such model"),
    ):
        ask(server)
    assert len(server.requests) == 1


def test_one_bad_request_costs_only_itself() -> None:
    def picky(n: int) -> Any:
        def react(handler: Any, body: Any) -> None:
            bad = image_digest(picture_of(body)) == image_digest(PICTURES[1])
            (refuse(400, "content policy") if bad else good)(handler, body)

        return react

    with serving(picky) as server:
        replies = ask(server, count=3)
    assert [r.error for r in replies] == [None, "HTTP 400: content policy", None]
    assert len(server.requests) == 3  # a refusal is not tried again


def test_what_a_server_does_not_take_is_left_out() -> None:
    def old(handler: Any, body: Any) -> None:
        for name, text in (
            ("max_tokens", "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead."),
            ("logprobs", "logprobs are not supported"),
            ("seed", "unknown field seed"),
        ):
            if name in body:
                refuse(400, text)(handler, body)
                return
        good(handler, body)

    with serving(lambda n: old) as server:
        endpoint = client(server)
        for _ in range(2):
            replies = endpoint.ask(PICTURES, "Is there a cat?", "1")["plain/greedy"]
            assert all(r.error is None and r.text and r.margin is None for r in replies)
    assert set(server.requests[-1][2]) == {"model", "messages", "max_completion_tokens", "temperature"}


@pytest.mark.parametrize(
    ("payload", "error"),
    [
        (completion(None, reason="content_filter"), "the answer has no text (content_filter)"),
        ({"choices": []}, "the answer has no choices[0].message.content"),
        ({"error": {"message": "provider down"}}, "the answer has no choices[0].message.content"),
        ({"choices": [{"message": {"content": ["Yes"]}}]}, "the answer has no text (no reason given)"),
    ],
)
def test_answers_without_text_are_errors(payload: Any, error: str) -> None:
    with serving(lambda n: say(payload)) as server:
        (reply,) = ask(server)
    assert (reply.text, reply.error) == (None, error)


def test_an_empty_text_is_an_answer_and_odd_logprobs_are_no_trouble() -> None:
    odd = completion(" ")
    odd["choices"][0]["logprobs"] = {"content": None}
    with serving(lambda n: say(odd)) as server:
        (reply,) = ask(server)
    assert (reply.text, reply.margin, reply.error) == ("", None, None)


@pytest.mark.parametrize("value", ["Infinity", "1e999", "NaN", "9" * 400, '"x"', "null", "[]"])
def test_a_margin_is_a_number_or_there_is_none(value: str) -> None:
    answer = json.dumps(completion("Yes", 7.25)).replace("-8.25", value)
    with serving(lambda n: say(answer.encode())) as server:
        (reply,) = ask(server)
    assert (reply.text, reply.error) == ("Yes", None) and reply.margin in (None, 0.0)


def test_nobody_listens() -> None:
    with serving(lambda n: good) as server:
        pass
    (reply,) = ask(server)
    assert "refused" in str(reply.error)


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("http://h:8000/v1", "http://h:8000/v1/chat/completions"),
        ("https://h/v1/", "https://h/v1/chat/completions"),
        ("http://h/v1/chat/completions", "http://h/v1/chat/completions"),
    ],
)
def test_addresses(url: str, address: str) -> None:
    assert check_url(url) == address


def test_the_description_holds_no_secret() -> None:
    about = json.dumps(find_model("m", Asking(), endpoint="http://h/v1")[0])
    assert SECRET not in about
    assert "http://h/v1/chat/completions" in about


def test_settings_that_cannot_work() -> None:
    for wrong in ({"timeout": 0}, {"retries": -1}, {"pause": -1}):
        with pytest.raises(ConfigError, match="timeout"):
            Endpoint("http://h/v1", "m", Asking(), **wrong)
    with pytest.raises(ConfigError, match="at least one request"):
        Endpoint("http://h/v1", "m", Asking(), workers=0)


def test_without_httpx_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "httpx", None)
    for name in ("endpoint", "transport"):
        monkeypatch.delitem(sys.modules, f"onesdaug.vlm.{name}")
    told = r"^an endpoint is asked through httpx: pip install '\.\[vlm\]' in a clone of onesdaug"
    with pytest.raises(ConfigError, match=told):
        find_model("m", Asking(), endpoint="http://h/v1")
