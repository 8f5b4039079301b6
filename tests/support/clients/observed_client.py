# SPDX-License-Identifier: Apache-2.0
"""The view of a client with several connections and channels, in a form to compare.

A `Peer` does one deed after another and collects what comes back: answers, deliveries, confirms,
returns, cancellations and closes, each channel's apart. What is chosen by the broker (names, tags,
times) is left out or numbered.
"""

from __future__ import annotations

import selectors
import time
from copy import copy
from typing import TYPE_CHECKING, Any, NamedTuple

from headrace.protocol.codec_0_x import (
    BasicAck,
    BasicCancel,
    BasicConsume,
    BasicDeliver,
    BasicGet,
    BasicNack,
    BasicProperties,
    BasicPublish,
    BasicReturn,
    ChannelClose,
    ChannelCloseOk,
    ChannelFlow,
    ChannelOpen,
    ConnectionBlocked,
    ConnectionClose,
    ConnectionCloseOk,
    ConnectionUnblocked,
    ExchangeBind,
    ExchangeDelete,
    ExchangeUnbind,
    MethodBase,
    QueueDeclare,
    QueueDeclareOk,
    QueueDelete,
    decode_content_header,
)
from headrace.testing.raw_client import RawClient, method_frame
from headrace.wire.frame import FRAME_BODY, FRAME_HEADER, FRAME_METHOD

if TYPE_CHECKING:
    from headrace.wire.table import Value

NEWER = (
    "x-last-death-",
    "x-stream-arrival-ms",
    "x-death-spread",
)  # Headers that RabbitMQ 3.10 has not.
ANSWER_S_MAX = 60.0
CLOSED = ("channel.close-ok", {})
OPENED = ("answer", ("channel.open-ok", {"channel_id": b""}))
BLOCKS = -1  # In place of a channel.
MADE = ("amq.gen-", "amq.ctag-")  # So begin names that a broker makes.
PROBE = 9  # The first of the channels on which the control connection asks for queues.


class Held(NamedTuple):
    """A delivery that is not settled: which consumer got it ('' for get) and its tag."""

    consumer: str
    tag: int


