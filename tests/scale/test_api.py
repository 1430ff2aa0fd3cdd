"""The service's HTTP side: what it answers, what it refuses and how; requests never see each other's images."""

from __future__ import annotations

import asyncio
import base64
import io
import random
import time
from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from PIL import Image

pytest.importorskip("fastapi")
pytest.importorskip("python_multipart")

import httpx
from starlette.testclient import TestClient

from onesdaug import Augmenter
from onesdaug.scale.serve.api import Service, make_app
from onesdaug.scale.serve.engine import Answer, Ask, Engine
from onesdaug.scale.serve.settings import Limits, Networks
from tests.conftest import make_image

LIMITS = Limits(max_body=200_000, max_pixels=10_000, max_k=4, max_images=6, max_tasks=2, queue=8, deadline=5)


def png(image: Image.Image) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    return buffer.getvalue()


def text(image: Image.Image) -> str:
    return base64.b64encode(png(image)).decode()


def picture(data: str) -> Image.Image:
    return Image.open(io.BytesIO(base64.b64decode(data)))


@pytest.fixture(scope="module")
def engine() -> Engine:
    return Engine(Networks(model="shape", encoder="convnet", device="cpu"))


def client(backend: Callable[[Ask], Awaitable[Answer]], token: str | None = None, **limits: Any) -> TestClient:
    given = LIMITS.model_copy(update=limits)
    return TestClient(make_app(Service(backend, given, "protonet", token, {"generator": "x"})))


def direct(engine: Engine) -> Callable[[Ask], Awaitable[Answer]]:
    async def ask(one: Ask) -> Answer:
        return engine.answer([one])[0]

    return ask


@pytest.fixture
def web(engine: Engine) -> TestClient:
    return client(direct(engine))


def test_the_views_are_those_of_the_command(web: TestClient) -> None:
    image = make_image(3, (40, 30))
    found = web.post("/v1/views", files={"image": ("x.png", png(image))}, data={"k": "2", "seed": "7"}).json()
    assert web.post("/v1/views", json={"image": text(image), "k": 2, "seed": 7}).json() == found
    expected = Augmenter.from_pretrained("shape", device="cpu")(image, 2, 7)
    assert [picture(view).tobytes() for view in found["views"]] == [view.tobytes() for view in expected]
    assert found["size"] == [40, 30]


def test_a_task_from_support_to_answer(web: TestClient, engine: Engine) -> None:
    red, blue = Image.new("RGB", (32, 32), (220, 20, 20)), Image.new("RGB", (32, 32), (20, 20, 220))
    made = web.post("/v1/tasks", json={"classes": {"red": [text(red)], "blue": [text(blue)]}, "k": 2, "seed": 1})
    assert made.status_code == 201
    form = web.post("/v1/tasks", files=[("red", ("a", png(red))), ("blue", ("b", png(blue)))], data={"k": "2"})
    assert form.json()["classes"] == ["red", "blue"]
    path = f"/v1/tasks/{made.json()['id']}"
    for k in (0, 3):
        found = web.post(
            f"{path}/classify", json={"image": text(Image.new("RGB", (30, 30), (200, 0, 0))), "k": k}
        ).json()
        assert found["label"] == "red"
        assert sum(found["probabilities"].values()) == pytest.approx(1)
        assert [one["view"] for one in found["evidence"]] == list(range(k + 1))
        assert sum(one["weight"] for one in found["evidence"]) == pytest.approx(1)
    assert web.post("/v1/tasks", json={"classes": {"a": [text(red)], "b": [text(red)]}}).status_code == 429
    assert web.delete(path).status_code == 204
    assert web.post(f"{path}/classify", json={"image": text(red)}).status_code == 404


