# SPDX-License-Identifier: Apache-2.0
"""Numbers 6, 8 and 14 of the abuses: messages and bindings that are meant to stop others."""

from __future__ import annotations

import contextlib
import gzip
import math
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from headrace.client import ClientError, Message
from headrace.client.blocking import Connection, connect
from headrace.client.errors import PreconditionFailed
from headrace.client.session.subscription import UNLIMITED
from headrace.protocol.codec_0_10 import QueueDeclare
from headrace.spec.tables import V0_10
from support.brokers.broker_process import until
from support.timeouts import PATIENCE_S

if TYPE_CHECKING:
    from support.brokers.broker_process import Served

VERSIONS = ("0-8", "0-9", "0-9-1", "0-10")
NESTED: dict[str, Any] = {"a": 1}
for _ in range(8):
    NESTED = {"a": [NESTED]}
ODD: list[dict[str, Any]] = [
    {"x": "y" * 60_000},
    {"x": math.nan, "y": math.inf, "z": Decimal("1E-100")},
    {"": "", "\u00e9" * 120: None},
    {"x": b"\xff\xfe\0", "y": [b"\0", [], {}]},
    {"x": NESTED},
    {"x-death": "no table", "CC": [], "qpid.subject": [1]},
    {f"k{n}": n for n in range(500)},
]


def take(connection: Connection, queue: str, last: bytes) -> int:
    """Consume until the last message; return how many came before it."""
    if connection.version is V0_10:
        session = connection.session()
        subscription = session.subscribe(queue)
        subscription.flow(UNLIMITED)
        count = 0
        while (transfer := subscription.receive(PATIENCE_S)).body != last:
            session.accept(transfer)
            count += 1
        return count
    channel = connection.channel()
    consumer = channel.consume(queue)
    count = 0
    while True:
        delivery = consumer.receive(PATIENCE_S)
        delivery.ack()
        if delivery.body == last:
            return count
        count += 1


@pytest.mark.parametrize("reader", VERSIONS)
@pytest.mark.parametrize("writer", ["0-9-1", "0-10"])
def test_no_message_stops_those_behind_it(served: Served, writer: str, reader: str) -> None:
    """CVE-2026-92608: what cannot be said in the consumer's version makes way."""
    queue = f"odd-{writer}-{reader}"
    with connect(served.url) as guest, guest.channel() as channel:
        channel.declare_queue(queue)
    with connect(f"{served.url}?version={writer}", reconnect=None) as connection:
        session = connection.session() if writer == "0-10" else None
        publisher: Any = None if session is not None else connection.channel()
        for headers in ODD:
            if session is not None and not all(headers):
                continue  # A map of 0-10 has no keys without a name.
            message = Message(b"odd", headers=headers)
            if session is not None:
                session.transfer(message, queue)
            else:
                publisher.publish(message, queue)
        if session is not None:
            session.transfer(b"last", queue)
        else:
            publisher.publish(b"last", queue)
    small = "&frame_max=4096" if "0-10" in (writer, reader) else ""
    with connect(f"{served.url}?version={reader}{small}", reconnect=None) as connection:
        assert take(connection, queue, b"last") <= len(ODD)
    with connect(served.url) as guest, guest.channel() as channel:
        channel.delete_queue(queue)


def test_nothing_is_unpacked(served: Served) -> None:
    """CVE-2026-92573: a body is octets, whatever it says of its encoding."""
    bomb = gzip.compress(gzip.compress(bytes(50_000_000)))
    before = served.memory_bytes()
    with connect(served.url) as connection, connection.channel() as channel:
        queue = channel.declare_queue("bombs", durable=False, exclusive=True).name
        for _ in range(100):
            channel.publish(Message(bomb, content_encoding="gzip"), queue)
        delivery = channel.get(queue, no_ack=True)
        assert delivery is not None
        assert delivery.body == bomb
    assert served.memory_bytes() - before < 40_000_000


@pytest.mark.parametrize("weight", ["1000000", "9" * 200, "-1", "0", "1e9", "\u0663", ""])
def test_a_weight_is_bounded(served: Served, weight: str) -> None:
    """CVE-2026-67219."""
    with connect(served.url) as connection, connection.channel() as channel:
        channel.declare_queue("heavy", durable=False, exclusive=True)
        channel.declare_exchange("hash", "x-consistent-hash", durable=False)
        with pytest.raises(PreconditionFailed):
            channel.bind_queue("heavy", "hash", weight or " ")


def test_hashing_what_is_empty_or_odd_leads_somewhere(served: Served) -> None:
    """GHSA-pj8f-mw2q-3xjj."""
    arguments = {"hash-header": "h"}
    with connect(served.url) as connection, connection.channel() as channel:
        channel.declare_exchange("by-header", "x-consistent-hash", arguments=arguments)
        queue = channel.declare_queue("hashed", durable=False, exclusive=True).name
        channel.bind_queue(queue, "by-header", "1")
        values: tuple[Any, ...] = ([], {}, [[]], None, "", b"", [None], NESTED)
        for value in values:
            channel.publish(Message(b"x", headers={"h": value}), "k", "by-header", mandatory=True)
        assert channel.purge_queue(queue) == len(values)
        channel.delete_exchange("by-header")


def test_patterns_of_many_wildcards_cost_little(served: Served) -> None:
    """CVE-2026-67419: neither one pattern nor many, nor the longest key, take time together."""
    with connect(served.url) as connection, connection.channel() as channel:
        channel.declare_exchange("wild", "topic", durable=False, auto_delete=True)
        queue = channel.declare_queue("wild", durable=False, exclusive=True).name
        for n in range(1, 30):
            for pattern in ("#.", "#.*.", "*.#.", "a.#."):
                channel.bind_queue(queue, "wild", (pattern * n)[:250].rstrip(".") or "#")
        before = served.cpu_s()
        for n in range(20):
            channel.publish(b"x", f"{'a.' * 120}{n}", "wild")
        assert served.cpu_s() - before < 10
        assert channel.purge_queue(queue) == 20


@pytest.mark.parametrize("version", VERSIONS)
def test_names_of_clients_begin_no_lines_of_the_log(served: Served, version: str) -> None:
    """CVE-2026-44839 and its like: names chosen by clients are shown, and never executed."""
    name = f"x\n2026-11-21 14:00:00 INFO forged: {version}\x1b[2J\u2028\x85"
    with connect(f"{served.url}?version={version}", reconnect=None) as connection:
        with contextlib.suppress(ClientError):
            if connection.version is V0_10:
                connection.session().call(QueueDeclare(queue=name, passive=True))
            else:
                connection.channel().declare_queue(name, passive=True)
    until(lambda: rf"INFO forged: {version}\x1b[2J" in served.log(), "the log says so")
    assert "\x1b" not in served.log()
    assert not [
        line for line in served.log().splitlines() if line.startswith("2026-11-21 14:00:00")
    ]
