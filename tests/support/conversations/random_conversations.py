# SPDX-License-Identifier: Apache-2.0
"""Random conversations with two brokers at once: what a client sees must be the same.

A conversation is a list of deeds made from a seed and a theme. `differs` does them with both
brokers and returns the first step after which they do not agree; `shrink` leaves out what is not
needed for that.
"""

from __future__ import annotations

import time
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple

from headrace.protocol.codec_0_x import (
    BasicAck,
    BasicCancel,
    BasicConsume,
    BasicGet,
    BasicNack,
    BasicProperties,
    BasicPublish,
    BasicQos,
    BasicRecover,
    BasicReject,
    ConfirmSelect,
    ExchangeBind,
    ExchangeDeclare,
    ExchangeDelete,
    ExchangeUnbind,
    MethodBase,
    QueueBind,
    QueueDeclare,
    QueueDelete,
    QueuePurge,
    QueueUnbind,
    TxCommit,
    TxRollback,
    TxSelect,
)
from headrace.wire.table import Byte, Long, Short
from support.clients.observed_client import Peer

if TYPE_CHECKING:
    from collections.abc import Callable

    from support.conversations.policies_of_both import Laws

QUEUES = ("q1", "q2", "q3", "q4")
EXCHANGES = ("x1", "x2", "x3")
STANDARD = ("amq.direct", "amq.fanout", "amq.topic", "amq.headers")
KEYS = ("q1", "q2", "q3", "a", "a.b", "a.b.c", "b..c", "", "k" * 40)
PATTERNS = ("#", "*", "a.*", "a.#", "#.c", "*.b.*", "a", "a.b", "q1", "", "#.#", "*.#.c")
REPLY_TO = "amq.rabbitmq.reply-to"
OPEN = ("shapes", "routing", "queues", "consumers", "replies")  # Themes without dead letters.
UNTIL_S_MAX = 60.0  # What a conversation waits for comes in this time.
AGREE_S_MAX = 20.0  # So long are the brokers given to come to the same,
AGREE_S = 0.7  # and so long where it is known that they may not.
LETTERS = ("limits", "ttl", "quorum", "once", "letters", "tx", "tx limits")
RANKED = ("queues", "limits", "ttl", "letters", "expiry", "tx limits")  # With priorities.
SHORT_LIVES = ("0", "5", "20", "60000", "315360000000")  # In queues where nothing lives long.
LONG_LIVES = ("60000", "4294967295", "315360000000", "x")
SHORT_MS = 20  # A time to live that is over before the next deed.


class Deed(NamedTuple):
    """One operation on one connection and channel."""

    what: str
    link: int
    channel: int
    method: Any = None
    more: Any = None


class Difference(NamedTuple):
    """After which deed, and what each broker showed."""

    step: int
    deed: Deed
    one: Any
    other: Any


