# SPDX-License-Identifier: Apache-2.0
"""Topics that a user may not write to are not reached by what is published later or elsewhere."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import pytest

from headrace.client import Message
from headrace.client.blocking import Connection, connect
from headrace.client.errors import AccessRefused, Closed
from headrace.model.users import Permission, TopicPermission
from headrace.protocol.codec_0_10 import ExchangeDeclare, QueueDeclare
from headrace.spec.tables import V0_10
from headrace.store.users import UserDirectory
from security_desk import administer
from serving import Served, until

if TYPE_CHECKING:
    from collections.abc import Iterator

versions = pytest.mark.parametrize("version", ["0-8", "0-9", "0-9-1", "0-10"])
REFUSED = (AccessRefused, Closed)
TOPIC = "amq.topic"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A broker where ada may use what is hers, and of topics those under her name."""
    broker = Served(tmp_path_factory.mktemp("topics"))
    broker.start().stop()
    mine = "^mine|^amq[.](topic|default|gen)"
    administer(broker.home / "data", ("ada", "secret", Permission(mine, mine, mine)))
    with contextlib.closing(UserDirectory(broker.home / "data")) as directory:
        keys = TopicPermission("^ada[.]", "^ada[.]")
        directory.set_topic_permission("ada", "/", TOPIC, keys)
    broker.start()
    with connect(broker.url) as guest, guest.channel() as channel:
        for name in ("ada", "bob"):
            channel.declare_queue(name)
            channel.bind_queue(name, TOPIC, f"{name}.#")
        channel.declare_exchange("mine", "direct")
    yield broker
    assert "Traceback" not in broker.log(), broker.log()
    assert broker.stop() == 0


@contextlib.contextmanager
def ada(broker: Served, version: str) -> Iterator[Connection]:
    url = f"amqp://ada:secret@{broker.host}:{broker.port}/%2F?version={version}"
    with connect(url, reconnect=None) as connection:
        yield connection


def publish(connection: Connection, message: Message, key: str) -> None:
    if connection.version is V0_10:
        connection.session().transfer(message, key, TOPIC)
    else:
        connection.channel().publish(message, key, TOPIC)


def listed(version: str, *keys: str) -> Any:
    """An array, or a table where there are none."""
    if version in ("0-8", "0-9"):
        return {str(number): key for number, key in enumerate(keys, 1)}
    return list(keys)


def declare_queue(connection: Connection, name: str, arguments: dict[str, Any]) -> None:
    if connection.version is V0_10:
        connection.session().call(QueueDeclare(queue=name, arguments=arguments))
    else:
        connection.channel().declare_queue(name, arguments=arguments)


def declare_exchange(connection: Connection, name: str, arguments: dict[str, Any]) -> None:
    if connection.version is V0_10:
        declare = ExchangeDeclare(exchange=name, type="direct", arguments=arguments)
        connection.session().call(declare)
    else:
        connection.channel().declare_exchange(name, "direct", arguments=arguments)


@pytest.mark.parametrize("header", ["CC", "BCC"])
@versions
def test_a_delayed_message_has_no_other_topics(served: Served, version: str, header: str) -> None:
    with connect(served.url) as guest, guest.channel() as channel:
        for name in ("ada", "bob"):
            channel.purge_queue(name)
        delay = {"x-delay": 50}
        for key, copy in (("ada.x", "bob.x"), ("bob.x", "ada.x")):
            message = Message(b"refused", headers={**delay, header: listed(version, copy)})
            with ada(served, version) as connection:
                with pytest.raises(REFUSED, match=r"access to topic 'bob\.x'"):
                    publish(connection, message, key)
        with ada(served, version) as connection:
            allowed = Message(b"fine", headers={**delay, header: listed(version, "ada.y")})
            publish(connection, allowed, "ada.x")
        arrived = until(lambda: channel.get("ada", no_ack=True), "the message is due")
        assert arrived is not None
        assert arrived.body == b"fine"
        assert (arrived.headers or {})["x-delay"] == -50
        assert "x-delayed-publisher" not in (arrived.headers or {})
        assert channel.get("ada") is None
        assert channel.get("bob") is None


LETTERS = {"x-dead-letter-exchange": TOPIC}
ELSEWHERE: dict[str, tuple[Any, str, dict[str, Any]]] = {
    "letters": (declare_queue, "every topic", LETTERS),
    "letters-key": (declare_queue, "bob.x", {**LETTERS, "x-dead-letter-routing-key": "bob.x"}),
    "orphans": (declare_queue, "every topic", {"alternate-exchange": TOPIC}),
    "unroutable": (declare_exchange, "every topic", {"x-alternate-exchange": TOPIC}),
}


@versions
def test_nothing_of_hers_goes_on_to_other_topics(served: Served, version: str) -> None:
    for way, (declare, what, arguments) in ELSEWHERE.items():
        with ada(served, version) as connection, pytest.raises(REFUSED, match=what):
            declare(connection, f"mine-{way}", arguments)
    with ada(served, version) as connection:  # Of her own topics she may say so.
        key = {"x-dead-letter-routing-key": "ada.x"}
        declare_queue(connection, f"mine-{version}", {**LETTERS, **key})
        declare_queue(connection, f"mine-direct-{version}", {"x-dead-letter-exchange": "mine"})


def test_no_exchange_is_bound_to_lead_to_other_topics(served: Served) -> None:
    with ada(served, "0-9-1") as connection, connection.channel() as channel:
        with pytest.raises(AccessRefused, match="every topic"):
            channel.bind_exchange(TOPIC, "mine", "bob.x")
