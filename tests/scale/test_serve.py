"""The service on Ray Serve with two replicas: many clients at once, one replica killed, then stopped in the middle."""

from __future__ import annotations

import base64
import io
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from PIL import Image

from onesdaug.scale.serve.deploy import running
from onesdaug.scale.serve.settings import Limits, Networks, Serving
from onesdaug.scale.start import RayOptions

ray: Any = pytest.importorskip("ray")
httpx: Any = pytest.importorskip("httpx")
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # Ray's own


def png(image: Image.Image) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    return buffer.getvalue()


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def kill_a_replica() -> None:
    names = [one["name"] for one in ray.util.list_named_actors(all_namespaces=True) if "networks" in one["name"]]
    ray.kill(ray.get_actor(names[0], namespace="serve"))


def ask(web: Any, number: int) -> int:
    """Views of an image in a colour of its own; whatever comes back is of that image, or is an error that says so."""
    colour, size = (number * 7 % 256, number * 31 % 256, number * 101 % 256), (20 + number % 9, 24)
    image = Image.new("RGB", size, colour)
    found = web.post("/v1/views", files={"image": ("x.png", png(image))}, data={"k": str(number % 3), "seed": "3"})
    if found.status_code == 200:
        told = found.json()
        assert told["size"] == list(size) and len(told["views"]) == number % 3
        for view in told["views"]:
            pixel = Image.open(io.BytesIO(base64.b64decode(view))).getpixel((10, 12))
            assert pixel == colour
    else:
        assert found.status_code == 503 and found.json()["error"]
    return int(found.status_code)


def test_many_clients_a_dead_replica_and_a_stop() -> None:
    port = free_port()
    serving = Serving(port=port, replicas=2, replica_cpus=0.4, max_batch=8, batch_wait=0.02, drain=10)
    networks, limits = Networks(model="shape", encoder="convnet", device="cpu"), Limits(queue=64)
    local = RayOptions(ray="local")
    with (
        httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as web,
        ThreadPoolExecutor(16) as clients,
    ):
        with running(serving, networks, limits, None, local):
            assert web.get("/healthz").json()["status"] == "ok"
            before = list(clients.map(lambda n: ask(web, n), range(80)))
            assert set(before) == {200}
            told = {line.split(" ")[0]: line.split(" ")[1] for line in web.get("/metrics").text.splitlines()}
            images = float(told["onesdaug_batch_images_count"])
            assert images == 80
            assert float(told["onesdaug_batch_images_sum"]) > images  # requests shared batches
            threading.Timer(0.2, kill_a_replica).start()
            during = list(clients.map(lambda n: ask(web, n), range(80, 240)))
            assert len(during) == 160 and during.count(200) > 80  # each has been answered
            last = [clients.submit(ask, web, n) for n in range(8)]
            time.sleep(0.05)
        assert {one.result() for one in last} <= {200, 503}  # what was in work was finished
        with pytest.raises(httpx.HTTPError):
            web.get("/healthz")
