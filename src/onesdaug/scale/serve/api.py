"""The HTTP side of the service: routes, limits, token, deadlines, metrics. It knows no Ray: `Backend` answers."""

from __future__ import annotations

import asyncio
import base64
import hmac
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from onesdaug import __version__
from onesdaug.scale.serve.body import Body, Refused, read_body
from onesdaug.scale.serve.engine import Answer, Ask
from onesdaug.scale.serve.settings import Limits
from onesdaug.scale.serve.tasks import Tasks

if TYPE_CHECKING:
    from starlette.routing import Match

Backend = Callable[[Ask], Awaitable[Answer]]
_B64 = {"type": "string", "format": "byte", "description": "an image file, base64"}
_NUMBERS = {"k": {"type": "integer", "minimum": 0}, "seed": {"type": "integer"}}
_FILE = {"type": "string", "format": "binary"}
_QUIET = 1.0  # seconds without a request, after which a stop is not waited for any longer
_BUCKETS = (0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100)


class Service:
    """The state of one front: what is in work, the tasks, the counters."""

    def __init__(self, backend: Backend, limits: Limits, head: str, token: str | None, about: dict[str, str]) -> None:
        self.backend, self.limits, self.token, self.about = backend, limits, token, about
        self.tasks = Tasks(head, limits.max_tasks)
        self.in_work, self.draining = 0, False
        self.open, self.last = 0, 0.0  # requests not answered yet; when the last one came or was answered
        self.registry = CollectorRegistry()
        made: dict[str, Any] = {"registry": self.registry, "namespace": "onesdaug"}
        self.requests = Counter("requests", "Answered requests", ("route", "code"), **made)
        self.seconds = Histogram("request_seconds", "Until the answer", ("route",), buckets=_BUCKETS, **made)
        self.batches = Histogram("batch_images", "Worked on together", buckets=(1, 2, 4, 8, 16, 32, 64), **made)
        self.views = Counter("views", "Views drawn", **made)
        Gauge("images_in_work", "Waiting or in work", **made).set_function(lambda: self.in_work)
        Gauge("tasks", "Registered tasks", **made).set_function(lambda: len(self.tasks.known))

    def check(self, request: Request) -> None:
        """Whether a request is let in at all."""
        if request.url.path == "/healthz":
            return
        if self.token is not None:
            given = request.headers.get("authorization", "")
            if not hmac.compare_digest(given.encode(), f"Bearer {self.token}".encode()):
                raise Refused(401, "this service wants a bearer token")
        if self.draining and request.url.path != "/metrics":
            raise Refused(503, "the service is being stopped", retry=5)

    def until(self, request: Request) -> float:
        """When the request's time is over, in seconds since 1970."""
        asked = request.headers.get("x-timeout")
        try:
            seconds = self.limits.deadline if asked is None else float(asked)
        except ValueError:
            seconds = -1.0
        if not 0 < seconds < float("inf"):
            raise Refused(422, "X-Timeout must be a number of seconds above 0")
        return time.time() + min(seconds, self.limits.deadline)

    async def body(self, request: Request, until: float) -> Body:
        """The request's body, if it comes in time."""
        try:
            return await asyncio.wait_for(read_body(request, self.limits), max(until - time.time(), 0.001))
        except TimeoutError:
            raise Refused(408, "the request did not come in time") from None

    async def answers(self, asks: Sequence[Ask]) -> list[Answer]:
        """What the networks say, all in time or none."""
        if self.in_work + len(asks) > self.limits.queue:
            raise Refused(503, "too many requests are waiting", retry=1)
        self.in_work += len(asks)
        try:
            left = asks[0].until - time.time()
            found = await asyncio.wait_for(asyncio.gather(*map(self.backend, asks)), max(left, 0.001))
        except TimeoutError:
            raise Refused(504, "not done before the deadline", retry=1) from None
        finally:
            self.in_work -= len(asks)
        for answer in found:
            if answer.problem is not None:
                raise Refused(*answer.problem)
            self.batches.observe(answer.batch)
            self.views.inc(len(answer.views) if answer.features is None else len(answer.features) - 1)
        return list(found)

    async def drain(self, seconds: float) -> int:
        """Take nothing new, and wait for what is in work; how many images are left.

        Requests may be on their way here, and answers on their way back: it ends when there was none for a while.
        """
        self.draining, self.last = True, time.monotonic()
        end = self.last + seconds
        while (now := time.monotonic()) < end and (self.open or now - self.last < _QUIET):
            await asyncio.sleep(0.05)
        return self.in_work

    @contextmanager
    def counted(self, request: Request) -> Iterator[None]:
        """A request in hand; those who only look at the service's state do not keep it from stopping."""
        if not request.url.path.startswith("/v1/"):
            yield
            return
        self.open, self.last = self.open + 1, time.monotonic()
        try:
            yield
        finally:
            self.open, self.last = self.open - 1, time.monotonic()