class Maker:
    """Makes deeds of a theme."""

    def __init__(self, theme: str, seed: int) -> None:
        self.random = Random(f"{theme} {seed}")
        self.theme = theme
        self.number = 0

    def deeds(self, length: int) -> list[Deed]:
        found = []
        for index, name in enumerate(QUEUES):
            if self.random.random() < 0.8:
                declare = QueueDeclare(queue=name, **self.good_queue(index))
                found.append(Deed("call", 0, 1, declare))
        for name in EXCHANGES:
            if self.random.random() < 0.5:
                found.append(Deed("call", 0, 1, self.declare_exchange(name)))
        bindings = self.random.randrange(4)
        if self.theme.startswith("tx"):  # Later ones count for what is not committed yet.
            bindings += 4
        for _ in range(bindings):
            found.append(Deed("call", 0, 1, self.bind()))
        kinds = list(WEIGHTS[self.theme])
        weights = [WEIGHTS[self.theme][kind] for kind in kinds]
        for kind in self.random.choices(kinds, weights, k=length):
            made = getattr(self, "make_" + kind)()
            found.extend(made if isinstance(made, list) else [made])
        return found

    def place(self) -> tuple[int, int]:
        return self.random.choice([(0, 1), (0, 1), (0, 2), (1, 1)])

    def maybe(self, chance: float) -> bool:
        return self.random.random() < chance

    def queue(self) -> str:
        return self.random.choice((*QUEUES, "q1", "q2"))

    def exchange(self) -> str:
        return self.random.choice((*EXCHANGES, *STANDARD))

    # -- Declarations --------------------------------------------------------------------------

    def good_queue(self, index: int = 0) -> dict[str, Any]:
        arguments: dict[str, Any] = {}
        flags: dict[str, Any] = {"durable": self.maybe(0.5)}
        pick = self.random.choice
        theme = self.theme
        if theme in ("quorum", "once"):
            flags["durable"] = True
            arguments["x-queue-type"] = "quorum"
            # Without a limit RabbitMQ puts what is returned behind all else.
            arguments["x-delivery-limit"] = pick((0, 1, 2, 20))
        if theme == "once":
            arguments["x-dead-letter-strategy"] = "at-least-once"
            arguments["x-overflow"] = "reject-publish"
        if theme == "expiry":  # What lives long would keep the others where RabbitMQ looks.
            arguments["x-dead-letter-exchange"] = ""
            arguments["x-dead-letter-routing-key"] = pick(("q3", "q4") if index < 2 else QUEUES[:2])
            if index < 2:
                arguments["x-message-ttl"] = SHORT_MS
        if theme == "stream" and index < 2:
            flags["durable"] = True
            arguments["x-queue-type"] = "stream"
            return {**flags, "arguments": arguments}
        if theme in ("limits", "tx limits") and self.maybe(0.8):
            arguments["x-max-length"] = pick((1, 2, 3))
            if self.maybe(0.3):
                arguments["x-max-length-bytes"] = pick((4, 8, 12))
            overflow = pick((None, None, "drop-head", "reject-publish", "reject-publish-dlx"))
            if overflow:
                arguments["x-overflow"] = overflow
        if theme in LETTERS and self.maybe(0.7):
            arguments["x-dead-letter-exchange"] = pick(("", "", "x1", "x2", "amq.fanout", "no"))
            if self.maybe(0.6):
                arguments["x-dead-letter-routing-key"] = pick(("q1", "q2", "q3", "q4", "a.b"))
        if theme == "ttl" and self.maybe(0.7):
            arguments["x-message-ttl"] = pick((0, SHORT_MS))
        if theme == "policies" and self.maybe(0.5):
            key = pick(list(POLICY_KEYS))
            arguments["x-" + key] = pick(POLICY_KEYS[key])
            if key == "dead-letter-routing-key":
                arguments["x-dead-letter-exchange"] = ""
        if theme in RANKED and self.maybe(0.25):
            arguments["x-max-priority"] = pick((1, 5, 9))
        if theme == "consumers" and self.maybe(0.4):
            arguments["x-single-active-consumer"] = True
        if theme in ("consumers", "queues") and self.maybe(0.2):
            flags["auto_delete"] = True
        return {**flags, "arguments": arguments}

    def make_declare(self) -> Deed:
        pick = self.random.choice
        name = pick((*QUEUES, *QUEUES, *QUEUES, "amq.q", "q" * 200))
        if self.maybe(0.3):
            return Deed("call", *self.place(), QueueDeclare(queue=name, passive=True))
        fields = self.good_queue()
        if self.theme == "shapes":
            arguments = {}
            for _ in range(self.random.randrange(3)):
                argument, values = pick(list(ARGUMENTS.items()))
                arguments[argument] = pick(values)
            fields = {"durable": self.maybe(0.5), "arguments": arguments}
            if arguments.get("x-queue-type") in ("quorum", "stream"):
                fields["durable"] = True  # One error at a time.
            else:
                fields.update(exclusive=self.maybe(0.25), auto_delete=self.maybe(0.25))
        return Deed("call", *self.place(), QueueDeclare(queue=name, **fields))

    def declare_exchange(self, name: str) -> ExchangeDeclare:
        pick = self.random.choice
        arguments: dict[str, Any] = {}
        if self.maybe(0.35):
            arguments["alternate-exchange"] = pick((*EXCHANGES, "amq.fanout", "no"))
        if self.theme == "shapes" and self.maybe(0.3):
            arguments[pick(("alternate-exchange", "x-odd"))] = pick((1, "x2", "x1", [1], None))
        kinds = ["direct", "fanout", "topic", "headers"]
        if self.theme == "shapes" and name in EXCHANGES:
            kinds += ["x-no"]
        flags = {
            flag: self.maybe(chance)
            for flag, chance in (("durable", 0.3), ("auto_delete", 0.2), ("internal", 0.1))
        }
        return ExchangeDeclare(exchange=name, type=pick(kinds), arguments=arguments, **flags)

    def make_declare_exchange(self) -> Deed:
        name = self.random.choice((*EXCHANGES, *EXCHANGES, "amq.x", "amq.topic", ""))
        if self.maybe(0.25):
            method = ExchangeDeclare(exchange=name, type="direct", passive=True)
        else:
            method = self.declare_exchange(name)
        return Deed("call", *self.place(), method)

    def headers(self) -> dict[str, Any]:
        pick = self.random.choice
        found: dict[str, Any] = {}
        for name in ("h", "g", "x-h"):
            if self.maybe(0.5):
                found[name] = pick((1, 2, Byte(1), Short(2), Long(1), "1", "z", True, None, 1.0))
        return found

    def binding(self) -> dict[str, Any]:
        arguments: dict[str, Any] = {}
        if self.maybe(0.5):
            arguments = self.headers()
            matches = ["all", "any", "all-with-x", "any-with-x"]
            if self.theme == "shapes":
                matches += ["some", 1]  # type: ignore[list-item]
            if self.maybe(0.7):
                arguments["x-match"] = self.random.choice(matches)
        return {"routing_key": self.random.choice(PATTERNS), "arguments": arguments}

    def bind(self) -> QueueBind:
        return QueueBind(queue=self.queue(), exchange=self.exchange(), **self.binding())

    def make_bind(self) -> Deed:
        method: QueueBind | ExchangeBind = self.bind()
        if self.maybe(0.3):
            method = ExchangeBind(
                destination=self.exchange(), source=self.exchange(), **self.binding()
            )
        return Deed("call", *self.place(), method)

    def make_unbind(self) -> Deed:
        # What is not there is another matter: Headrace says 404, RabbitMQ that all is well.
        name, key = self.queue(), self.random.choice(PATTERNS)
        if self.maybe(0.3):
            method: Any = ExchangeUnbind(
                destination="amq.topic", source=self.random.choice(STANDARD), routing_key=key
            )
            return Deed("call", *self.place(), method)
        method = QueueUnbind(queue=name, exchange=self.random.choice(STANDARD), routing_key=key)
        return Deed("if queue", *self.place(), method)

    def make_delete(self) -> Deed:
        flags = {flag: self.maybe(0.3) for flag in ("if_unused", "if_empty")}
        return Deed("call", *self.place(), QueueDelete(queue=self.queue(), **flags))

    def make_delete_exchange(self) -> Deed:
        name = self.random.choice((*EXCHANGES, *EXCHANGES, "amq.topic", ""))
        method = ExchangeDelete(exchange=name, if_unused=self.maybe(0.4))
        return Deed("call", *self.place(), method)

    def make_purge(self) -> Deed:
        name = "q3" if self.theme == "stream" else self.queue()
        return Deed("call", *self.place(), QueuePurge(queue=name))

    # -- Messages ------------------------------------------------------------------------------

    def properties(self) -> dict[str, Any]:
        pick = self.random.choice
        found: dict[str, Any] = {}
        if self.maybe(0.4):
            found["headers"] = self.headers()
        if self.maybe(0.15) and self.theme not in ("stream", "expiry"):
            # Dead letters do not go where a BCC led; RabbitMQ's do.
            extra = pick(("CC", "BCC")) if self.theme in OPEN else "CC"
            value = pick((["q1"], ["q2", "q3"], ["a.b", "q1"], [], ["q4"]))
            if self.theme == "shapes":
                value = pick((value, "q1", [1]))  # type: ignore[arg-type]
                found["user_id"] = "guest"  # So it goes to the default exchange.
            found.setdefault("headers", {})[extra] = value
        if self.maybe(0.3):
            found["priority"] = self.random.randrange(5)
        if self.maybe(0.4):
            found["delivery_mode"] = pick((1, 2))
        if self.maybe(0.2):
            found["message_id"] = "m"
            found["content_type"] = "text/plain"
            found["timestamp"] = 1_700_000_000
        if self.theme == "shapes" and self.maybe(0.2):
            found["expiration"] = pick(("60000", "x", "-1", "1 ", "", "99999999999999"))
        elif self.theme == "shapes" and self.maybe(0.2):
            found["user_id"] = pick(("guest", "other"))
        return found

    def make_publish(self) -> Deed:
        self.number += 1
        to = BasicPublish(
            exchange=self.exchange() if self.maybe(0.5) else "",
            routing_key=self.random.choice(KEYS if self.maybe(0.5) else QUEUES),
            mandatory=self.maybe(0.3),
        )
        if self.theme == "stream" and self.maybe(0.6):
            to.exchange, to.routing_key = "", self.random.choice(("q1", "q2"))
        properties = self.properties()
        body = b"%d" % self.number
        if self.theme in ("limits", "tx limits"):
            body += b"x" * self.random.randrange(4)
        if self.theme == "expiry":
            to.exchange, to.routing_key = "", self.random.choice(QUEUES)
            some = SHORT_LIVES if to.routing_key in QUEUES[:2] else LONG_LIVES
            if self.maybe(0.7):
                properties["expiration"] = self.random.choice(some)
        if "expiration" in properties or "user_id" in properties:
            to.exchange = ""  # One error at a time: the order of checks is not the same.
        return Deed("publish", *self.place(), to, (properties, body))

    def make_get(self) -> Deed:
        name = "q3" if self.theme == "stream" else self.queue()
        method = BasicGet(queue=name, no_ack=self.maybe(0.3))
        return Deed("call", *self.place(), method)

    def make_settle(self) -> Deed:
        how = self.random.choice(("ack", "ack", "nack", "nack", "reject"))
        if self.theme == "stream":
            how = "ack"
        more = (self.random.random(), how, self.maybe(0.25), self.maybe(0.55))
        return Deed("settle", *self.place(), None, more)

    def make_bad_tag(self) -> Deed:
        tag = self.random.choice((0, 77))
        method = self.random.choice(
            (BasicAck(delivery_tag=tag), BasicNack(delivery_tag=tag), BasicReject(delivery_tag=tag))
        )
        if tag == 0 and self.maybe(0.5) and not isinstance(method, BasicReject):
            method.multiple = True
        return Deed("tell", *self.place(), method)

    def make_recover(self) -> Deed:
        return Deed("recover", *self.place(), BasicRecover(requeue=True))

    def make_consume(self) -> Deed:
        arguments: dict[str, Any] = {}
        queue = self.queue()
        if self.maybe(0.3) and self.theme != "stream":
            arguments["x-priority"] = self.random.choice((-1, 1, 5))
        if self.theme == "stream" and self.maybe(0.8):
            queue = self.random.choice(("q1", "q2"))
            arguments["x-stream-offset"] = self.random.choice(("first", "next", 0, 1, 3, 99))
        if self.theme == "shapes" and self.maybe(0.3):
            arguments["x-priority"] = self.random.choice(("1", 1.0, True, [1]))
        link, channel = self.place()
        consume = BasicConsume(
            queue=queue,
            consumer_tag=self.random.choice(("s", "t")) + f"{link}{channel}",
            no_ack=self.maybe(0.3) and self.theme != "stream",
            exclusive=self.maybe(0.15) and self.theme not in ("quorum", "once", "stream"),
            arguments=arguments,
        )
        if self.theme == "stream":
            return [  # type: ignore[return-value]
                Deed("call", link, channel, BasicQos(prefetch_count=100)),
                Deed("call", link, channel, consume),
            ]
        return Deed("call", link, channel, consume)

    def make_cancel(self) -> Deed:
        link, channel = self.place()
        tag = self.random.choice(("s", "t")) + f"{link}{channel}"
        return Deed("call", link, channel, BasicCancel(consumer_tag=tag))

    def make_qos(self) -> Deed:
        method = BasicQos(
            prefetch_count=self.random.choice((0, 1, 2, 5)),
            global_=self.maybe(0.25) and self.theme not in ("quorum", "once", "stream"),
        )
        return Deed("call", *self.place(), method)

    def make_confirm(self) -> Deed:
        return Deed("call", *self.place(), ConfirmSelect())

    def make_select(self) -> Deed:
        return Deed("call", *self.place(), TxSelect())

    def make_commit(self) -> Deed:
        return Deed("commit", *self.place(), TxCommit())

    def make_rollback(self) -> Deed:
        return Deed("rollback", *self.place(), TxRollback())

    def make_policy(self) -> Deed:
        pick = self.random.choice
        component = pick(("policy", "policy", "operator_policy"))
        name = pick(("one", "two"))
        if self.maybe(0.15):
            return Deed("policy", 0, 0, None, (component, name, None))
        if component == "policy" and self.maybe(0.2):
            definition: dict[str, Any] = {"alternate-exchange": pick((*EXCHANGES, "amq.fanout"))}
            policy = {"pattern": pick(("^x", "1$", ".*")), "apply-to": pick(("exchanges", "all"))}
            return Deed(
                "policy", 0, 0, None, (component, name, {**policy, "definition": definition})
            )
        choices = POLICY_KEYS if component == "policy" else dict(list(POLICY_KEYS.items())[:2])
        names = [name for name in choices if name != "overflow"]  # It would come after the length.
        keys = self.random.sample(names, self.random.randrange(1, len(names)))
        policy = {
            "pattern": pick(("^q", "^q1$", "[12]", ".*", "q[2-9]")),
            "apply-to": pick(("queues", "all", "queues", "exchanges")),
            # Two of the same priority are not told apart the same way.
            "priority": pick((0, 1, 5)) * 2 + (name == "two"),  # type: ignore[dict-item]
            "definition": {key: pick(choices[key]) for key in keys},  # type: ignore[dict-item]
        }
        return Deed("policy", 0, 0, None, (component, name, policy))

    def make_close(self) -> Deed:
        return Deed("close", *self.place())

    def make_drop(self) -> Deed:
        return Deed("drop", self.random.randrange(2), 0)

    def make_ask(self) -> Deed:
        link, channel = self.place()
        if self.maybe(0.5):
            consume = BasicConsume(
                queue=REPLY_TO, consumer_tag=f"r{link}{channel}", no_ack=self.maybe(0.9)
            )
            return Deed("call", link, channel, consume)
        self.number += 1
        to = BasicPublish(routing_key=self.queue(), mandatory=self.maybe(0.3))
        properties = {"reply_to": REPLY_TO, "correlation_id": "c"}
        return Deed("publish", link, channel, to, (properties, b"ask %d" % self.number))

    def make_answer(self) -> Deed:
        self.number += 1
        to = BasicPublish()  # A mandatory one RabbitMQ delivers, and returns it as well.
        return Deed("answer", *self.place(), to, ({}, b"answer %d" % self.number))


ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "x-message-ttl": (60000, 60001, Byte(5), Long(60000), -1, "soon", 2**32, 1.0, True),
    "x-expires": (60000, 0, -1, "x"),
    "x-max-length": (5, 0, -1, "some", Long(5)),
    "x-max-length-bytes": (500, -1, "x"),
    "x-overflow": ("drop-head", "reject-publish", "reject-publish-dlx", "odd", 1),
    "x-max-priority": (5, 0, -1, 255, 256, "some"),
    "x-dead-letter-exchange": ("x1", "", 1),
    "x-dead-letter-routing-key": ("q1", 1),
    "x-single-active-consumer": (True, False, "true"),
    "x-queue-mode": ("lazy", "default", "odd", 1),
    "x-queue-type": ("classic", "odd", 1, "quorum", "stream"),
    "x-queue-version": (1, 2, 3),
    "x-odd": (1,),
}

