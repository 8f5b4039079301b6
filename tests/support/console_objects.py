# SPDX-License-Identifier: Apache-2.0
"""Objects of every kind, some with names that a page could mistake for HTML or templates."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from headrace.client import blocking
from headrace.protocol.codec_0_x import DtxSelect, DtxSelectOk, DtxStart, DtxStartOk
from headrace.spec.tables import V0_9
from headrace.testing.raw_client import RawClient

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.console import LocalConsole

SECRET = "a-password-of-tests"
HOSTILE = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "{{ 7*7 }}{% raw %}",
    "a\u202ebc\u2066d",
    "tab\there\x00\x1b[31m",
    "x" * 255,
    "javascript:alert(1)",
)
MANY = 60  # Queues, so that a list has two pages.


@contextlib.contextmanager
def populate(console: LocalConsole) -> Iterator[None]:
    """Create the objects; a consumer exists within the block."""
    link: Any = console.console.link  # type: ignore[union-attr]

    def ask(do: str, **fields: Any) -> None:
        console.run(link.ask(do, **fields))

    for name in HOSTILE:
        if name.isprintable():  # The broker refuses other names of these objects.
            ask("put vhost", name=name, description=name)
            ask("put user", name=name, password=SECRET, tags=[])
            policy = {"pattern": "^never$", "definition": {"max-length": 1}}
            ask("put policy", vhost="/", name=name, **policy)
            ask("declare queue", name=name, arguments={"x-hostile": 1})
            ask("declare exchange", name=name)
            ask("bind", source=name, destination=name, routing_key=name)
        ask(
            "bind",
            source="amq.topic",
            destination=HOSTILE[0],
            routing_key=name,
            arguments={name[:80]: name},
        )
    ask("put limit", vhost="/", name="max-queues", value=900)
    ask("put limit", user="guest", name="max-channels", value=900)
    topic = {"user": "guest", "vhost": "/", "exchange": "amq.topic", "write": ".*", "read": ".*"}
    ask("put topic permission", **topic)
    operator = {"pattern": "^never$", "definition": {"max-length": 9}}
    ask("put operator policy", vhost="/", name="short", **operator)
    ask("declare queue", name="events", arguments={"x-queue-type": "stream"})
    with blocking.connect(console.broker.url) as connection:
        channel = connection.channel()
        for at in range(MANY):
            channel.declare_queue(f"many.{at:02}")
        for _ in range(3):
            channel.publish(b"m", routing_key="many.01")
        with channel.consume("many.00", tag=HOSTILE[0]):
            yield


def begin_transaction(console: LocalConsole, queue: str) -> RawClient:
    """Begin a distributed transaction that publishes to a queue; return its client, to close it."""
    host, port = console.broker.url.rpartition("@")[2].split("/")[0].split(":")
    client = RawClient(host, int(port), V0_9).open()
    client.call(DtxSelect(), DtxSelectOk)
    client.call(DtxStart(dtx_identifier="order-17"), DtxStartOk)
    client.publish(queue, b"m")
    return client
