# SPDX-License-Identifier: Apache-2.0
"""Rights are asked for when a message is taken in, and again when it goes on later."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from headrace.gateway.security.audit import Audit
from headrace.protocol.codec_0_x import (
    ChannelClose,
    Content,
    MessageTransfer,
    QueueBind,
    QueueDeclare,
    TxCommit,
    TxSelect,
)
from headrace.spec.tables import V0_9
from support.brokers.in_memory_broker import Client, Everybody, Rig, User

TOPIC = "amq.topic"


class Topics(Everybody):
    """Everything is allowed but some topics."""

    def __init__(self) -> None:
        self.closed: set[str] = set()
        self.gone = False

    def topic_allowed(
        self, user: Any, vhost: str, permission: str, exchange: str, routing_key: str
    ) -> bool:
        return routing_key not in self.closed

    def account_user(self, name: str) -> Any:
        return None if self.gone else User()


@pytest.fixture
def access() -> Topics:
    return Topics()


@pytest.fixture
def rig(access: Topics) -> Rig:
    rig = Rig()
    rig.context.access = access
    rig.vhost.delayed.refusal = partial(access.refusal_when_due, rig.vhost)
    return rig


@pytest.fixture
def client(rig: Rig) -> Client:
    client = rig.client()
    client.send(QueueDeclare(queue="q"))
    client.send(QueueBind(queue="q", exchange=TOPIC, routing_key="#"))
    client.heard()
    return client


def publish(client: Client, key: str, **headers: Any) -> None:
    client.publish(key, b"x", exchange=TOPIC, headers=headers)


def close_key(access: Topics) -> None:
    access.closed.add("a")


def close_copy(access: Topics) -> None:
    access.closed.add("b")


def close_blind_copy(access: Topics) -> None:
    access.closed.add("c")


def remove_account(access: Topics) -> None:
    access.gone = True


def change_nothing(access: Topics) -> None:
    pass


@pytest.mark.parametrize(
    ("change", "arrives"),
    [
        (close_key, False),
        (close_copy, False),
        (close_blind_copy, False),
        (remove_account, False),
        (change_nothing, True),
    ],
)
def test_who_lost_a_right_publishes_nothing_any_more_when_it_is_due(
    rig: Rig,
    client: Client,
    access: Topics,
    change: Any,
    arrives: bool,
    caplog: pytest.LogCaptureFixture,
) -> None:
    for _ in range(2):
        said = {"x-delay": 1000, "CC": ["b"], "BCC": ["c"], "x-delayed-publisher": "root"}
        publish(client, "a", **said)
    assert len(rig.vhost.delayed) == 2
    change(access)
    rig.pass_time(1000)
    assert not len(rig.vhost.delayed)
    assert rig.vhost.queues["q"].ready_count == (2 if arrives else 0)
    told = [
        line for line in caplog.messages if "delayed message of user 'guest' is dropped" in line
    ]
    assert len(told) == (0 if arrives else 1)  # Once, however many there are.


class Lines(Audit):
    """An audit log in memory."""

    active = True

    def __init__(self) -> None:
        self.lines: list[dict[str, Any]] = []

    def record(self, what: str, **fields: Any) -> None:
        self.lines.append({"what": what, **fields})


@pytest.mark.parametrize("change", [close_key, remove_account])
def test_a_message_that_is_dropped_when_it_is_due_is_audited(
    rig: Rig, client: Client, access: Topics, change: Any
) -> None:
    publish(client, "a", **{"x-delay": 1000})
    change(access)
    access.audit = audit = Lines()
    rig.pass_time(1000)
    (line,) = audit.lines
    assert (line["what"], line["allowed"], line["vhost"]) == ("permission", False, "/")
    assert getattr(line["user"], "name", line["user"]) == "guest"
    assert "user 'guest'" in line["reason"]
    assert access.last_audited == ""


def test_who_logs_in_with_a_token_is_asked_for_rights_only_once(
    rig: Rig, client: Client, access: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They end with the token, and an account of the same name is another's."""
    monkeypatch.setattr(User, "grants", object(), raising=False)
    publish(client, "a", **{"x-delay": 1000})
    access.closed.add("a")
    rig.pass_time(1000)
    assert rig.vhost.queues["q"].ready_count == 1


def test_a_transaction_without_the_right_to_a_copy_does_nothing(
    rig: Rig, client: Client, access: Topics
) -> None:
    client.send(TxSelect())
    publish(client, "a")
    publish(client, "a", CC=["b"])
    access.closed.add("b")
    client.events.clear()
    client.send(TxCommit())
    (closed,) = client.heard()
    assert isinstance(closed, ChannelClose)
    assert "access to topic 'b'" in closed.reply_text
    assert rig.vhost.queues["q"].ready_count == 0


@pytest.mark.parametrize("delay", [{}, {"x-delay": 1000}])
@pytest.mark.parametrize("header", ["CC", "BCC"])
def test_copies_of_the_message_class_are_topics_too(
    rig: Rig, client: Client, access: Topics, header: str, delay: dict[str, int]
) -> None:
    access.closed.add("b")
    other = rig.client(V0_9)
    headers: dict[str, Any] = {header: {"1": "b"}, **delay}
    transfer = MessageTransfer(
        destination=TOPIC, routing_key="a", application_headers=headers, body=Content(b"x")
    )
    other.send(transfer)
    (closed,) = other.heard()
    assert isinstance(closed, ChannelClose)
    assert "access to topic 'b'" in closed.reply_text
    assert not len(rig.vhost.delayed)