POLICY_KEYS: dict[str, tuple[Any, ...]] = {  # Operators may say the first two.
    "max-length": (0, 1, 2, 3),
    "max-length-bytes": (0, 3, 6),
    "overflow": ("drop-head", "reject-publish", "reject-publish-dlx"),
    "dead-letter-exchange": ("", "amq.fanout", "x1"),
    "dead-letter-routing-key": ("q3", "q4", "a.b"),
}
_MESSAGES = {"publish": 10, "get": 5, "settle": 6, "bad_tag": 0.3, "close": 0.5, "drop": 0.3}
WEIGHTS: dict[str, dict[str, float]] = {
    "shapes": {
        "declare": 8,
        "declare_exchange": 4,
        "bind": 3,
        "unbind": 1,
        "delete": 1,
        "publish": 3,
        "delete_exchange": 1,
        "consume": 2,
        "cancel": 1,
        "get": 1,
        "confirm": 0.5,
        "select": 0.5,
        "commit": 0.5,
        "close": 0.5,
        "drop": 0.5,
        "qos": 0.5,
        "bad_tag": 0.5,
        "purge": 0.5,
    },
    "routing": {
        "declare_exchange": 2,
        "bind": 6,
        "unbind": 1,
        "publish": 14,
        "delete": 0.5,
        "get": 1,
        "delete_exchange": 0.5,
        "confirm": 1,
        "declare": 1,
        "purge": 0.5,
    },
    "queues": {
        **_MESSAGES,
        "recover": 1,
        "consume": 2,
        "cancel": 1,
        "qos": 1,
        "purge": 0.5,
        "delete": 0.3,
        "declare": 0.5,
        "bind": 0.5,
    },
    "consumers": {
        **_MESSAGES,
        "consume": 6,
        "cancel": 3,
        "qos": 2,
        "recover": 1,
        "declare": 1,
        "delete": 0.5,
        "drop": 0.7,
        "close": 1,
    },
    "limits": {**_MESSAGES, "bind": 1, "confirm": 1, "purge": 0.5, "consume": 0.7, "cancel": 0.5},
    "letters": {**_MESSAGES, "bind": 1.5, "confirm": 0.5, "declare_exchange": 0.5, "recover": 0.3},
    "ttl": {**_MESSAGES, "bind": 1, "confirm": 0.5, "consume": 0.5, "cancel": 0.5},
    "tx": {
        **_MESSAGES,
        "select": 2,
        "commit": 4,
        "rollback": 2,
        "confirm": 0.3,
        "consume": 0.7,
        "recover": 0.3,
    },
    "tx limits": {**_MESSAGES, "select": 3, "commit": 4, "rollback": 2, "consume": 0.7},
    "policies": {
        **_MESSAGES,
        "policy": 3,
        "bind": 1,
        "confirm": 0.5,
        "consume": 0.5,
        "declare": 0.5,
    },
    "expiry": {**_MESSAGES, "confirm": 0.5, "consume": 0.7, "cancel": 0.5, "qos": 0.5},
    "once": {**_MESSAGES, "bind": 0.5, "confirm": 0.5, "consume": 0.5, "cancel": 0.5, "qos": 0.3},
    "quorum": {**_MESSAGES, "bind": 0.5, "confirm": 0.5, "consume": 1, "cancel": 0.5, "qos": 0.3},
    "stream": {
        "publish": 10,
        "consume": 3,
        "cancel": 2,
        "settle": 4,
        "get": 0.5,
        "qos": 1,
        "bind": 1,
        "confirm": 1,
        "purge": 0.2,
        "close": 0.5,
        "drop": 0.3,
    },
    "replies": {
        "ask": 6,
        "answer": 5,
        "consume": 2,
        "cancel": 1,
        "get": 3,
        "close": 0.5,
        "drop": 0.5,
        "publish": 2,
        "confirm": 0.5,
        "settle": 2,
    },
}