def make_app(service: Service) -> FastAPI:
    """The routes."""
    app = FastAPI(title="onesdaug", version=__version__, description="Views of images, and few-shot answers.")
    limits = service.limits

    @app.middleware("http")
    async def guarded(request: Request, call: Callable[[Request], Awaitable[Response]]) -> Response:
        started, route = time.perf_counter(), _route(app, request)
        with service.counted(request):
            try:
                service.check(request)
                response = await call(request)
            except Refused as error:
                response = _refusal(error)
        service.requests.labels(route, response.status_code).inc()
        service.seconds.labels(route).observe(time.perf_counter() - started)
        return response

    @app.exception_handler(Refused)
    async def refused(_: Request, error: Refused) -> Response:
        return _refusal(error)

    @app.get("/healthz", summary="Whether the service takes requests")
    async def healthz() -> Response:
        state = {"status": "draining" if service.draining else "ok", "version": __version__, **service.about}
        return JSONResponse(state, 503 if service.draining else 200)

    @app.get("/metrics", summary="For Prometheus")
    async def metrics() -> Response:
        return Response(generate_latest(service.registry), media_type="text/plain; version=0.0.4")

    @app.post("/v1/views", summary="K views of an image", openapi_extra=_body({"image": _B64, **_NUMBERS}, ["image"]))
    async def views(request: Request) -> Response:
        until = service.until(request)
        body = await service.body(request, until)
        k, seed = body.number("k", min(3, limits.max_k), 0, limits.max_k), body.seed()
        [answer] = await service.answers([Ask(body.image(limits), k, seed, until=until)])
        pngs = [base64.b64encode(png).decode() for png in answer.views]
        return JSONResponse({"views": pngs, "k": k, "seed": seed, "digest": answer.digest, "size": answer.size})

    _add_tasks(app, service)
    return app


def _add_tasks(app: FastAPI, service: Service) -> None:
    limits, tasks = service.limits, service.tasks
    lists = {"type": "object", "additionalProperties": {"type": "array", "items": _B64}}
    support = {"classes": lists, **_NUMBERS, "original_weight": {"type": "number", "minimum": 0, "maximum": 1}}

    @app.post("/v1/tasks", summary="Register a support set", openapi_extra=_body(support, ["classes"]))
    async def register(request: Request) -> Response:
        until = service.until(request)
        tasks.check_room()
        body = await service.body(request, until)
        k, seed, weight = body.number("k", 0, 0, limits.max_k), body.seed(), body.share("original_weight", 0.5)
        classes = body.classes(limits)
        asks = [Ask(image, k, seed, True, until) for images in classes.values() for image in images]
        found = await service.answers(asks)
        number = tasks.add(tuple(classes), [_features(one) for one in found], seed, weight)
        shots = len(asks) // len(classes)
        return JSONResponse({"id": number, "classes": list(classes), "shots": shots, "k": k, "seed": seed}, 201)

    @app.post(
        "/v1/tasks/{number}/classify",
        summary="The class of an image",
        openapi_extra=_body({"image": _B64, "k": _NUMBERS["k"]}, ["image"]),
    )
    async def classify(number: str, request: Request) -> Response:
        until = service.until(request)
        task = tasks.get(number)
        body = await service.body(request, until)
        k = body.number("k", 0, 0, limits.max_k)
        [answer] = await service.answers([Ask(body.image(limits), k, task.seed, True, until)])
        return JSONResponse({**tasks.classify(task, _features(answer)), "k": k})

    @app.delete("/v1/tasks/{number}", summary="Forget a task", status_code=204)
    async def delete(number: str) -> Response:
        tasks.remove(number)
        return Response(status_code=204)


def _features(answer: Answer) -> Any:
    assert answer.features is not None
    return answer.features


def _refusal(error: Refused) -> Response:
    headers = {} if error.retry is None else {"Retry-After": f"{error.retry:g}"}
    if error.status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    return JSONResponse({"error": str(error)}, error.status, headers)


def _route(app: FastAPI, request: Request) -> str:
    """The path's pattern: ids of tasks are no names of counters."""
    for route in app.routes:
        match: tuple[Match, Any] = route.matches(request.scope)
        if match[0].value == 2:
            return str(getattr(route, "path", "other"))
    return "other"


def _body(properties: dict[str, Any], required: list[str]) -> dict[str, Any]:
    """What the OpenAPI page says of a body that we read ourselves."""
    form = {name: _FILE if kind is _B64 else kind for name, kind in properties.items() if name != "classes"}
    asked = {"type": "object", "properties": properties, "required": required}
    sent = {"type": "object", "properties": form, "required": [name for name in required if name in form]}
    if "classes" in properties:
        sent["additionalProperties"] = {"type": "array", "items": _FILE}
    content = {"application/json": {"schema": asked}, "multipart/form-data": {"schema": sent}}
    return {"requestBody": {"required": True, "content": content}}
