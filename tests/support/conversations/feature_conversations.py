# SPDX-License-Identifier: Apache-2.0
"""Conversations that chance would not find: each is one feature, corner by corner."""

from __future__ import annotations

from headrace.protocol.codec_0_x import (
    BasicCancel,
    BasicQos,
    ConfirmSelect,
    ConnectionUpdateSecret,
    ExchangeBind,
    QueueDeclare,
    QueueDelete,
    QueuePurge,
    TxCommit,
    TxSelect,
)
from support.conversations.conversation_steps import (
    LETTERS,
    bind,
    call,
    consume,
    declare,
    exchange,
    get,
    letters,
    policy,
    publish,
    quorum,
    settle,
    wait,
)
from support.conversations.random_conversations import REPLY_TO, Deed

BODY_MAX = 16 << 20  # As both brokers are told.
TEN_YEARS_MS = 3650 * 86_400_000
MALFORMED = ("x", "-1", "1 ", " 1", "1.5", "", "0x10", "1e3", "--1", "+-1", "+", "\u0661")
UNUSUAL = ("+0", "-0", "007", "00010000000", "4294967296", "315360000000", "315360000001")

CONVERSATIONS: dict[str, list[Deed]] = {
    # -- Times to live -----------------------------------------------------------------------------
    "expiration 0, nobody there": [declare(), publish(expiration="0"), get()],
    "expiration 0, a consumer waits": [declare(), consume(), publish(expiration="0"), get()],
    "expiration 0, returned": [
        declare(**LETTERS),
        declare("q2"),
        consume(),
        publish(expiration="0"),
        call(BasicCancel(consumer_tag="t")),
        settle("nack", True),
        wait(),
        get(),
        get("q2"),
    ],
    "expirations that are none": [
        deed for text in MALFORMED for deed in (declare(), publish(expiration=text), get(), get())
    ],
    "expirations that are unusual": [
        deed for text in UNUSUAL for deed in (declare(), publish(expiration=text), get())
    ],
    "times to live of queues": [
        deed
        for name in ("x-message-ttl", "x-expires")
        for value in (
            -1,
            0,
            1,
            2**32,
            TEN_YEARS_MS,
            TEN_YEARS_MS + 1,
            2**62,
            "soon",
            1.5,
            True,
            None,
        )
        for deed in (declare(**{name: value}), call(QueueDelete(queue="q1")))  # type: ignore[arg-type]
    ],
    "expiration without a route": [publish("no", expiration="x"), publish("no", expiration="5")],
    "expiration before a queue's": letters(
        [declare(x_message_ttl=60000, **LETTERS), declare("q2"), publish(expiration="20")]
    ),
    "a queue's before expiration": letters(
        [declare(x_message_ttl=20, **LETTERS), declare("q2"), publish(expiration="60000")]
    ),
    "expired in a priority": letters(
        [
            declare(x_max_priority=5, **LETTERS),
            declare("q2"),
            publish(body=b"1", expiration="20", priority=4),
            publish(body=b"2", expiration="20", priority=4),
        ],
        2,
    ),
    "expired twice": [
        declare(x_message_ttl=20, **LETTERS),
        declare("q2", x_message_ttl=20, x_dead_letter_exchange="", x_dead_letter_routing_key="q3"),
        declare("q3"),
        publish(expiration="10"),
        wait(120),
        get("q3"),
        publish(expiration="60000", headers={"a": 1, "CC": ["q1"]}),
        wait(120),
        get("q3"),
        get("q3"),
    ],
    "expired in a cycle": [
        declare(x_message_ttl=20, x_dead_letter_exchange="", x_dead_letter_routing_key="q2"),
        declare("q2", x_message_ttl=20, x_dead_letter_exchange="", x_dead_letter_routing_key="q1"),
        publish(),
        wait(200),
        get(),
        get("q2"),
    ],
    "rejected out of a cycle": [
        declare(x_message_ttl=20, **LETTERS),
        declare("q2", x_dead_letter_exchange="", x_dead_letter_routing_key="q1"),
        publish(headers={"h": 1}),
        wait(),
        get("q2", no_ack=False),
        settle(),
        wait(120),
        get("q2", no_ack=False),
        settle(),
        wait(120),
        get("q2"),
    ],
    "held by prefetch while it expires": [
        declare(**LETTERS),
        declare("q2"),
        call(BasicQos(prefetch_count=1)),
        consume(),
        publish(body=b"1", expiration="30"),
        publish(body=b"2", expiration="30"),
        wait(120),
        get("q2"),
        settle("nack", True),
        wait(120),
        get("q2"),
        get(),
    ],
    "expired while it was held": [
        declare(x_message_ttl=30, **LETTERS),
        declare("q2"),
        publish(),
        get(no_ack=False),
        wait(120),
        settle("nack", True),
        wait(),
        get(),
        get("q2"),
    ],
    "a queue that expires": [
        declare(x_expires=500),
        publish(),
        wait(50),
        call(QueueDeclare(queue="q1", passive=True)),
        wait(1000),
        call(QueueDeclare(queue="q1", passive=True)),
    ],
    "a queue that is used does not expire": [
        declare(x_expires=400),
        consume(),
        wait(800),
        publish(),
        call(BasicCancel(consumer_tag="t")),
        wait(400),
        call(QueueDeclare(queue="q1", passive=True)),
    ],
    "a queue that expires leaves no letters": [
        declare(x_expires=100, **LETTERS),
        declare("q2"),
        publish(),
        wait(400),
        get("q2"),
    ],
    "expired quorum letters": letters(
        [quorum(**LETTERS), declare("q2"), publish(expiration="20"), publish(expiration="20")], 2
    ),
    "quorum time to live": letters(
        [quorum(x_message_ttl=20, **LETTERS), declare("q2"), publish(), publish(expiration="9999")],
        2,
    ),
    # -- Quorum queues -----------------------------------------------------------------------------
    "at least once": letters(
        [
            quorum(x_dead_letter_strategy="at-least-once", x_overflow="reject-publish", **LETTERS),
            declare("q2"),
            publish(headers={"h": 1}),
            get(no_ack=False),
            settle(),
            publish(expiration="20"),
        ],
        2,
    ),
    "at least once, to a quorum queue": letters(
        [
            quorum(x_dead_letter_strategy="at-least-once", x_overflow="reject-publish", **LETTERS),
            quorum("q2"),
            publish(),
            get(no_ack=False),
            settle(),
        ]
    ),
    "at least once, with drop-head": letters(
        [
            quorum(x_dead_letter_strategy="at-least-once", **LETTERS),
            declare("q2"),
            publish(),
            get(no_ack=False),
            settle(),
        ]
    ),
    "at least once, without an exchange": [
        quorum(x_dead_letter_strategy="at-least-once", x_overflow="reject-publish"),
        publish(),
        get(no_ack=False),
        settle(),
        get(),
    ],
    "at least once, limited deliveries": letters(
        [
            quorum(
                x_dead_letter_strategy="at-least-once",
                x_overflow="reject-publish",
                x_delivery_limit=1,
                **LETTERS,
            ),
            declare("q2"),
            publish(),
            get(no_ack=False),
            settle("nack", True),
            get(no_ack=False),
            settle("nack", True),
            get(no_ack=False),
        ]
    ),
    "at least once, the target comes later": [
        quorum(x_dead_letter_strategy="at-least-once", x_overflow="reject-publish", **LETTERS),
        publish(),
        get(no_ack=False),
        settle(),
        get(),
    ],
    "an odd strategy": [quorum(x_dead_letter_strategy="twice")],
    "a strategy that is no text": [quorum(x_dead_letter_strategy=1)],
    "limited deliveries": letters(
        [
            quorum(x_delivery_limit=2, **LETTERS),
            declare("q2"),
            publish(),
            *[deed for _ in range(3) for deed in (get(no_ack=False), settle("reject", True))],
        ]
    ),
    "limited deliveries, nobody told": [
        quorum(x_delivery_limit=0),
        publish(),
        get(no_ack=False),
        settle("nack", True),
        get(),
    ],
    "delivery limits that are none": [
        deed
        for value in (-1, 0, 2**40)
        for deed in (quorum(x_delivery_limit=value), call(QueueDelete(queue="q1")))
    ],
    "arguments that differ, quorum": [
        deed
        for name, one, other in (
            ("x-delivery-limit", 1, 2),
            ("x-dead-letter-strategy", "at-most-once", "at-least-once"),
            ("x-quorum-initial-group-size", 1, 3),
            ("x-max-in-memory-length", 1, 2),
            ("x-overflow", "drop-head", "reject-publish"),
            ("x-expires", 60000, 70000),
        )
        for deed in (
            quorum(**{name: one}),
            quorum(**{name: other}),
            quorum(),
            call(QueueDelete(queue="q1")),
        )
    ],
    "what a quorum queue cannot be": [
        call(QueueDeclare(queue="q1", arguments={"x-queue-type": "quorum"})),
        call(
            QueueDeclare(
                queue="q1", durable=True, exclusive=True, arguments={"x-queue-type": "quorum"}
            )
        ),
        call(
            QueueDeclare(
                queue="q1", durable=True, auto_delete=True, arguments={"x-queue-type": "quorum"}
            )
        ),
        call(QueueDeclare(queue="q1", arguments={"x-queue-type": "stream"})),
        call(
            QueueDeclare(
                queue="q1", durable=True, exclusive=True, arguments={"x-queue-type": "stream"}
            )
        ),
        call(
            QueueDeclare(
                queue="q1", durable=True, auto_delete=True, arguments={"x-queue-type": "stream"}
            )
        ),
    ],
    # -- Consumers ---------------------------------------------------------------------------------
    "a single active consumer and an exclusive one": [
        declare(x_single_active_consumer=True),
        consume(tag="a"),
        consume(tag="b", exclusive=True),
        consume(tag="c", channel=2),
        publish(),
        publish(),
    ],
    "an exclusive consumer first": [
        declare(),
        consume(tag="a", exclusive=True),
        consume(tag="b", channel=2),
        consume(tag="c", channel=3, exclusive=True),
        publish(),
        call(BasicCancel(consumer_tag="a")),
        consume(tag="b", channel=2),
    ],
    "an exclusive consumer of a queue in use": [
        declare(),
        consume(tag="a"),
        consume(tag="b", channel=2, exclusive=True),
    ],
    "single active consumers by priority": [
        declare(x_single_active_consumer=True),
        consume(tag="a", no_ack=True),
        consume(tag="b", channel=2, no_ack=True, arguments={"x-priority": 5}),
        publish(body=b"1"),
        call(BasicCancel(consumer_tag="a")),
        publish(body=b"2"),
        consume(tag="c", no_ack=True, arguments={"x-priority": 9}),
        publish(body=b"3"),
        call(BasicCancel(consumer_tag="b"), 0, 2),
        publish(body=b"4"),
    ],
    "a tag twice": [declare(), consume(), consume()],
    "a queue is deleted under its consumers": [
        declare(),
        consume(tag="a"),
        consume(tag="b", link=1),
        publish(),
        call(QueueDelete(queue="q1"), 0, 2),
        settle("ack"),
    ],
    # -- Direct reply-to ---------------------------------------------------------------------------
    "answers: consumed with acknowledgements": [consume(REPLY_TO)],
    "answers: consumed twice": [
        consume(REPLY_TO, "a", no_ack=True),
        consume(REPLY_TO, "b", no_ack=True),
    ],
    "answers: the same again": [
        consume(REPLY_TO, "a", no_ack=True),
        call(BasicCancel(consumer_tag="a")),
        consume(REPLY_TO, "b", no_ack=True),
    ],
    "answers: exclusively": [consume(REPLY_TO, "a", no_ack=True, exclusive=True)],
    "answers: asked for without a consumer": [declare(), publish(reply_to=REPLY_TO)],
    "answers: to nobody": [publish(REPLY_TO + ".odd", mandatory=True), publish(REPLY_TO)],
    "answers: to nobody, confirmed": [
        call(ConfirmSelect()),
        publish(REPLY_TO + ".odd", mandatory=True),
        publish(REPLY_TO + ".odd"),
    ],
    "answers: the queue": [
        call(QueueDeclare(queue=REPLY_TO, passive=True)),
        call(QueueDeclare(queue=REPLY_TO)),
        call(QueueDeclare(queue=REPLY_TO + ".odd", passive=True)),
    ],
    "answers: the queue deleted": [call(QueueDelete(queue=REPLY_TO))],
    "answers: the queue purged": [call(QueuePurge(queue=REPLY_TO))],
    "answers: fetched": [get(REPLY_TO)],
    "answers: a transaction asks": [
        declare(),
        call(TxSelect()),
        consume(REPLY_TO, "a", no_ack=True),
        publish(reply_to=REPLY_TO),
        call(TxCommit()),
        get(),
    ],
    # -- Routing -----------------------------------------------------------------------------------
    "mandatory, further keys": [
        declare(),
        publish("no", mandatory=True, headers={"CC": ["q1"]}),
        publish("no", mandatory=True, headers={"BCC": ["q1"]}),
        publish("no", mandatory=True, headers={"CC": ["no2"], "BCC": ["no3"], "h": 1}),
        get(),
        get(),
    ],
    "further keys of an exchange with an alternate": [
        exchange("x2", "fanout"),
        exchange("x1", "direct", alternate_exchange="x2"),
        declare(),
        declare("q2"),
        bind("q1", "x1", "a"),
        bind("q2", "x2"),
        publish("a", to="x1", headers={"CC": ["b"]}),
        publish("b", to="x1", headers={"BCC": ["a"]}),
        publish("b", to="x1", headers={"CC": ["c"]}),
        *[get(name) for name in ("q1", "q1", "q2", "q2")],
    ],
    "further keys along bound exchanges": [
        exchange("x1", "topic"),
        exchange("x2", "direct"),
        declare(),
        call(ExchangeBind(destination="x2", source="x1", routing_key="#.c")),
        bind("q1", "x2", "k"),
        publish("a.c", to="x1", headers={"CC": ["k"]}),
        publish("a.c", to="x1", headers={"BCC": ["k"]}),
        publish("a.c", to="x1"),
        get(),
        get(),
        get(),
    ],
    "further keys that are none": [
        deed
        for name in ("CC", "BCC")
        for value in ("q1", 1, [1], {"a": 1}, None, [["q1"]], ["q1", 1], True)
        for deed in (declare(), publish("q1", headers={name: value}), get())
    ],
    "headers, all ways": [
        deed
        for way in ("all", "any", "all-with-x", "any-with-x", None)
        for deed in (
            declare(),
            exchange("x1", "headers"),
            bind("q1", "x1", **({"x-match": way} if way else {}), a=1, **{"x-b": 2}),  # type: ignore[arg-type]
            publish(to="x1", body=b"1", headers={"a": 1}),
            publish(to="x1", body=b"2", headers={"a": 1, "x-b": 2}),
            publish(to="x1", body=b"3", headers={"x-b": 2}),
            publish(to="x1", body=b"4", headers={"a": 2, "x-b": 3}),
            publish(to="x1", body=b"5"),
            get(),
            get(),
            get(),
            get(),
            call(QueueDelete(queue="q1")),
        )
    ],
    "headers, nothing asked": [
        deed
        for way in ("all", "any", "all-with-x", "any-with-x")
        for deed in (
            declare(),
            exchange("x1", "headers"),
            bind("q1", "x1", **{"x-match": way}),  # type: ignore[arg-type]
            publish(to="x1", body=b"1", headers={"a": 1}),
            publish(to="x1", body=b"2"),
            get(),
            get(),
            get(),
            call(QueueDelete(queue="q1")),
        )
    ],
    "headers, odd matches": [
        deed
        for way in ("some", 1, 1.5, True, "", None, "ALL")
        for deed in (declare(), exchange("x1", "headers"), bind("q1", "x1", **{"x-match": way}))  # type: ignore[arg-type]
    ],
    "headers, values without one": [
        declare(),
        exchange("x1", "headers"),
        bind("q1", "x1", a=None, **{"x-match": "all"}),  # type: ignore[arg-type]
        publish(to="x1", body=b"1", headers={"a": 5}),
        publish(to="x1", body=b"2", headers={"b": 5}),
        publish(to="x1", body=b"3", headers={"a": None}),
        get(),
        get(),
        get(),
    ],
    "alternates in a ring": [
        exchange("x1", "direct", alternate_exchange="x2"),
        exchange("x2", "direct", alternate_exchange="x3"),
        exchange("x3", "direct", alternate_exchange="x1"),
        declare(),
        publish(to="x1", mandatory=True),
        bind("q1", "x3", "q1"),
        publish(to="x1", mandatory=True),
        get(),
    ],
    "exchanges bound in a ring": [
        exchange("x1", "fanout"),
        exchange("x2", "fanout"),
        declare(),
        declare("q2"),
        call(ExchangeBind(destination="x2", source="x1")),
        call(ExchangeBind(destination="x1", source="x2")),
        call(ExchangeBind(destination="x1", source="x1")),
        bind("q1", "x1"),
        bind("q1", "x2"),
        bind("q2", "x2"),
        publish(to="x1"),
        get(),
        get(),
        get("q2"),
        get("q2"),
    ],
    "an alternate of other sorts": [
        deed
        for value in (1, True, ["x2"], None, "", "x2")
        for deed in (exchange("x1", "direct", alternate_exchange=value),)
    ],
    # -- Limits ------------------------------------------------------------------------------------
    "octets and priorities": [
        deed
        for overflow in ("drop-head", "reject-publish", "reject-publish-dlx")
        for deed in (
            declare(x_max_length_bytes=6, x_max_priority=5, x_overflow=overflow, **LETTERS),
            declare("q2"),
            call(ConfirmSelect()),
            publish(body=b"aaa", priority=5),
            publish(body=b"bbb", priority=1),
            publish(body=b"ccc", priority=3),
            publish(body=b"d", priority=0),
            publish(body=b"e" * 7),
            publish(body=b""),
            *[get() for _ in range(4)],
            *[get("q2") for _ in range(4)],
            call(QueueDelete(queue="q1")),
            call(QueueDelete(queue="q2")),
        )
    ],
    "octets of a quorum queue": [
        quorum(x_max_length_bytes=6, **LETTERS),
        declare("q2"),
        *[publish(body=body) for body in (b"aaa", b"bbb", b"ccc", b"d")],
        *[get() for _ in range(3)],
        *[get("q2") for _ in range(6)],
    ],
    # -- Policies of queues that are there ---------------------------------------------------------
    "a policy of deliveries": [
        quorum(**LETTERS),
        declare("q2"),
        publish(),
        policy(delivery_limit=1),
        get(no_ack=False),
        settle("nack", True),
        get(no_ack=False),
        settle("nack", True),
        get("q2"),
    ],
    "a policy of time": [
        declare(**LETTERS),
        declare("q2"),
        policy(message_ttl=20),
        publish(),
        wait(),
        get("q2"),
        policy(),
        publish(),
        wait(),
        get("q2"),
        get(),
    ],
    "a policy of lifetime": [declare(), policy(expires=400), wait(900), get()],
    "a policy of letters": [
        declare(x_dead_letter_routing_key="q3", x_dead_letter_exchange=""),
        declare("q2"),
        declare("q3"),
        policy(dead_letter_exchange="amq.direct", dead_letter_routing_key="q2"),
        bind("q2", "amq.direct", "q2"),
        publish(),
        get(no_ack=False),
        settle(),
        get("q2"),
        get("q3"),
    ],
    "a policy that ends": [
        declare(),
        policy(max_length=1),
        publish(body=b"1"),
        publish(body=b"2"),
        policy(),
        publish(body=b"3"),
        get(),
        get(),
    ],
    "two policies, and operators": [
        declare(x_max_length=5),
        policy("one", max_length=3),
        policy("two", priority=9, max_length=4),
        *[publish(body=b"%d" % n) for n in range(6)],
        policy("guard", component="operator_policy", max_length=2),
        policy("two"),
        publish(body=b"6"),
        *[get() for _ in range(3)],
    ],
    "a policy of alternates": [
        exchange("x1", "direct"),
        declare(),
        bind("q1", "amq.fanout"),
        publish(to="x1", mandatory=True),
        policy(pattern="^x", apply_to="exchanges", alternate_exchange="amq.fanout"),
        publish(to="x1", mandatory=True),
        get(),
    ],
    # -- Others ------------------------------------------------------------------------------------
    "a new secret": [
        call(ConnectionUpdateSecret(new_secret=b"guest", reason="new"), 0, 0),
        declare(),
        call(ConnectionUpdateSecret(new_secret=b"other", reason="new"), 0, 0),
        declare(),
    ],
    "bodies that are too large": [
        publish(body=b"x" * BODY_MAX),
        publish(body=b"x" * (BODY_MAX + 1)),
    ],
}