class Pair:
    """Two brokers that are told the same."""

    def __init__(
        self,
        one: tuple[str, int],
        other: tuple[str, int],
        laws: tuple[Laws, Laws] | None = None,
        alarm: Callable[[bool], None] | None = None,
    ) -> None:
        """``alarm`` takes both brokers memory, or gives it back."""
        self.one, self.other = Peer(*one), Peer(*other)
        self.alarm = alarm
        self.laws = laws or ()
        self.laid: set[tuple[str, str]] = set()  # Which policies there are.
        self.aside: dict[tuple[int, int, int], list[Any]] = {}
        self.bound: list[ExchangeBind] = []

    @property
    def both(self) -> tuple[Peer, Peer]:
        return self.one, self.other

    def tidy(self) -> None:
        for component, name in self.laid:
            for laws in self.laws:
                laws.set(component, name, None)
        self.laid = set()
        for peer in self.both:
            peer.tidy((*QUEUES, "q" * 200), EXCHANGES, self.bound)

    def end(self) -> None:
        self.tidy()
        for peer in self.both:
            peer.end()

    def differs(
        self, deeds: list[Deed], theme: str = "", patience_s: float = AGREE_S_MAX
    ) -> Difference | None:
        """Where the two disagree, and still do after so long."""
        self.aside = {}
        self.tidy()
        self.bound = [deed.method for deed in deeds if isinstance(deed.method, ExchangeBind)]
        for step, deed in enumerate(deeds):
            self.do(deed)
            if theme in ("ttl", "expiry"):
                for peer in self.both:
                    peer.listen(SHORT_MS * 2.5 / 1000)
            found = self.compared(theme, AGREE_S)
            if found is not None and known(Difference(step, deed, *found)):
                return None
            if found is not None:
                found = self.compared(theme, patience_s)
            if found is not None:
                return Difference(step, deed, *found)
        return None

    def compared(self, theme: str, patience_s: float) -> tuple[Any, Any] | None:
        until = time.monotonic() + patience_s
        pause = 0.003
        while True:
            told = []
            for peer in self.both:
                counts = peer.counts(QUEUES)
                peer.listen(pause)
                told.append({**peer.collect(), "counts": counts})
                if theme in ("quorum", "once"):  # There, who gets is counted as a consumer.
                    told[-1]["counts"] = {k: v[0] for k, v in counts.items() if v != 404}
                elif theme == "stream":  # There, declare-ok does not tell the counts.
                    del told[-1]["counts"]
            if told[0] == told[1]:
                for peer in self.both:
                    peer.done()
                return None
            if time.monotonic() > until:
                only = [
                    {k: v for k, v in mine.items() if yours.get(k) != v}
                    for mine, yours in (told, told[::-1])
                ]
                return only[0], only[1]
            pause = min(pause * 2, 0.1)

    def do(self, deed: Deed) -> None:
        what, link, channel, method, more = deed
        if what == "call":
            for number, peer in enumerate(self.both):
                if isinstance(method, TxSelect):
                    self.aside.pop((number, link, channel), None)
                peer.call(link, channel, method)
        elif what == "tell":
            for peer in self.both:
                peer.tell(link, channel, method)
                if getattr(method, "multiple", False) and peer.links[link].is_open:
                    peer.links[link].held.pop(channel, None)
        elif what == "publish":
            properties, body = more
            for peer in self.both:
                peer.publish(link, channel, method, BasicProperties(**properties), body)
        elif what == "if queue":
            if self.one.counts((method.queue,))[method.queue] != 404:
                for peer in self.both:
                    peer.call(link, channel, method)
        elif what == "settle":
            self.settle(link, channel, *more)
        elif what == "recover":
            for peer in self.both:
                peer.channel(link, channel).held.pop(channel, None)
                peer.call(link, channel, method)
        elif what in ("commit", "rollback"):
            for number, peer in enumerate(self.both):
                aside = self.aside.pop((number, link, channel), [])
                target = peer.channel(link, channel)
                if what == "rollback":
                    held = target.held.setdefault(channel, [])
                    held.extend(aside)
                    held.sort(key=lambda entry: entry.tag)
                target.ask(channel, method)
        elif what == "close":
            for peer in self.both:
                peer.close_channel(link, channel)
                peer.confirmed.pop((link, channel), None)
        elif what == "drop":
            for peer in self.both:
                peer.drop(link)
        elif what == "leave":
            for peer in self.both:
                peer.leave(link)
        elif what == "policy":
            component, name, policy = more
            self.laid.add((component, name))
            for laws in self.laws:
                laws.set(component, name, policy)
        elif what == "wait":
            for peer in self.both:
                peer.listen(more)
        elif what == "shout":
            properties, body = more
            for peer in self.both:
                peer.shout(link, channel, method, BasicProperties(**properties), body)
        elif what == "alarm":
            assert self.alarm is not None
            self.alarm(more)
        elif what == "several":
            for peer in self.both:
                peer.publish_all(link, channel, more)
        elif what == "until":
            for peer in self.both:
                self.until(peer, *more)
        elif what == "answer":
            self.answer(link, channel, method, *more)

    def until(self, peer: Peer, name: str, seen: Any) -> None:
        """Wait until a broker counts so; what it never does the comparison shows."""
        end = time.monotonic() + UNTIL_S_MAX
        while peer.counts((name,))[name] != seen and time.monotonic() < end:
            peer.listen(0.02)

    def settle(
        self, link: int, channel: int, pick: float, how: str, multiple: bool, requeue: bool
    ) -> None:
        lists = [peer.channel(link, channel).held.get(channel, []) for peer in self.both]
        if not lists[0] or len(lists[0]) != len(lists[1]):
            return
        multiple = multiple and lists[0] == lists[1] and how != "reject"
        for number, (peer, held) in enumerate(zip(self.both, lists, strict=True)):
            held.sort() if not multiple else held.sort(key=lambda entry: entry.tag)
            entry = held[int(pick * len(held))]
            gone = [e for e in held if e == entry or (multiple and e.tag <= entry.tag)]
            held[:] = [e for e in held if e not in gone]
            self.aside.setdefault((number, link, channel), []).extend(gone)
            method: MethodBase
            if how == "ack":
                method = BasicAck(delivery_tag=entry.tag, multiple=multiple)
            elif how == "nack":
                method = BasicNack(delivery_tag=entry.tag, multiple=multiple, requeue=requeue)
            else:
                method = BasicReject(delivery_tag=entry.tag, requeue=requeue)
            peer.tell(link, channel, method)

    def answer(
        self, link: int, channel: int, method: BasicPublish, properties: Any, body: bytes
    ) -> None:
        for peer in self.both:
            names = [other.reply_to for _, other in sorted(peer.links.items()) if other.reply_to]
            to = BasicPublish(routing_key=names[0] if names else REPLY_TO + ".odd")
            peer.publish(link, channel, to, BasicProperties(**properties), body)