def test_the_answer_is_the_paper_average(web: TestClient, engine: Engine) -> None:
    """½ of the original's feature and ½/K of each view's, on both sides."""
    support, query = [make_image(n) for n in (1, 2)], make_image(3)
    number = web.post("/v1/tasks", json={"classes": {str(n): [text(i)] for n, i in enumerate(support)}, "k": 2}).json()
    found = web.post(f"/v1/tasks/{number['id']}/classify", json={"image": text(query), "k": 2}).json()

    def feature(image: Image.Image) -> np.ndarray:
        rows = engine.answer([Ask(png(image), 2, 0, True)])[0].features
        assert rows is not None
        return rows[0] / 2 + rows[1:].mean(0) / 2

    distances = [np.square(feature(query) - feature(image)).sum() for image in support]
    assert found["label"] == str(int(np.argmin(distances)))


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        ({"json": {"k": 1}}, 422),
        ({"json": {"image": "no base64!"}}, 422),
        ({"json": {"image": base64.b64encode(b"no image").decode()}}, 422),
        ({"json": {"image": text(make_image(1)), "k": 5}}, 422),
        ({"json": {"image": text(make_image(1)), "k": True}}, 422),
        ({"json": {"image": text(make_image(1)), "seed": 10**30}}, 422),
        ({"json": {"image": text(make_image(1, (200, 200)))}}, 413),
        ({"json": [1, 2]}, 422),
        ({"content": b"{", "headers": {"content-type": "application/json"}}, 400),
        ({"content": b"x", "headers": {"content-type": "text/plain"}}, 415),
        ({"content": b"x", "headers": {"content-type": "multipart/form-data; boundary=y"}}, 400),
        ({"content": b"x", "headers": {"content-type": "multipart/form-data"}}, 400),
        ({"content": b"x" * 300_000}, 413),
        ({"json": {"image": text(make_image(1))}, "headers": {"x-timeout": "soon"}}, 422),
    ],
)
def test_what_is_wrong_with_a_request_is_told(web: TestClient, request_: dict[str, Any], status: int) -> None:
    found = web.post("/v1/views", **request_)
    assert found.status_code == status
    assert found.json()["error"]


def test_a_token(engine: Engine) -> None:
    web = client(direct(engine), token="secret")
    assert web.get("/healthz").status_code == 200
    for headers in ({}, {"authorization": "Bearer wrong"}, {"authorization": "secret"}, {"authorization": "Bearer é"}):
        raw = {name: value.encode() for name, value in headers.items()}
        assert web.get("/metrics", headers=raw).status_code == 401
        assert web.post("/v1/views", headers=raw, json={"image": text(make_image(1))}).status_code == 401
    right = {"authorization": "Bearer secret"}
    assert web.post("/v1/views", headers=right, json={"image": text(make_image(1)), "k": 1}).status_code == 200


def test_deadline_queue_and_drain() -> None:
    async def never(_: Ask) -> Answer:
        await asyncio.sleep(60)
        raise AssertionError

    image = text(make_image(1))
    with client(never) as web:
        late = web.post("/v1/views", json={"image": image}, headers={"x-timeout": "0.1"})
        assert (late.status_code, late.headers["retry-after"]) == (504, "1")
        many = web.post(
            "/v1/tasks", json={"classes": {c: [image, image, image] for c in "ab"}}, headers={"x-timeout": "0.1"}
        )
        assert many.status_code == 504
    with client(never, queue=5) as web:
        full = web.post("/v1/tasks", json={"classes": {c: [image, image, image] for c in "ab"}})
        assert (full.status_code, full.headers["retry-after"]) == (503, "1")
    service = Service(never, LIMITS, "protonet", None, {})
    service.draining = True
    web = TestClient(make_app(service))
    assert web.get("/healthz").status_code == 503
    assert web.post("/v1/views", json={"image": image}).headers["retry-after"] == "5"


def test_a_stop_waits_for_requests_and_answers_on_their_way() -> None:
    """One is in work when it begins, one comes after that is done; who only looks at the state is not waited for."""
    ended: list[str | int] = []

    async def slowly(_: Ask) -> Answer:
        await asyncio.sleep(0.3)
        return Answer()

    async def visit(web: httpx.AsyncClient) -> None:
        for _ in range(2):
            found = await web.post("/v1/views", json={"image": text(make_image(1)), "k": 0})
            ended.append(found.status_code)
            await asyncio.sleep(0.2)

    async def look(web: httpx.AsyncClient) -> None:
        while "stopped" not in ended:
            assert (await web.get("/healthz")).status_code in (200, 503)
            await asyncio.sleep(0.1)

    async def stop(service: Service) -> None:
        await asyncio.sleep(0.1)
        assert await service.drain(60) == 0
        ended.append("stopped")

    async def all_at_once() -> None:
        service = Service(slowly, LIMITS, "protonet", None, {})
        transport = httpx.ASGITransport(app=make_app(service))
        async with httpx.AsyncClient(transport=transport, base_url="http://here") as web:
            await asyncio.gather(visit(web), look(web), stop(service))

    asyncio.run(all_at_once())
    assert ended == [200, 503, "stopped"]


def test_an_image_that_nobody_waits_for_is_not_drawn(engine: Engine) -> None:
    late, good = Ask(png(make_image(1)), 1, 0, until=time.time() - 1), Ask(png(make_image(1)), 1, 0)
    answers = engine.answer([late, good, Ask(b"no image", 1, 0)])
    assert [one.problem and one.problem[0] for one in answers] == [504, None, 422]
    assert answers[1].views and not answers[0].views