class Link(RawClient):
    """One connection, which keeps what comes as answers and events, by channel."""

    def __init__(self, host: str, port: int) -> None:
        super().__init__(host, port, timeout_s=ANSWER_S_MAX)
        self.is_open = True
        self.channels: set[int] = set()
        self.answers: dict[int, list[MethodBase]] = {}
        self.contents: dict[int, list[Any]] = {}  # Method, properties, size, body so far.
        self.events: list[tuple[int, str, Any]] = []
        self.held: dict[int, list[Held]] = {}
        self.consumers: dict[int, dict[str, bool]] = {}  # By channel: tags, and whether no-ack.
        self.returned: dict[int, set[bytes]] = {}  # Bodies, by channel.
        self.names: list[str] = []  # That the broker made.
        self.reply_to = ""
        self.open_connection()

    def client_properties(self) -> dict[str, Value]:
        capabilities: dict[str, Value] = {
            "publisher_confirms": True,
            "connection.blocked": True,
            "consumer_cancel_notify": True,
            "basic.nack": True,
            "authentication_failure_close": True,
        }
        return {"product": "peer", "capabilities": capabilities}

    def send_bytes(self, data: bytes) -> None:
        """Send bytes; a broker that has hung up ends the connection."""
        try:
            self.socket.sendall(data)
        except OSError:
            self.drop()

    def cut_off(self) -> None:
        """The end of the stream is the same within a frame."""

    def drop(self) -> None:
        self.is_open = False
        super().drop()

    def answer(self, channel: int) -> MethodBase | None:
        """Wait for the next answer on a channel; None when that closes."""
        until = time.monotonic() + ANSWER_S_MAX
        while not self.answers.get(channel):
            if not self.is_open or (channel and channel not in self.channels):
                return None
            assert time.monotonic() < until, "no answer"
            self.poll(0.05)
        return self.answers[channel].pop(0)

    def ask(self, channel: int, method: MethodBase) -> MethodBase | None:
        """Send a method, and wait for the next answer on its channel."""
        self.send(method, channel)
        return self.answer(channel)

    def poll(self, seconds: float) -> bool:
        """Take what has come; return False if nothing did in this time."""
        if not self.is_open or not self.is_readable(seconds):
            return False
        while self.is_open:
            frame = self.frame()
            if frame is None:
                self.events.append((0, "gone", None))
                self.drop()
                break
            self.take(*frame)
            if not self.rest:
                break
        return True

    def take(self, kind: int, channel: int, payload: bytes) -> None:
        if kind == FRAME_METHOD:
            method = self._decode(payload)
            if method.CONTENT:
                self.contents[channel] = [method, None, 0, b""]
            else:
                self.take_method(channel, method)
            return
        if kind == FRAME_HEADER:
            content = self.contents[channel]
            _, content[2], content[1] = decode_content_header(self.version, payload)
        elif kind == FRAME_BODY:
            content = self.contents[channel]
            content[3] += payload
        else:
            return
        if len(content[3]) >= content[2]:
            method, properties, _, body = self.contents.pop(channel)
            self.take_content(channel, method, shown(properties), body)

    def take_content(self, channel: int, method: Any, properties: Any, body: bytes) -> None:
        reply_to = properties.get("reply_to", "")
        if reply_to.startswith("amq.rabbitmq.reply-to."):
            self.reply_to = reply_to
            properties["reply_to"] = "amq.rabbitmq.reply-to.*"
        key = method.routing_key
        if key.startswith("amq.rabbitmq.reply-to."):
            key = "amq.rabbitmq.reply-to.*"
        if isinstance(method, BasicReturn):
            fact = (method.reply_code, method.reply_text, method.exchange, key, properties, body)
            self.events.append((channel, "return", fact))
            self.returned.setdefault(channel, set()).add(body)
            return
        fact = (method.redelivered, method.exchange, key, properties, body)  # type: ignore[assignment]
        if isinstance(method, BasicDeliver):
            self.events.append((channel, "delivery " + method.consumer_tag, fact))
            if not self.consumers.get(channel, {}).get(method.consumer_tag):
                self.hold(channel, method.consumer_tag, method.delivery_tag)
        else:
            self.events.append((channel, "answer", ("get-ok", method.message_count, *fact)))
            self.hold(channel, "", method.delivery_tag)
            self.answers.setdefault(channel, []).append(method)

    def hold(self, channel: int, consumer: str, tag: int) -> None:
        self.held.setdefault(channel, []).append(Held(consumer, tag))

    def take_method(self, channel: int, method: Any) -> None:
        if isinstance(method, ChannelClose | ConnectionClose):
            fact = (method.reply_code, method.reply_text, method.class_id, method.method_id)
            self.events.append((channel, "close", fact))
            self.forget(channel)
            if isinstance(method, ConnectionClose):
                self.send(ConnectionCloseOk())
                self.drop()
            else:
                self.send(ChannelCloseOk(), channel)
        elif isinstance(method, BasicAck | BasicNack):
            kind = "ack" if isinstance(method, BasicAck) else "nack"
            returned = frozenset(self.returned.get(channel, ()))
            fact = (kind, method.delivery_tag, method.multiple, returned)  # type: ignore[assignment]
            self.events.append((channel, "confirm", fact))
        elif isinstance(method, BasicCancel):
            self.events.append((channel, "cancel", method.consumer_tag))
        elif isinstance(method, ConnectionBlocked | ConnectionUnblocked):
            self.events.append((BLOCKS, method.NAME, getattr(method, "reason", None)))
        elif isinstance(method, ChannelFlow):
            self.events.append((channel, "flow", method.active))
        else:
            name = method.NAME
            if name != "channel.flow-ok":
                fields = {field: getattr(method, field) for field in method.__slots__}
                self.names += [
                    value
                    for value in fields.values()
                    if str(value).startswith(MADE) and value not in self.names
                ]
                self.events.append((channel, "answer", (name, fields)))
            self.answers.setdefault(channel, []).append(method)

    def forget(self, channel: int) -> None:
        self.channels.discard(channel)
        self.held.pop(channel, None)
        self.consumers.pop(channel, None)
        self.answers.pop(channel, None)
        self.returned.pop(channel, None)


def str_of(death: Any) -> str:
    return str(sorted(death.items()) if isinstance(death, dict) else death)


def shown(properties: Any) -> dict[str, Any]:
    """Properties without the times of deaths, and without what another RabbitMQ would add."""
    found = {
        name: getattr(properties, name)
        for name in properties.__slots__
        if getattr(properties, name) is not None
    }
    headers = found.pop("headers", None)
    if headers:
        headers = {
            k: v
            for k, v in headers.items()
            if not k.startswith(NEWER) and (k, v) != ("x-delivery-count", 0)
        }
    if headers:
        found["headers"] = headers
    if headers and isinstance(headers.get("x-death"), list):
        deaths = [
            {k: v for k, v in death.items() if k != "time"} if isinstance(death, dict) else death
            for death in headers["x-death"]
        ]
        # RabbitMQ turns the order of the others round with each one that comes first.
        found["headers"] = {**headers, "x-death": deaths[:1] + sorted(deaths[1:], key=str_of)}
    return found