def theme_of(deeds: list[Deed]) -> str:
    """The theme of a hand-written conversation: its kinds of queues."""
    types = {
        getattr(deed.method, "arguments", {}).get("x-queue-type")
        for deed in deeds
        if isinstance(deed.method, QueueDeclare)
    }
    return "stream" if "stream" in types else "quorum" if "quorum" in types else ""


def closes(told: dict[Any, Any]) -> list[tuple[int, str]]:
    """Codes and texts of the closes in what was told."""
    return [close[:2] for where, facts in told.items() if where[-1] == "close" for close in facts]


def taken(told: dict[Any, Any]) -> list[bytes]:
    """Bodies of all deliveries, if nothing else was told."""
    if not all(str(where[-1]).startswith("delivery ") for where in told):
        return []
    return sorted(content[-1] for contents in told.values() for content in contents)


def known(difference: Difference) -> bool:
    """A difference of docs/reference/interop.md, after which the two cannot be compared."""
    closed = closes(difference.other)
    if closed and any(word in closed[0][1] for word in (" invalid arg ", " invalid type ")):
        return " inequivalent arg " in closes(difference.one)[0][1]
    if closed and " inequivalent arg " in closed[0][1]:  # Which one is told first.
        return " inequivalent arg " in str(closes(difference.one)[:1])
    deed, one, other = difference.deed, difference.one, difference.other
    if deed.what in ("settle", "recover") and taken(one) == taken(other) != []:
        return True  # Another consumer got what came back.
    method = deed.method
    if closed and "consumer prefetch count is not set" in closed[0][1]:
        return "consumer prefetch count is not set" in closes(difference.one)[0][1]
    if isinstance(method, BasicGet):
        return [(code, text[-16:]) for code, text in closed] == [(403, "in exclusive use")]
    return False


def shrink(pair: Pair, deeds: list[Deed], theme: str) -> list[Deed]:
    """Leave out deeds without which the brokers still disagree."""
    found = pair.differs(deeds, theme)
    if found is None:
        return deeds
    deeds = deeds[: found.step + 1]
    size = max(1, len(deeds) // 2)
    while True:
        at = 0
        while at < len(deeds):
            fewer = deeds[:at] + deeds[at + size :]
            found = pair.differs(fewer, theme, AGREE_S)
            if found is not None:
                deeds = fewer[: found.step + 1]
            else:
                at += size
        if size == 1:
            return deeds
        size //= 2
