# SPDX-License-Identifier: Apache-2.0
"""Conversations about ways through exchanges, what comes back by them, and transactions."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from headrace.protocol.codec_0_x import (
    ExchangeDeclare,
    ExchangeDelete,
    QueueUnbind,
    TxCommit,
    TxRollback,
)
from headrace.wire.table import (
    Byte,
    Long,
    Short,
    UnsignedByte,
    UnsignedInt,
    UnsignedShort,
)
from support.conversations.conversation_steps import (
    LETTERS,
    bind,
    bodies,
    call,
    close,
    commit,
    confirm,
    consume,
    declare,
    drop,
    exchange,
    get,
    join,
    publish,
    qos,
    recover,
    rollback,
    select,
    settle,
    several,
    until,
)
from support.conversations.random_conversations import Deed

NOON = datetime(2024, 1, 1, 12, tzinfo=UTC)
VALUES: tuple[Any, ...] = (
    1,
    Byte(1),
    UnsignedByte(1),
    Short(1),
    UnsignedShort(1),
    UnsignedInt(1),
    Long(1),
    1.0,
    True,
    False,
    "1",
    b"1",
    "",
    None,
    NOON,
    int(NOON.timestamp()),
    {},
    {"a": 1},
    [1],
)
WAYS = ("all", "any", "all-with-x", "any-with-x")


def remove(name: str, *, if_unused: bool = False) -> Deed:
    return call(ExchangeDelete(exchange=name, if_unused=if_unused))


def burst(count: int, routed: int, **more: Any) -> Deed:
    """Publish so many in one go: one in ``routed`` finds a queue, the others come back."""
    return several(
        *[
            publish("no" if tag % routed else "q1", b"tag %d" % tag, mandatory=True, **more)
            for tag in range(1, count + 1)
        ]
    )


def matched(way: str) -> list[Deed]:
    """Every kind of value, asked for and published."""
    found = [
        declare(),
        exchange("x1", "headers"),
        consume(no_ack=True),
    ]
    name = "x-v" if way.endswith("-x") else "v"
    everything = several(
        *[publish(to="x1", body=b"%d" % n, headers={name: v}) for n, v in enumerate(VALUES)],
        publish(to="x1", body=b"none"),
    )
    for value in VALUES:
        arguments = {"x-match": way, name: value}
        unbind = QueueUnbind(queue="q1", exchange="x1", arguments=arguments)
        found += [bind("q1", "x1", **arguments), everything, call(unbind)]
    return found


CONVERSATIONS: dict[str, list[Deed]] = {
    # -- Alternates and internal exchanges ---------------------------------------------------------
    "an internal exchange": [
        exchange("x1", internal=True),
        declare(),
        bind("q1", "x1", "q1"),
        exchange("x2"),
        join("x1", "x2", "q1"),
        publish(to="x2"),
        publish(to="x1"),
        publish(to="x1", mandatory=True, channel=2),
        get(),
        get(),
        exchange("x1"),
        call(ExchangeDeclare(exchange="x1", passive=True)),
    ],
    "an internal alternate": [
        exchange("x1", "fanout", internal=True),
        exchange("x2", alternate_exchange="x1"),
        declare(),
        publish(to="x2", mandatory=True),
        bind("q1", "x1"),
        publish(to="x2", mandatory=True),
        get(),
        remove("x1", if_unused=True),
        remove("x1"),
        publish(to="x2", mandatory=True),
    ],
    "an internal exchange takes dead letters": [
        exchange("x1", "fanout", internal=True),
        declare(x_dead_letter_exchange="x1"),
        declare("q2"),
        bind("q2", "x1"),
        publish(),
        get(no_ack=False),
        settle(),
        get("q2"),
    ],
    "alternates of dead letters": [
        exchange("x2", "fanout"),
        exchange("x1", alternate_exchange="x2"),
        declare(x_dead_letter_exchange="x1"),
        declare("q2"),
        bind("q2", "x2"),
        publish(),
        get(no_ack=False),
        settle(),
        get("q2"),
    ],
    "an alternate in a cycle with bound exchanges": [
        exchange("x1", alternate_exchange="x2"),
        exchange("x2", "fanout"),
        exchange("x3", "fanout", alternate_exchange="x1"),
        join("x3", "x2"),
        declare(),
        publish(to="x1", mandatory=True),
        publish(to="x3", mandatory=True),
        bind("q1", "x3"),
        publish(to="x1", mandatory=True),
        join("x1", "x3", "any"),
        publish(to="x1", mandatory=True),
        get(),
        get(),
        get(),
    ],
    "an alternate that is itself": [
        exchange("x1", alternate_exchange="x1"),
        declare(),
        publish(to="x1", mandatory=True),
        bind("q1", "x1", "q1"),
        publish(to="x1", mandatory=True),
        get(),
        get(),
    ],
    "two exchanges on the way, each with an alternate": [
        exchange("x1", "fanout", alternate_exchange="x3"),
        exchange("x2", "direct", alternate_exchange="x3"),
        exchange("x3", "fanout"),
        declare(),
        declare("q2"),
        bind("q1", "x3"),
        join("x2", "x1"),
        publish("k", to="x1", mandatory=True),
        bind("q2", "x1"),
        publish("k", to="x1", mandatory=True),
        *[get(name) for name in ("q1", "q1", "q2", "q2")],
    ],
    "an alternate that comes and goes": [
        exchange("x1", alternate_exchange="x2"),
        declare(),
        publish(to="x1", mandatory=True),
        exchange("x2", "fanout"),
        bind("q1", "x2"),
        publish(to="x1", mandatory=True),
        remove("x2"),
        publish(to="x1", mandatory=True),
        exchange("x2", "fanout"),
        publish(to="x1", mandatory=True),
        get(),
        get(),
    ],
    "exchanges that delete themselves": [
        call(ExchangeDeclare(exchange="x1", type="fanout", auto_delete=True)),
        call(ExchangeDeclare(exchange="x2", type="fanout", auto_delete=True)),
        call(ExchangeDeclare(exchange="x3", type="fanout")),
        join("x2", "x1"),
        join("x3", "x2"),
        remove("x3"),
        publish(to="x1", mandatory=True),
        publish(to="x2", mandatory=True, channel=2),
    ],
    # -- Returns and confirms ----------------------------------------------------------------------
    "returns come before their confirms": [declare(), confirm(), burst(40, 3)],
    "returns and confirms of durable messages": [
        declare(durable=True),
        confirm(),
        burst(40, 2, delivery_mode=2),
    ],
    "returns without a way at all": [confirm(), burst(20, 1000)],
    "returns and refusals": [
        declare(x_max_length=2, x_overflow="reject-publish"),
        confirm(),
        burst(9, 2),
        *[get() for _ in range(3)],
    ],
    "returns go to their channel": [
        declare(),
        publish("no", b"1", mandatory=True),
        publish("no", b"2", mandatory=True, channel=2),
        publish("no", b"3", mandatory=True, link=1),
        publish("no", b"4"),
        close(channel=2),
        publish("no", b"5", mandatory=True),
    ],
    "a return has what was published": [
        publish(
            "no",
            b"x" * 200_000,
            mandatory=True,
            headers={"a": 1, "CC": ["no2"], "t": {"b": [1, "c", None]}},
            content_type="text/plain",
            delivery_mode=2,
            priority=7,
            correlation_id="c",
            reply_to="r",
            expiration="60000",
            message_id="m",
            timestamp=1_700_000_000,
            type="t",
            user_id="guest",
            app_id="a",
        ),
        publish("no", b"", mandatory=True),
    ],
    "confirms of what expires and of what is dropped": [
        declare(x_message_ttl=0),
        declare("q2", x_max_length=0),
        confirm(),
        publish(),
        publish("q2"),
        publish("no"),
        publish("no", to="amq.direct"),
    ],
    "confirms of a channel that fails": [
        declare(),
        confirm(),
        publish(to="x-no"),
        confirm(),
        publish(),
    ],
    "the mode of a channel": [
        confirm(),
        confirm(),
        select(),
        select(channel=2),
        select(channel=2),
        confirm(channel=2),
        call(TxCommit(), 0, 3),
        call(TxRollback(), 0, 3),
    ],
    # -- Values of headers -------------------------------------------------------------------------
    **{f"every value, {way}": matched(way) for way in WAYS},
    **{
        f"names with x-, {way}": [
            declare(),
            exchange("x1", "headers"),
            bind("q1", "x1", **{"x-match": way, "x-a": 1, "b": 2, "X-c": 3, "x-": 4, "x": 5}),  # type: ignore[arg-type]
            consume(no_ack=True),
            several(
                *[
                    publish(to="x1", body=b"%d" % n, headers=headers)
                    for n, headers in enumerate(
                        (
                            {"x-a": 1},
                            {"b": 2},
                            {"X-c": 3},
                            {"x-": 4},
                            {"x": 5},
                            {"b": 2, "X-c": 3, "x": 5},
                            {"x-a": 1, "b": 2, "x-": 4},
                            {"x-a": 0, "b": 2, "X-c": 3, "x": 5},
                            {"x-a": 1, "b": 2, "X-c": 3, "x-": 4, "x": 5},
                            {"x-match": way},
                        )
                    )
                ]
            ),
        ]
        for way in WAYS
    },
    # -- Transactions ------------------------------------------------------------------------------
    "returns of a transaction": [
        declare(),
        select(),
        publish("no", b"1", mandatory=True),
        publish("q1", b"2", mandatory=True),
        publish("no", b"3", mandatory=True),
        publish("no", b"4"),
        commit(),
        get(),
        publish("no", b"5", mandatory=True),
        rollback(),
        publish("no", b"6", mandatory=True),
        close(),
        get(),
    ],
    "a transaction that gives back": [
        declare(**LETTERS),
        declare("q2"),
        *bodies("1", "2", "3"),
        select(channel=2),
        get(no_ack=False, channel=2),
        get(no_ack=False, channel=2),
        get(no_ack=False, channel=2),
        settle("nack", True, channel=2),
        settle("reject", False, channel=2),
        settle("ack", channel=2),
        get("q2"),
        rollback(channel=2),
        get("q2"),
        settle("nack", False, channel=2),
        settle("nack", True, channel=2, at=0.99),
        commit(channel=2),
        get(),
        get("q2"),
        close(channel=2),
        get(),
    ],
    "a transaction that ends with its channel": [
        declare(),
        *bodies("1", "2"),
        select(channel=2),
        get(no_ack=False, channel=2),
        settle("ack", channel=2),
        publish(body=b"3", channel=2),
        close(channel=2),
        until("q1", (2, 0)),
        get(),
        get(),
        get(),
    ],
    "a transaction that ends with its connection": [
        declare(),
        *bodies("1", "2"),
        select(link=1),
        get(no_ack=False, link=1),
        settle("nack", False, link=1),
        publish(body=b"3", link=1),
        drop(1),
        until("q1", (2, 0)),
        get(),
        get(),
    ],
    "a transaction that recovers": [
        declare(),
        *bodies("1", "2"),
        select(),
        get(no_ack=False),
        get(no_ack=False),
        settle("ack"),
        recover(),
        commit(),
        get(),
        get(),
    ],
    "a transaction of a consumer with a prefetch": [
        declare(),
        select(),
        qos(1),
        consume(),
        *bodies("1", "2", "3", link=1),
        settle("ack"),
        rollback(),
        settle("nack", True),
        commit(),
        settle("ack"),
        commit(),
    ],
    "a transaction that a queue refuses in part": [
        declare(x_max_length=1, x_overflow="reject-publish"),
        declare("q2"),
        declare("q3", x_max_length=1, x_overflow="reject-publish-dlx"),
        *[
            deed
            for name in ("q1", "q3")
            for deed in (
                select(),
                publish(name, b"1"),
                publish(name, b"2"),
                publish("q2", b"3", mandatory=True),
                commit(),
                get(name),
                get(name),
                get("q2"),
                get("q2"),
            )
        ],
    ],
    "a transaction fails at its commit": [
        declare(),
        select(),
        publish(),
        Deed("call", 0, 1, ExchangeDeclare(exchange="x-no", passive=True)),
        get(),
    ],
}
