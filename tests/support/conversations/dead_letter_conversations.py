# SPDX-License-Identifier: Apache-2.0
"""Conversations about dead letters at least once whose target is missing at first.

Both brokers try again after a while, at first after a second: the conversations wait for what must
come of it, however long that takes. Meanwhile the letters are in no queue that can be asked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.protocol.codec_0_x import ExchangeDelete, QueuePurge
from support.conversations.conversation_steps import (
    INSISTENT,
    LETTERS,
    bind,
    bodies,
    call,
    consume,
    declare,
    delete,
    exchange,
    get,
    join,
    policy,
    publish,
    qos,
    quorum,
    settle,
    until,
)

if TYPE_CHECKING:
    from support.conversations.random_conversations import Deed


def rejected(*texts: str) -> list[Deed]:
    """Publish to q1, take and reject, one after another."""
    return [
        deed
        for text in texts
        for deed in (publish(body=text.encode()), get(no_ack=False), settle())
    ]


def came(name: str, count: int) -> list[Deed]:
    """Wait for letters, and take them."""
    return [until(name, (count, 0)), *[get(name) for _ in range(count + 1)]]


ELSEWHERE = {"x_dead_letter_exchange": "x1", "x_dead_letter_routing_key": "q2"}
FULL: dict[str, Any] = {"x_max_length": 1, "x_overflow": "reject-publish"}
# Of two queues that a letter leads to, one is full.
ONE_OF_TWO_TAKES: list[Deed] = [
    exchange("x1", "fanout"),
    declare("q2"),
    declare("q3", **FULL),
    bind("q2", "x1"),
    bind("q3", "x1"),
    quorum(x_dead_letter_exchange="x1", **INSISTENT),
    publish("q3", b"first"),
    *rejected("1"),
    *came("q2", 1),
]
CONVERSATIONS: dict[str, list[Deed]] = {
    "no target, then one": [
        quorum(**INSISTENT, **LETTERS),
        *rejected("1"),
        get(),
        declare("q2"),
        *came("q2", 1),
        *rejected("2"),
        *came("q2", 1),
    ],
    "no target, several letters": [
        quorum(**INSISTENT, **LETTERS),
        *rejected("1", "2", "3"),
        declare("q2"),
        until("q2", (3, 0)),
        get(),
        call(QueuePurge(queue="q2")),
    ],
    "no exchange, then one": [
        quorum(**INSISTENT, **ELSEWHERE),
        *rejected("1"),
        exchange("x1"),
        declare("q2"),
        bind("q2", "x1", "q2"),
        *came("q2", 1),
    ],
    "an exchange without a binding": [
        exchange("x1"),
        quorum(**INSISTENT, **ELSEWHERE),
        declare("q2"),
        *rejected("1"),
        get("q2"),
        bind("q2", "x1", "q2"),
        *came("q2", 1),
    ],
    "an exchange that is declared again": [
        exchange("x1"),
        declare("q2"),
        bind("q2", "x1", "q2"),
        quorum(**INSISTENT, **ELSEWHERE),
        call(ExchangeDelete(exchange="x1")),
        *rejected("1"),
        exchange("x1", "fanout"),
        bind("q2", "x1", "other"),
        *came("q2", 1),
    ],
    "a target that refuses": [
        declare("q2", **FULL),
        quorum(**INSISTENT, **LETTERS),
        publish("q2", b"first"),
        *rejected("1"),
        get("q2"),
        *came("q2", 1),
    ],
    "a target that refuses one of two": [
        declare("q2", **FULL),
        quorum(**INSISTENT, **LETTERS),
        *rejected("1", "2"),
        *came("q2", 1),
        *came("q2", 1),
    ],
    "a target with room for its consumer": [
        declare("q2", **FULL),
        quorum(**INSISTENT, **LETTERS),
        *rejected("1", "2", "3"),
        qos(1),
        consume("q2", "a"),
        until("q2", (1, 1)),
        settle("ack"),
        until("q2", (1, 1)),
        settle("ack"),
        until("q2", (0, 1)),
        settle("ack"),
    ],
    "a target that is deleted and declared again": [
        declare("q2"),
        quorum(**INSISTENT, **LETTERS),
        *rejected("1"),
        *came("q2", 1),
        delete("q2"),
        *rejected("2"),
        declare("q2", durable=True),
        *came("q2", 1),
    ],
    "a target that refuses is deleted": [
        declare("q2", **FULL),
        quorum(**INSISTENT, **LETTERS),
        publish("q2", b"first"),
        *rejected("1"),
        delete("q2"),
        declare("q2"),
        *came("q2", 1),
    ],
    "two targets, one refuses": [
        *ONE_OF_TWO_TAKES,
        get("q3"),
        *came("q3", 1),
        get("q2"),
    ],
    "two targets, the one that refuses is deleted": [
        *ONE_OF_TWO_TAKES,
        delete("q3"),
        declare("q3"),
        bind("q3", "x1"),
        *came("q3", 1),
        get("q2"),
    ],
    "two targets, the one that refuses is unbound": [
        *ONE_OF_TWO_TAKES,
        delete("q3"),
        *rejected("2"),
        *came("q2", 1),
        get("q2"),
    ],
    "the key of the message": [
        exchange("x1", "topic"),
        quorum(x_dead_letter_exchange="x1", **INSISTENT),
        declare("q2"),
        *rejected("1"),
        bind("q2", "x1", "q1"),
        *came("q2", 1),
    ],
    "further keys of the message": [
        exchange("x1"),
        quorum(x_dead_letter_exchange="x1", **INSISTENT),
        declare("q2"),
        publish(headers={"CC": ["k"]}),
        get(no_ack=False),
        settle(),
        bind("q2", "x1", "k"),
        *came("q2", 1),
    ],
    "an alternate exchange takes them": [
        exchange("x2", "fanout"),
        exchange("x1", alternate_exchange="x2"),
        quorum(**INSISTENT, **ELSEWHERE),
        declare("q2"),
        *rejected("1"),
        bind("q2", "x2"),
        *came("q2", 1),
    ],
    "expired, without a target": [
        quorum(**INSISTENT, **LETTERS),
        publish(expiration="1"),
        until("q1", (0, 0)),
        declare("q2"),
        *came("q2", 1),
    ],
    "expired, with no way but round": [
        exchange("x1", "fanout"),
        quorum(x_dead_letter_exchange="x1", x_message_ttl=1, **INSISTENT),
        bind("q1", "x1"),
        publish(),
        until("q1", (0, 0)),
        declare("q2"),
        bind("q2", "x1"),
        *came("q2", 1),
        get(),
    ],
    "tried too often, without a target": [
        quorum(x_delivery_limit=0, **INSISTENT, **LETTERS),
        publish(),
        get(no_ack=False),
        settle("nack", True),
        get(),
        declare("q2"),
        *came("q2", 1),
    ],
    "a policy brings the target": [
        quorum(x_overflow="reject-publish"),
        declare("q2"),
        policy(
            dead_letter_strategy="at-least-once",
            dead_letter_exchange="x1",
            dead_letter_routing_key="q2",
        ),
        *rejected("1"),
        policy(
            dead_letter_strategy="at-least-once",
            dead_letter_exchange="",
            dead_letter_routing_key="q2",
        ),
        *came("q2", 1),
    ],
    "a policy ends it": [
        quorum(x_overflow="reject-publish"),
        declare("q2"),
        policy(
            dead_letter_strategy="at-least-once",
            dead_letter_exchange="x1",
            dead_letter_routing_key="q2",
        ),
        *rejected("1"),
        policy(),
        *rejected("2"),
        exchange("x1", "fanout"),
        bind("q2", "x1"),
        get(),
        get("q2"),
    ],
    "purged and deleted": [
        quorum(**INSISTENT, **LETTERS),
        *rejected("1"),
        call(QueuePurge(queue="q1")),
        delete("q1"),
        quorum(**INSISTENT, **LETTERS),
        declare("q2"),
        *rejected("2"),
        *came("q2", 1),
    ],
    "a length with letters that wait": [
        quorum(x_max_length=2, **INSISTENT, **LETTERS),
        *rejected("1"),
        *bodies("2"),
        get(),
        declare("q2"),
        *came("q2", 1),
    ],
    "from quorum to quorum to classic": [
        quorum(**INSISTENT, **LETTERS),
        quorum("q2", x_dead_letter_exchange="", x_dead_letter_routing_key="q3", **INSISTENT),
        *rejected("1"),
        until("q2", (1, 0)),
        get("q2", no_ack=False),
        settle(),
        declare("q3"),
        *came("q3", 1),
    ],
    "over a bound exchange": [
        exchange("x1", "fanout"),
        exchange("x2", "fanout"),
        declare("q2"),
        bind("q2", "x2"),
        quorum(x_dead_letter_exchange="x1", **INSISTENT),
        *rejected("1"),
        join("x2", "x1"),
        *came("q2", 1),
    ],
}