class Peer:
    """Connections 0 and up, and one more that only asks and tidies up."""

    def __init__(self, host: str, port: int) -> None:
        self.address = host, port
        self.links: dict[int, Link] = {}
        self.control = Link(host, port)
        self.seen: dict[tuple[int, int], list[tuple[str, Any]]] = {}
        self.confirmed: dict[tuple[int, int], set[int]] = {}
        self.names: dict[str, str] = {}  # That the broker made, by `$1` and so on.

    def link(self, number: int) -> Link:
        link = self.links.get(number)
        if link is None or not link.is_open:
            link = self.links[number] = Link(*self.address)
        return link

    def channel(self, number: int, channel: int) -> Link:
        link = self.link(number)
        if channel and channel not in link.channels:
            link.channels.add(channel)
            link.answers.pop(channel, None)
            link.ask(channel, ChannelOpen())
            link.events = [event for event in link.events if event[1:] != OPENED]
        return link

    # -- Deeds ---------------------------------------------------------------------------------

    def call(self, number: int, channel: int, method: MethodBase) -> None:
        """A method that is answered."""
        link = self.channel(number, channel)
        if isinstance(method, BasicConsume):
            tags = link.consumers.setdefault(channel, {})
            tags.setdefault(method.consumer_tag, method.no_ack)
        link.ask(channel, self.filled(method))
        if isinstance(method, BasicGet) and method.no_ack:
            link.held[channel] = [h for h in link.held.get(channel, []) if h.consumer]

    def tell(self, number: int, channel: int, method: MethodBase) -> None:
        """A method without an answer; afterwards the broker has seen it."""
        link = self.channel(number, channel)
        link.send(method, channel)
        link.ask(channel, ChannelFlow(active=True))

    def publish(
        self,
        number: int,
        channel: int,
        method: BasicPublish,
        properties: BasicProperties,
        body: bytes,
    ) -> None:
        link = self.channel(number, channel)
        link.send_content(self.filled(method), properties, body, channel)
        link.ask(channel, ChannelFlow(active=True))

    def shout(
        self,
        number: int,
        channel: int,
        method: BasicPublish,
        properties: BasicProperties,
        body: bytes,
    ) -> None:
        """Publish to a broker that may not listen now."""
        link = self.channel(number, channel)
        link.send_content(method, properties, body, channel)

    def publish_all(
        self, number: int, channel: int, messages: list[tuple[Any, Any, bytes]]
    ) -> None:
        """Publish several in one go."""
        link = self.channel(number, channel)
        frames = method_frame(channel, ChannelFlow(active=True))
        for method, properties, body in messages:
            frames += link.content_frames(method, BasicProperties(**properties), body, channel)
        link.send_bytes(frames)
        link.answer(channel)
        link.ask(channel, ChannelFlow(active=True))

    def filled(self, method: Any) -> Any:
        """A method with the names that this broker made in the place of `$1` and so on."""
        found = None
        for field in method.__slots__:
            value = getattr(method, field)
            if isinstance(value, str) and value[:1] == "$":
                found = found or copy(method)
                setattr(found, field, self.names.get(value, value))
        return found or method

    def leave(self, number: int) -> None:
        """Close a connection."""
        link = self.links.get(number)
        if link is not None and link.is_open:
            link.ask(0, ConnectionClose(reply_code=200))
        self.drop(number)

    def drop(self, number: int) -> None:
        """Hang up without a word."""
        link = self.links.pop(number, None)
        if link is not None:
            link.drop()
        for where in [where for where in self.confirmed if where[0] == number]:
            del self.confirmed[where]

    def close_channel(self, number: int, channel: int) -> None:
        link = self.links.get(number)
        if link is not None and channel in link.channels:
            link.ask(channel, ChannelClose(reply_code=200))
            link.forget(channel)

    # -- What came -----------------------------------------------------------------------------

    def listen(self, seconds: float) -> None:
        """Take what comes until nothing does for so long."""
        busy = True
        while busy:
            busy = False
            with selectors.DefaultSelector() as selector:
                for link in self.links.values():
                    if link.is_open:
                        selector.register(link.socket, selectors.EVENT_READ, link)
                if not selector.get_map():
                    return
                for key, _ in selector.select(seconds):
                    busy = key.data.poll(0) or busy

    def collect(self) -> dict[Any, Any]:
        """All that was not told before, in a form that two brokers share."""
        for number, link in self.links.items():
            for name in link.names:
                if name not in self.names.values():
                    self.names[f"${len(self.names) + 1}"] = name
            for channel, kind, fact in link.events:
                event = (kind, fact) if not self.names else self.masked((kind, fact))
                self.seen.setdefault((number, channel), []).append(event)
            link.events = []
        told: dict[Any, Any] = {}
        ended = {where[0] for where in self.seen if where[1] == 0}  # What else came may be late.
        for where, events in self.seen.items():
            if where[1] and where[0] in ended:
                continue
            confirms = [fact for kind, fact in events if kind == "confirm"]
            for kind, fact in events:
                if kind == "cancel":
                    told.setdefault((*where, kind), set()).add(fact)
                elif kind != "confirm":
                    told.setdefault((*where, kind), []).append(fact)
            if confirms:
                told[(*where, "confirm")] = self.expanded(where, confirms)
        return told

    def masked(self, fact: Any) -> Any:
        """Return the events, with `$1` and so on in place of names that the broker made."""
        if isinstance(fact, str):
            for short, name in self.names.items():
                fact = fact.replace(name, short)
            return fact
        if isinstance(fact, tuple | list):
            return type(fact)(self.masked(each) for each in fact)
        if isinstance(fact, dict):
            return {key: self.masked(value) for key, value in fact.items()}
        return fact

    def expanded(self, where: tuple[int, int], confirms: list[Any]) -> dict[int, str]:
        found: dict[int, str] = {}
        before = self.confirmed.get(where, set())
        for kind, tag, multiple, returned in confirms:
            for each in range(1 if multiple else tag, tag + 1):
                if each not in before:
                    late = b"tag %d" % each in returned
                    found.setdefault(each, f"{kind} after its return" if late else kind)
        return found

    def done(self) -> None:
        """Assert that the collected events are equal, and start anew."""
        ended = {where[0] for where in self.seen if where[1] == 0}  # What else came may be late.
        for where, events in self.seen.items():
            if where[1] and where[0] in ended:
                continue
            confirms = [fact for kind, fact in events if kind == "confirm"]
            self.confirmed.setdefault(where, set()).update(self.expanded(where, confirms))
            if any(kind == "close" or fact == CLOSED for kind, fact in events):
                self.confirmed.pop(where, None)
        self.seen = {}

    def counts(self, names: tuple[str, ...]) -> dict[str, Any]:
        """Ready messages and consumers of queues, or why that is not told.

        Those of `$1` and so on, too.
        """
        control = self.control
        found: dict[str, Any] = {}
        made = [short for short, name in self.names.items() if name.startswith(MADE[0])]
        for index, name in enumerate((*names, *made)):
            number = PROBE + index
            if number not in control.channels:
                control.channels.add(number)
                control.ask(number, ChannelOpen())
            answer = control.ask(
                number, QueueDeclare(queue=self.names.get(name, name), passive=True)
            )
            if isinstance(answer, QueueDeclareOk):
                found[name] = answer.message_count, answer.consumer_count
            else:
                closes = [fact for _, kind, fact in control.events if kind == "close"]
                found[name] = closes[-1][0]
            control.events.clear()
        return found

    def tidy(
        self, queues: tuple[str, ...], exchanges: tuple[str, ...], bound: list[ExchangeBind]
    ) -> None:
        """End all connections, delete all things of these names, and bindings of exchanges."""
        for link in self.links.values():
            if link.is_open:
                link.ask(0, ConnectionClose(reply_code=200))
                link.drop()
        self.links, self.seen, self.confirmed = {}, {}, {}
        made = [name for name in self.names.values() if name.startswith(MADE[0])]
        methods: list[MethodBase] = [QueueDelete(queue=name) for name in (*queues, *made)]
        methods += [ExchangeDelete(exchange=name) for name in exchanges]
        methods += [
            ExchangeUnbind(
                destination=bind.destination,
                source=bind.source,
                routing_key=bind.routing_key,
                arguments=bind.arguments,
            )
            for bind in bound
            if bind.destination not in exchanges and bind.source not in exchanges
        ]
        for number, method in enumerate(methods, 200):
            if number not in self.control.channels:
                self.control.channels.add(number)
                self.control.ask(number, ChannelOpen())
            self.control.ask(number, method)
        self.control.events.clear()
        self.names = {}

    def end(self) -> None:
        self.control.drop()
        for link in self.links.values():
            link.drop()
