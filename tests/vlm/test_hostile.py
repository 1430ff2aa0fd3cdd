"""A hostile endpoint: keys that come back, answers that drip or nest, addresses that are none."""

from __future__ import annotations

import base64
import json
import logging
import signal
import threading
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from onesdaug.errors import ConfigError
from onesdaug.vlm.endpoint import Endpoint
from onesdaug.vlm.model import find_model
from onesdaug.vlm.settings import Asking
from onesdaug.vlm.transport import check_url
from tests.vlm.asking import PICTURES, SECRET, ask, client
from tests.vlm.server import (
    completion,
    continuing,
    cut_short,
    dripping,
    dripping_headers,
    dripping_letters,
    good,
    refuse,
    say,
    serving,
    slow,
)

pytestmark = pytest.mark.usefixtures("environment")


@pytest.mark.parametrize(
    "url",
    [
        "localhost:8000",
        "ftp://h/v1",
        "ftp://h/v1?key=hush",
        "http://u:hush@h/v1",
        "http://h/v1?key=hush",
        "http:///v1",
        "http://h:99999/v1",
        "http://h:0/v1",
        "http://h:port/v1",
        "http://[::1/v1",
        "http://[zz]/v1",
        "http://a..b/v1",
        "http://two words/v1",
        "http://%zz/v1",
        "http://xn--/v1",
        "http://\u2028/v1",
        "http://\udcff/v1",
        "http://h\n/v1",
        "http://h/\x1b[31m",
        "http://" + "a" * 5000,
        "http://h/" + "a" * 70_000,
        "",
    ],
)
def test_addresses_that_are_refused(url: str) -> None:
    with pytest.raises(ConfigError) as error:
        check_url(url)
    assert "hush" not in str(error.value)
    assert str(error.value).isprintable() and len(str(error.value)) < 400


@pytest.mark.parametrize(
    "key", ["sk-with a space 12", "sk-two\nlines-4567", "sk-two\r\nlines-4567", "sk-\x7f4567890", "sk-ümlaut-4567890"]
)
def test_a_key_that_no_header_takes_is_refused_unseen(monkeypatch: pytest.MonkeyPatch, key: str) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", key)
    with pytest.raises(ConfigError, match=r"the key in OPENAI_API_KEY .* is not one word of ASCII") as error:
        find_model("m", Asking(), endpoint="http://h/v1")
    assert key[:5] not in str(error.value)


@pytest.mark.parametrize("end", ["\n", "\r", "\r\n", " \t"])
def test_a_line_break_after_the_key_does_not_matter(monkeypatch: pytest.MonkeyPatch, end: str) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", f"{SECRET}{end}")
    with serving(lambda n: good) as server:
        assert ask(server)[0].error is None
    assert server.requests[0][1]["Authorization"] == f"Bearer {SECRET}"


def test_answers_that_repeat_the_key_are_stored_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(lambda n: say(completion(f"Yes {SECRET}"))) as server:
        assert ask(server)[0].text == "Yes ***"
    with serving(lambda n: say(completion(None, reason=SECRET))) as server:
        assert ask(server)[0].error == "the answer has no text (***)"
    monkeypatch.setenv("OPENAI_API_KEY", "no")  # a placeholder is no secret, and may be a word of the answer
    with serving(lambda n: say(completion("no"))) as server:
        assert ask(server)[0].text == "no"


FORMS = {
    "plain": SECRET,
    "upper case": SECRET.upper(),
    "for URLs": "".join(f"%{ord(sign):02X}" for sign in SECRET),
    "for JSON": "".join(f"\\u{ord(sign):04x}" for sign in SECRET),
    "for HTML": "".join(f"&#{ord(sign)};" for sign in SECRET),
    "as bytes": repr(f"Bearer {SECRET}".encode()),
    "in words": " ".join(SECRET),
    "in lines": SECRET[:9] + "\r\n" + SECRET[9:],
    "in tokens": repr([SECRET[:4], SECRET[4:]]),
    "hexadecimal": SECRET.encode().hex(),
    "base64": base64.b64encode(SECRET.encode()).decode(),
    "base64 for URLs": base64.urlsafe_b64encode(b"?" + SECRET.encode()).decode(),
    "Basic": base64.b64encode(f"user:{SECRET}".encode()).decode(),
    "in JSON": json.dumps(json.dumps({"key": SECRET})),
    "cut off": SECRET[:20],
}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_the_key_is_hidden_in_every_form_and_place(form: str) -> None:
    said = {"role": "assistant", "content": None, "refusal": {"why": [form]}}
    places = [
        say(completion(f"Yes {form}")),
        say(completion(None, reason=form)),
        say({"choices": [{"message": said}]}),
        refuse(400, form),
        lambda handler, body: handler.send(400, {form: {form: form}}),
        lambda handler, body: handler.send(400, form.encode()),
    ]
    for place in places:
        with serving(lambda n, place=place: place) as server:
            (reply,) = ask(server, limits={"timeout": 5, "retries": 0})
        shown = str(reply)
        assert "***" in shown
        for piece in (form, form[5:25], SECRET[2:10]):  # base64 may keep its first and last signs
            assert piece not in shown