def test_metrics_count_by_route(web: TestClient) -> None:
    web.post("/v1/views", json={"image": text(make_image(1)), "k": 2})
    web.delete("/v1/tasks/secret-id")
    told = web.get("/metrics").text
    assert 'onesdaug_requests_total{code="200",route="/v1/views"} 1.0' in told
    assert 'onesdaug_requests_total{code="404",route="/v1/tasks/{number}"} 1.0' in told
    assert "onesdaug_views_total 2.0" in told
    assert "secret-id" not in told


def test_the_page_lists_all_routes(web: TestClient) -> None:
    paths = web.get("/openapi.json").json()["paths"]
    wanted = {"/v1/views", "/v1/tasks", "/v1/tasks/{number}/classify", "/v1/tasks/{number}", "/healthz", "/metrics"}
    assert set(paths) == wanted
    assert set(paths["/v1/views"]["post"]["requestBody"]["content"]) == {"application/json", "multipart/form-data"}


def test_images_of_mixed_batches_stay_apart(engine: Engine) -> None:
    """Each image has a colour of its own, which its views keep; half ask for views, half for features."""
    rng = random.Random(0)
    for _ in range(20):
        colours = [(rng.randrange(256), rng.randrange(256), rng.randrange(256)) for _ in range(16)]
        sizes = [(rng.randrange(20, 60), rng.randrange(20, 60)) for _ in colours]
        images = [Image.new("RGB", size, colour) for size, colour in zip(sizes, colours, strict=True)]
        asks = [Ask(png(image), rng.randrange(4), rng.randrange(9), n % 2 == 0) for n, image in enumerate(images)]
        for ask, image, answer in zip(asks, images, engine.answer(asks), strict=True):
            alone = engine.answer([ask])[0]
            assert answer.size == image.size and answer.digest == alone.digest and answer.batch == 16
            if ask.features:
                assert answer.features is not None and alone.features is not None
                np.testing.assert_allclose(answer.features, alone.features, atol=1e-5)
            else:
                assert answer.views == alone.views and len(answer.views) == ask.k


ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=40),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)
PATHS = ["/v1/views", "/v1/tasks", "/v1/views", "/v1/tasks", "/v1/tasks/x/classify", "/v1/tasks/%00", "/v1/views/.."]
KINDS = ["multipart/form-data; boundary=B", "multipart/form-data; boundary=", "application/json", "x/y",
         "multipart/form-data; boundary=" + "b" * 500]  # fmt: skip


@st.composite
def malformed(draw: st.DrawFn) -> dict[str, Any]:
    """A request that was right once, with fields of any kind, or cut off and with a few bytes put in."""
    path, image = draw(st.sampled_from(PATHS)), make_image(1, (16, 16))
    if draw(st.booleans()):
        fields: dict[str, Any] = {"k": 1, "seed": 0, "original_weight": 0.5}
        for name in draw(st.sets(st.sampled_from(sorted(fields)))):
            fields[name] = draw(ANYTHING | st.just(10**400) | st.just("9" * 5000))
        junk = ANYTHING | st.sampled_from([text(image)[:-9], "data:,", [text(image)[:-9]], {"a": [text(image)]}])
        fields |= {"image": draw(junk), "classes": draw(junk)}
        return {"method": "POST", "url": path, "json": fields}
    whole = (
        b'--B\r\nContent-Disposition: form-data; name="image"; filename="x"\r\n\r\n' + png(image) + b"\r\n--B--\r\n"
    )
    data = bytearray(whole[: draw(st.integers(0, len(whole) - 40))])
    for place, byte in draw(st.lists(st.tuples(st.integers(0, len(data)), st.integers(0, 255)), max_size=8)):
        data.insert(place, byte)
    kind = draw(
        st.sampled_from(KINDS) | st.text(st.characters(codec="ascii", categories=["L", "N", "P"]), max_size=30)
    )
    method = draw(st.sampled_from(["POST", "POST", "POST", "PUT"]))
    return {"method": method, "url": path, "content": bytes(data), "headers": {"content-type": kind}}


def many_malformed(count: int) -> list[dict[str, Any]]:
    """So many different ones, the same each time."""
    made: list[dict[str, Any]] = []

    @settings(max_examples=count, database=None, derandomize=True, phases=[Phase.generate], deadline=None)
    @given(malformed())
    def collect(request: dict[str, Any]) -> None:
        made.append(request)

    collect()
    return made


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(request=malformed())
def test_malformed_requests_are_the_clients_fault(web: TestClient, request: dict[str, Any]) -> None:
    """Never a crash or a 5xx; benchmarks/scale.py sends 10,000 over a real socket."""
    found = web.request(**request)
    assert 400 <= found.status_code < 500, found.text
    assert web.get("/healthz").status_code == 200
