"""How the tests ask a server: two requests at a time, without patience."""

from __future__ import annotations

from typing import Any

from onesdaug.vlm.endpoint import Endpoint
from onesdaug.vlm.model import Reply
from onesdaug.vlm.settings import Asking
from tests.conftest import make_image
from tests.vlm.server import Server

PICTURES = [make_image(seed, (40, 30)) for seed in range(3)]
SECRET = "sk-not-for-your-eyes-0123456789"
QUICK = {"timeout": 0.8, "retries": 1, "pause": 0.01}


def client(server: Server, *decodings: str, limits: dict[str, Any] = QUICK, **more: Any) -> Endpoint:
    return Endpoint(server.url, "some-model", Asking(decodings or ("greedy",), **more), workers=2, **limits)


def ask(server: Server, count: int = 1, **more: Any) -> list[Reply]:
    return client(server, **more).ask(PICTURES[:count], "Is there a cat?", "1")["plain/greedy"]
