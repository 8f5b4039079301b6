# SPDX-License-Identifier: Apache-2.0
"""The rules of publishing hold for a client, for the management socket and for the HTTP API.

Each test is one rule, and publishes by each of the three as a user with a few permissions.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pika
import pytest
from pika.exceptions import ChannelClosedByBroker, NackError, UnroutableError

from support.console import LocalConsole
from support.management_socket import ManagementClient, OperationRefused
from support.queue_contents import all_ready

if TYPE_CHECKING:
    from headrace.client import blocking

ADA = ("ada", "secret")
ROUTED, UNROUTED = "routed", "unrouted"
NO_ROOM = "no room"  # A queue refuses the message.
REFUSED = "refused"  # The user or the message is refused.

Publish = Callable[..., str]


@pytest.fixture(scope="module")
def console(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalConsole]:
    """A broker with a console, and a user of few permissions."""
    with LocalConsole(tmp_path_factory.mktemp("data")) as running:
        system = ManagementClient(running.socket)
        system.ask("put user", name=ADA[0], password=ADA[1], tags="management")
        system.ask("put permission", user="ada", configure="", write="^(may|amq[.])", read="")
        system.ask("declare exchange", name="may-topics", type="topic")
        rights = {"exchange": "may-topics", "write": "^ada[.]", "read": ""}
        system.ask("put topic permission", user="ada", **rights)
        system.close()
        yield running


@pytest.fixture(params=["client", "socket", "http"])
def publish(request: pytest.FixtureRequest, console: LocalConsole) -> Iterator[Publish]:
    """Publish a message as ada by one of the doors; return what became of it."""
    if request.param == "client":
        credentials = pika.PlainCredentials(*ADA)
        parameters = pika.URLParameters(console.broker.url)
        parameters.credentials = credentials
        with pika.BlockingConnection(parameters) as connection:
            yield lambda *address, **fields: by_client(connection, *address, **fields)
    elif request.param == "socket":
        system = ManagementClient(console.socket)
        ada = system.login(*ADA)
        yield lambda *address, **fields: by_socket(ada, *address, **fields)
        system.close()
    else:
        yield lambda *address, **fields: by_http(console, *address, **fields)


def by_client(
    connection: pika.BlockingConnection, exchange: str, key: str, body: str, **properties: Any
) -> str:
    channel = connection.channel()
    channel.confirm_delivery()
    try:
        channel.basic_publish(
            exchange, key, body.encode(), pika.BasicProperties(**properties), mandatory=True
        )
    except UnroutableError:
        return UNROUTED
    except NackError:
        return NO_ROOM
    except ChannelClosedByBroker:
        return REFUSED
    channel.close()
    return ROUTED


def by_socket(
    ada: ManagementClient, exchange: str, key: str, body: str, **properties: object
) -> str:
    fields = {"exchange": exchange, "routing_key": key, "payload": body}
    try:
        done = ada.ask("publish", **fields, properties=properties)
    except OperationRefused as error:
        return NO_ROOM if error.code == "limit" else REFUSED
    return ROUTED if done["routed"] else UNROUTED


def by_http(console: LocalConsole, exchange: str, key: str, body: str, **properties: object) -> str:
    sent = {
        "routing_key": key,
        "payload": body,
        "payload_encoding": "string",
        "properties": properties,
    }
    path = f"/api/exchanges/%2F/{exchange or 'amq.default'}/publish"
    answer = console.ask("POST", path, sent, user=ADA)
    if answer.status != 200:
        return NO_ROOM if b"length limit" in answer.body else REFUSED
    return ROUTED if answer.json["routed"] else UNROUTED


@pytest.fixture
def channel(console: LocalConsole) -> Iterator[blocking.Channel]:
    """A channel of a user with all permissions, who sees what came."""
    from headrace.client.blocking import connect

    with connect(console.broker.url) as connection:
        yield connection.channel()


@pytest.fixture
def name() -> str:
    """A name that ada may write to, and no other test uses."""
    return f"may-{uuid.uuid4().hex[:8]}"


def got(channel: blocking.Channel, queue: str) -> list[str]:
    """Take all messages of a queue; return their bodies."""
    return [message.text() for message in all_ready(channel, queue)]


def test_a_message_without_a_queue_is_told(publish: Publish, name: str) -> None:
    assert publish("", name, "m") == UNROUTED
    assert publish("may-absent", "k", "m") == REFUSED


def test_rights_on_exchanges_and_topics(
    publish: Publish, channel: blocking.Channel, name: str
) -> None:
    channel.declare_exchange("other", "direct")
    channel.declare_queue(name, auto_delete=True)
    channel.bind_queue(name, "may-topics", "*.seen")
    assert publish("other", "k", "m") == REFUSED
    assert publish("may-topics", "ada.seen", "m") == ROUTED
    assert publish("may-topics", "eve.seen", "m") == REFUSED
    assert publish("may-topics", "ada.seen", "m", headers={"CC": ["eve.seen"]}) == REFUSED
    assert got(channel, name) == ["m"]


def test_a_user_says_who_it_is(publish: Publish, channel: blocking.Channel, name: str) -> None:
    channel.declare_queue(name)
    assert publish("amq.direct", name, "m", user_id="eve") == REFUSED
    channel.bind_queue(name, "amq.direct", name)
    assert publish("amq.direct", name, "m", user_id="ada") == ROUTED


def test_copies_go_to_further_keys_and_are_hidden(
    publish: Publish, channel: blocking.Channel, name: str
) -> None:
    for suffix in ("", ".cc", ".bcc"):
        channel.declare_queue(name + suffix)
        channel.bind_queue(name + suffix, "amq.direct", name + suffix)
    headers = {"CC": [f"{name}.cc"], "BCC": [f"{name}.bcc"]}
    assert publish("amq.direct", name, "m", headers=headers) == ROUTED
    message = channel.get(f"{name}.bcc", no_ack=True)
    assert message is not None
    assert message.headers == {"CC": [f"{name}.cc"]}
    assert got(channel, name) == got(channel, f"{name}.cc") == ["m"]


def test_what_expires_becomes_a_dead_letter(
    publish: Publish, channel: blocking.Channel, name: str
) -> None:
    channel.declare_queue(f"{name}.dead")
    letters = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": f"{name}.dead"}
    channel.declare_queue(name, arguments=letters)
    channel.bind_queue(name, "amq.direct", name)
    assert publish("amq.direct", name, "m", expiration="0") == ROUTED
    assert publish("amq.direct", name, "m", expiration="soon") == REFUSED
    assert got(channel, name) == []
    assert got(channel, f"{name}.dead") == ["m"]


def test_a_queue_at_its_limit_refuses(
    publish: Publish, channel: blocking.Channel, name: str
) -> None:
    channel.declare_queue(name, arguments={"x-max-length": 1, "x-overflow": "reject-publish"})
    channel.bind_queue(name, "amq.direct", name)
    assert publish("amq.direct", name, "1") == ROUTED
    assert publish("amq.direct", name, "2") == NO_ROOM
    assert got(channel, name) == ["1"]


def test_an_alternate_exchange_takes_what_has_no_queue(
    publish: Publish, channel: blocking.Channel, name: str
) -> None:
    channel.declare_exchange(f"{name}.rest", "fanout")
    channel.declare_exchange(name, "direct", arguments={"alternate-exchange": f"{name}.rest"})
    channel.declare_queue(f"{name}.queue")
    channel.bind_queue(f"{name}.queue", f"{name}.rest")
    assert publish(name, "nowhere", "m") == ROUTED
    assert got(channel, f"{name}.queue") == ["m"]


def test_a_delayed_message_waits(publish: Publish, channel: blocking.Channel, name: str) -> None:
    channel.declare_queue(name)
    channel.bind_queue(name, "amq.direct", name)
    assert publish("amq.direct", name, "m", headers={"x-delay": 3_600_000}) == ROUTED
    assert publish("amq.direct", name, "m", headers={"x-delay": 1 << 50}) == REFUSED
    assert got(channel, name) == []


def test_a_number_of_a_publisher_is_taken_once(
    publish: Publish, channel: blocking.Channel, name: str
) -> None:
    channel.declare_queue(name)
    channel.bind_queue(name, "amq.direct", name)
    headers = {"x-publisher-name": name, "x-publishing-id": 1}
    for _ in range(2):
        assert publish("amq.direct", name, "m", headers=headers) == ROUTED
    assert got(channel, name) == ["m"]


def test_a_duplicate_is_dropped(publish: Publish, channel: blocking.Channel, name: str) -> None:
    arguments = {"x-message-deduplication": True}
    channel.declare_queue(name, arguments=arguments)
    channel.bind_queue(name, "amq.direct", name)
    for body in ("1", "2"):
        publish("amq.direct", name, body, headers={"x-deduplication-header": "same"})
    assert got(channel, name) == ["1"]


def test_headers_route(publish: Publish, channel: blocking.Channel, name: str) -> None:
    channel.declare_queue(name)
    channel.bind_queue(name, "amq.headers", arguments={"x-match": "all", "for": name})
    assert publish("amq.headers", "", "m", headers={"for": name}) == ROUTED
    assert publish("amq.headers", "", "m", headers={"for": "other"}) == UNROUTED
    assert got(channel, name) == ["m"]


def test_an_answer_needs_a_consumer(publish: Publish, channel: blocking.Channel, name: str) -> None:
    channel.declare_queue(name)
    channel.bind_queue(name, "amq.direct", name)
    assert publish("amq.direct", name, "m", reply_to="amq.rabbitmq.reply-to") == REFUSED
    assert got(channel, name) == []


def test_priorities_order(publish: Publish, channel: blocking.Channel, name: str) -> None:
    channel.declare_queue(name, arguments={"x-max-priority": 5})
    channel.bind_queue(name, "amq.direct", name)
    for priority in (1, 5):
        assert publish("amq.direct", name, str(priority), priority=priority) == ROUTED
    assert got(channel, name) == ["5", "1"]
