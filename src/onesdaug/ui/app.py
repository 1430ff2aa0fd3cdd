"""`onesdaug ui`: the page put together and served on this machine alone."""

from __future__ import annotations

import os
import signal
import socket
import sys
import webbrowser
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from onesdaug.common.progress import log
from onesdaug.errors import ConfigError, how_to_install
from onesdaug.ui.networks import Networks
from onesdaug.ui.settings import UiSettings

HOST = "127.0.0.1"  # the page reads folders of this machine: nobody else's page
_SWITCHED_OFF = {"GRADIO_ANALYTICS_ENABLED": "False", "HF_HUB_DISABLE_TELEMETRY": "1"}


class Served(NamedTuple):
    """A page that is served by threads of its own."""

    blocks: Any
    address: str
    networks: Networks


def serve(settings: UiSettings) -> None:
    """Serve the page until Ctrl-C or SIGTERM; then nothing that visitors gave is left on this machine."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with TemporaryDirectory(prefix="onesdaug-ui-") as folder:
        page = start(settings, Path(folder))
        log.info(f"{page.address} (Ctrl-C ends it)")
        if settings.browser and _has_screen():
            webbrowser.open(page.address)
        page.networks.loaded()  # what cannot be loaded ends the command, not only what visitors ask for
        page.blocks.block_thread()


def start(settings: UiSettings, folder: Path) -> Served:
    """The page under its address; uploads and downloads lie in `folder`."""
    if find_spec("gradio") is None:
        raise ConfigError(f"the page needs Gradio: {how_to_install('ui')}")
    # PyTorch's threads otherwise wait for each other in a loop, on the cores that the page is served from
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    networks = Networks(settings)  # first: they load while the page is put together
    os.environ.update(_SWITCHED_OFF)
    os.environ["GRADIO_TEMP_DIR"] = str(folder / "uploads")
    from starlette.middleware import Middleware
    from starlette.middleware.trustedhost import TrustedHostMiddleware

    from onesdaug.ui import html
    from onesdaug.ui.page import Page
    from onesdaug.ui.page.theme import theme
    from onesdaug.ui.page.whole import build

    blocks = build(Page(settings, networks, folder))
    _, address, _ = blocks.launch(
        server_name=HOST,
        server_port=_free_port(settings.port),
        prevent_thread_lock=True,
        quiet=True,
        share=False,
        footer_links=[],
        run_history=False,
        max_file_size=settings.max_megabytes * 10**6,
        # a page of another name that leads here is somebody else's, who must not act for the visitor
        app_kwargs={"middleware": [Middleware(TrustedHostMiddleware, allowed_hosts=[HOST, "localhost"])]},
        theme=theme(),
        css=html.style(),
    )
    return Served(blocks, address, networks)


def _free_port(port: int) -> int:
    """This one, or the next that nobody listens on; 0: any."""
    for wanted in range(port, min(port + 100, 65536)) if port else (0,):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((HOST, wanted))
            except OSError:
                continue
            return int(probe.getsockname()[1])
    raise ConfigError(f"no port is free from {port} on; name another with --port")


def _has_screen() -> bool:
    """Whether a browser would open a window: one for terminals would take the terminal."""
    return sys.platform in ("darwin", "win32") or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