def test_the_key_is_hidden_in_errors_of_the_protocol(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)

    def broken(handler: Any, body: Any) -> None:
        handler.wfile.write(f"HTTP/1.1 200 OK\r\n{SECRET} {SECRET}\r\n\r\n".encode())

    def reason(handler: Any, body: Any) -> None:
        handler.wfile.write(f"HTTP/1.1 500 {SECRET}\r\nX-Echo: {SECRET}\r\nContent-Length: 0\r\n\r\n".encode())

    for trouble in (broken, reason, refuse(500, X_Echo=SECRET)):
        with serving(lambda n, trouble=trouble: trouble) as server:
            (reply,) = ask(server)
        assert reply.error and SECRET not in reply.error
    assert SECRET not in caplog.text


def test_a_servers_text_has_no_escapes_for_the_terminal() -> None:
    with serving(lambda n: refuse(400, "\x1b[2J\x07gone\u202e")) as server:
        assert ask(server)[0].error == "HTTP 400: [2J gone"


def test_an_answer_without_end_is_cut_off() -> None:
    with serving(lambda n: say(b" " * (4 * 2**20 + 1))) as server:
        (reply,) = ask(server, limits={"timeout": 20, "retries": 0})
    assert reply.error == "ValueError: an answer of more than 4 MB"


def test_a_refusal_counts_though_its_text_is_cut_off() -> None:
    react = partial(cut_short, status=401)
    with serving(lambda n: react) as server, pytest.raises(ConfigError, match="refuses the key"):
        ask(server)
    assert len(server.requests) == 1


def test_a_refused_key_wakes_whoever_pauses() -> None:
    with serving(lambda n: refuse(503) if n == 1 else refuse(401)) as server:
        endpoint = client(server, limits={"timeout": 5, "retries": 3, "pause": 60})
        started = time.monotonic()
        with pytest.raises(ConfigError, match="refuses the key"):
            endpoint.ask(PICTURES, "Is there a cat?", "1")
    assert time.monotonic() - started < 20
    assert len(server.requests) == 2


@pytest.fixture
def interrupts() -> Iterator[None]:
    """As in a terminal: what a shell starts in the background inherits that interrupts are ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_an_interrupt_does_not_wait_for_answers(interrupts: None) -> None:
    with serving(lambda n: slow(5.0)) as server:
        endpoint = client(server, limits={"timeout": 60, "retries": 3})
        threading.Timer(0.3, signal.pthread_kill, (threading.main_thread().ident, signal.SIGINT)).start()
        started = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            endpoint.ask(PICTURES[:1], "Is there a cat?", "1")
        assert time.monotonic() - started < 4.5


@pytest.mark.parametrize(
    "drips",
    [dripping_headers, dripping_letters, continuing, partial(continuing, pause=0), partial(dripping, status=500)],
    ids=["headers", "letters of a header", "100 Continue", "a flood of 100 Continue", "the text of an error"],
)
def test_one_deadline_for_the_whole_request(drips: Any) -> None:
    with serving(lambda n: drips) as server:
        started = time.monotonic()
        (reply,) = ask(server, limits={"timeout": 0.4, "retries": 0})
        assert time.monotonic() - started < 4.5
    assert reply.error in ("TimeoutError: timed out: no whole answer within 0.4 s", "HTTP 500")


NESTED = b"[" * 100_000 + b"]" * 100_000
DEEP = b"[" * 900 + b"]" * 900  # json.loads reads this one, str() does not show it


@pytest.mark.parametrize(
    ("trouble", "reason"),
    [
        (say(NESTED), "the answer is not JSON (recursion limit exceeded"),
        (say(b'{"choices": [{"message": {"content": null, "refusal": %s}}]}' % DEEP), "the answer is not JSON"),
        (lambda handler, body: handler.send(400, b'{"error": %s}' % DEEP), "HTTP 400: "),
    ],
    ids=["answer", "refusal", "error"],
)
def test_deep_nesting_costs_its_own_picture_alone(trouble: Any, reason: str) -> None:
    with serving(lambda n: trouble if n == 1 else good) as server:
        endpoint = Endpoint(server.url, "m", Asking(("greedy",)), workers=1, timeout=5, retries=0)
        replies = endpoint.ask(PICTURES, "Is there a cat?", "1")["plain/greedy"]
        assert endpoint.ask(PICTURES[:1], "Is there a cat?", "2")["plain/greedy"][0].error is None
    assert reason in str(replies[0].error)
    assert [reply.error for reply in replies[1:]] == [None, None]
