# SPDX-License-Identifier: Apache-2.0
"""Screenshots of the console's pages, over a broker with traffic: of tests and of the guide."""

from __future__ import annotations

import base64
import contextlib
import json
import threading
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Final

from headrace.client import Message, blocking
from support.browser import Chromium
from support.console import LocalConsole
from support.console_pipelines import claim_groups, places, run_pipeline

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headrace.client.blocking import Channel, Connection

QUALITY = 60  # Of WebP.
TURN_S = 0.1
HEIGHTS = {360: 740, 768: 900, 1440: 900}
# Name, path, and the looks: width and theme.
SHOTS: Final = (
    ("overview", "/", tuple((width, theme) for width in HEIGHTS for theme in ("light", "dark"))),
    ("queues", "/queues?sort=messages_ready&sort_reverse=true", ((1440, "light"),)),
    ("messages", "/queues/%2F/flights.delayed/messages", ((1440, "light"), (360, "light"))),
    ("dead-letters", "/queues/%2F/flights.dead/dead-letters", ((768, "dark"),)),
    ("topology", "/exchanges/%2F/flights/topology?routing_key=dep.JFK.UA", ((1440, "light"),)),
    ("pipeline", "/pipelines/orders", ((1440, "dark"),)),
)


def declare(channel: Channel) -> None:
    """Declare an exchange with queues, of which one has dead letters."""
    channel.declare_exchange("flights", "topic", durable=True)
    channel.declare_queue("flights.dead", durable=True)
    dies = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "flights.dead"}
    short = {"x-message-ttl": 2000, "x-max-length": 300}
    for name, key, arguments in (
        ("flights.departures", "dep.#", {}),
        ("flights.arrivals", "arr.#", {}),
        ("flights.delayed", "#.UA", {}),
        ("flights.boards", "*.JFK.*", dies | short),
        ("flights.archive", "#", {"x-queue-type": "stream"}),
    ):
        channel.declare_queue(name, durable=True, arguments=arguments)
        channel.bind_queue(name, "flights", routing_key=key)


def keep_busy(connection: Connection, over: threading.Event) -> None:
    """Publish and consume flights until it is over."""
    channel = connection.channel()
    declare(channel)
    with channel.consume("flights.departures", no_ack=True):
        for turn in count():
            if over.wait(TURN_S):
                return
            for at in range(8 + turn % 60 // 10):
                kind, airport = ("dep", "arr")[at % 2], ("JFK", "SFO", "ORD")[at % 3]
                carrier = ("AA", "DL", "UA")[(at + turn) % 3]
                flight = {"flight": f"{carrier}{turn:04}", "gate": f"B{at}", "delay_min": at * 7}
                message = Message(
                    json.dumps(flight).encode(),
                    content_type="application/json",
                    headers={"carrier": carrier, "delay": at * 7},
                )
                channel.publish_soon(message, f"{kind}.{airport}.{carrier}", "flights")


def take(browser: Chromium, folder: Path) -> Iterator[Path]:
    """Write a file for each look at each page; yield it."""
    for name, path, looks in SHOTS:
        for width, theme in looks:
            browser.look(width, theme, HEIGHTS[width])
            browser.open(path)
            charts = len(browser.all(".chart"))
            browser.wait(lambda: len(browser.all(".chart canvas")) >= charts, "charts")  # noqa: B023
            shot = browser.command("Page.captureScreenshot", format="webp", quality=QUALITY)
            file = folder / f"{name}-{width}-{theme}.webp"
            file.write_bytes(base64.b64decode(shot["data"]))
            yield file


@contextlib.contextmanager
def busy_console(home: Path) -> Iterator[Chromium]:
    """Run a broker with traffic, a console and a browser that has logged in.

    The pages show the path of the pipeline: go to ``home`` before, for a short one.
    """
    for name in ("data", "pipelines", "chromium"):
        (home / name).mkdir()
    pipelines = Path("pipelines")
    over = threading.Event()
    with (
        LocalConsole(home / "data", pipelines=places(pipelines)) as console,
        run_pipeline(pipelines, is_hostile=False),
        blocking.connect(console.broker.url) as connection,
    ):
        claim_groups(console.broker.url)
        traffic = threading.Thread(target=keep_busy, args=(connection, over))
        traffic.start()
        try:
            with Chromium(console.addresses["http"], home / "chromium") as browser:
                browser.log_in("guest", "guest")
                yield browser
        finally:
            over.set()
            traffic.join()
