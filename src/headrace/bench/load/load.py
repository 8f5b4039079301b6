# SPDX-License-Identifier: Apache-2.0
"""A load: its exchange, queues and messages, its publishers and its consumers."""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.bench.load.link import BenchError, open_link
from headrace.protocol.codec_0_10 import (
    DeliveryProperties,
    MessageTransfer,
    encode_command,
    encode_headers,
)
from headrace.protocol.codec_0_x import (
    BasicProperties,
    BasicPublish,
    ExchangeDeclare,
    ExchangeDeclareOk,
    ExchangeDelete,
    ExchangeDeleteOk,
    MethodBase,
    QueueBind,
    QueueBindOk,
    QueueDeclare,
    QueueDeclareOk,
    QueueDelete,
    QueueDeleteOk,
    encode_content_header,
    encode_method,
)
from headrace.spec.tables import Version
from headrace.wire.frame import FRAME_BODY, FRAME_HEADER, FRAME_METHOD, FRAME_OVERHEAD, encode_frame

if TYPE_CHECKING:
    from headrace.client.url import Settings

VERSION = Version.V0_9_1
PREFIX = "hb."  # The names of a load's queues and exchange begin with it.
BUFFER_SIZE = 65536  # Bytes.
FRAME_HEAD_0_10 = 12
STAMP_SIZE = 16  # Bytes that the meter writes at the start of each body.
TOPIC_WORDS = 50  # Routing keys are a<x>.b<y>.c<z>; x, y and z are less than this.


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """A load, which runs for `seconds` after `warm_s`, or until `count` messages are delivered."""

    size: int = 16  # Bytes of each body.
    persistent: bool = False  # Messages are persistent and queues durable.
    window: int = 0  # The maximum of unconfirmed publishes of a publisher; 0: no confirms.
    prefetch: int = 0  # 0: no limit.
    ack_every: int = 0  # 0: consumers do not acknowledge.
    exchange: str = ""  # "", "fanout" or "topic".
    queues: int = 1
    publishers: int = 1
    consumers: int = 1
    own_queue: bool = False  # Each publisher has one queue; otherwise each serves all in turn.
    bindings: int = 0  # The number of bindings of the topic exchange.
    keys: int = 1000  # Routing keys in use with the topic exchange.
    rate: float = 0.0  # Publishes per second; 0: unlimited.
    count: int = 0
    seconds: float = 8.0
    warm_s: float = 1.0
    publishes: bool = True
    keep: bool = False  # Use the queues and messages of an earlier load.
    backlog: int = 0  # The number of messages of the earlier load.
    first_publisher: int = 0  # The lowest publisher number, above those of the earlier load.
    idle_s: float = 30.0  # Seconds without a delivery after which the missing ones are lost.
    publish_version: Version = VERSION
    consume_version: Version = VERSION

    @property
    def exchange_name(self) -> str:
        """The name of the exchange; "" is the default exchange."""
        return PREFIX + self.exchange if self.exchange else ""

    @property
    def publisher_numbers(self) -> range:
        """The numbers of the publishers, which their messages carry."""
        return range(self.first_publisher, self.first_publisher + self.publishers)

    @property
    def is_ordered(self) -> bool:
        """False if consumers share a queue, so that the order cannot be checked."""
        return self.consumers <= self.queues

    @property
    def is_counted(self) -> bool:
        """True if a number of messages ends the load, not the time."""
        return self.count > 0


@dataclass(frozen=True, slots=True)
class PublishBuffer:
    """Encoded publishes one after the other. The arrays have a value for each publish."""

    data: bytearray
    ends: array[int]  # End offsets.
    bodies: array[int]  # Offsets of the bodies.
    targets: array[int]  # Indexes of the sequences of numbers, one for each queue.
    fans: array[int]  # Numbers of queues that get the message.
    targets_count: int


def queue_name(number: int) -> str:
    """Return the name of a load's queue by its number."""
    return f"{PREFIX}{number}"


def declare(load: Load, settings: Settings) -> None:
    """Remove and declare the load's queues, exchange and bindings."""
    remove(load, settings)
    link = open_link(settings)
    for number in range(load.queues):
        queue = QueueDeclare(queue=queue_name(number), durable=load.persistent)
        link.call(queue, QueueDeclareOk)
    if load.exchange:
        link.call(
            ExchangeDeclare(
                exchange=load.exchange_name, type=load.exchange, durable=load.persistent
            ),
            ExchangeDeclareOk,
        )
    if load.exchange == "fanout":
        keys = [(number, "") for number in range(load.queues)]
    elif load.exchange == "topic":
        keys = [(topic_queue(load, i), topic_pattern(i)) for i in range(load.bindings)]
    else:
        keys = []
    for number, key in keys:
        bind = QueueBind(queue=queue_name(number), exchange=load.exchange_name, routing_key=key)
        link.call(bind, QueueBindOk)
    link.close()


def remove(load: Load, settings: Settings) -> None:
    """Delete the load's queues and exchange, if they exist."""
    deletes: list[tuple[MethodBase, type[MethodBase]]] = [
        (QueueDelete(queue=queue_name(number)), QueueDeleteOk) for number in range(load.queues)
    ]
    if load.exchange:
        deletes.append((ExchangeDelete(exchange=load.exchange_name), ExchangeDeleteOk))
    link = open_link(settings)
    for delete, answer in deletes:
        try:
            link.call(delete, answer)
        except BenchError:  # Some brokers answer 404 for a missing object.
            link.close()
            link = open_link(settings)
    link.close()


def topic_pattern(number: int) -> str:
    """Return the pattern of a topic binding by its number.

    A quarter of the patterns is exact, another has `*`, another ends with `#`, and the rest begins
    with `#` or `*`.
    """
    pair = number // 4 % (TOPIC_WORDS * TOPIC_WORDS)
    x, y = divmod(pair, TOPIC_WORDS)
    match number % 4:
        case 0:
            return f"a{x}.b{y}.c{(x * 7 + y * 3) % TOPIC_WORDS}"
        case 1:
            return f"a{x}.*.c{y}"
        case 2:
            return f"a{x}.b{y}.#"
        case _:
            return f"#.b{x}.c{y}" if pair & 1 else f"*.b{x}.c{y}"


def topic_queue(load: Load, number: int) -> int:
    """Return the number of a topic binding's queue; the bindings are spread evenly."""
    return (number * 2654435761 >> 16) % load.queues


def topic_fan(load: Load, x: int, y: int, z: int) -> int:
    """Return the number of queues that a<x>.b<y>.c<z> reaches, without matching patterns."""
    numbers = [
        4 * (x * TOPIC_WORDS + z) + 1,
        4 * (x * TOPIC_WORDS + y) + 2,
        4 * (y * TOPIC_WORDS + z) + 3,
    ]
    if z == (x * 7 + y * 3) % TOPIC_WORDS:
        numbers.append(4 * (x * TOPIC_WORDS + y))
    # After 10,000 bindings the patterns repeat, with other queues.
    cycle = 4 * TOPIC_WORDS * TOPIC_WORDS
    bindings = [binding for number in numbers for binding in range(number, load.bindings, cycle)]
    return len({topic_queue(load, binding) for binding in bindings})


def make_publish_buffer(load: Load, publisher: int, frame_max: int) -> PublishBuffer:
    """Return the publishes that a publisher sends repeatedly, with a new stamp each time."""
    publishes: list[tuple[bytes, int, int, int]] = []  # Bytes, offset of the body, target, fan.

    def add(routing_key: str, target: int, fan: int) -> None:
        data, body_offset = _encode_publish(load, routing_key, frame_max)
        publishes.append((data, body_offset, target, fan))

    if load.exchange == "fanout":
        add("", 0, load.queues)
    elif load.exchange == "topic":
        state = 12345
        for _ in range(load.keys):
            words = []
            for _ in range(3):
                state = (state * 1664525 + 1013904223) & 0xFFFFFFFF
                words.append((state >> 16) % TOPIC_WORDS)
            x, y, z = words
            add(f"a{x}.b{y}.c{z}", 0, topic_fan(load, x, y, z))
    elif load.own_queue:
        add(queue_name(publisher % load.queues), 0, 1)
    else:
        for i in range(load.queues):
            number = (publisher + i) % load.queues
            add(queue_name(number), number, 1)
    repeats = max(1, BUFFER_SIZE // sum(len(publish[0]) for publish in publishes))
    data = bytearray(b"".join(publish[0] for publish in publishes) * repeats)
    ends, bodies = array("Q"), array("Q")
    offset = 0
    for _ in range(repeats):
        for message, body_offset, _, _ in publishes:
            bodies.append(offset + body_offset)
            offset += len(message)
            ends.append(offset)
    targets = array("Q", [publish[2] for publish in publishes] * repeats)
    fans = array("Q", [publish[3] for publish in publishes] * repeats)
    return PublishBuffer(data, ends, bodies, targets, fans, max(targets) + 1)


def _encode_publish(load: Load, routing_key: str, frame_max: int) -> tuple[bytes, int]:
    """Return the frames of a publish on channel 1, and the offset of its body."""
    version = load.publish_version
    if version is Version.V0_10:
        return _encode_transfer(load, routing_key, frame_max)
    method = BasicPublish(exchange=load.exchange_name, routing_key=routing_key)
    properties = BasicProperties(delivery_mode=2 if load.persistent else None)
    head = encode_frame(FRAME_METHOD, 1, encode_method(version, method)) + encode_frame(
        FRAME_HEADER, 1, encode_content_header(version, 60, load.size, properties)
    )
    payload_max = frame_max - FRAME_OVERHEAD
    body = b"x" * load.size
    payloads = [body[start : start + payload_max] for start in range(0, load.size, payload_max)]
    assert len(payloads[0]) >= STAMP_SIZE
    frames = b"".join(encode_frame(FRAME_BODY, 1, payload) for payload in payloads)
    return head + frames, len(head) + FRAME_OVERHEAD - 1


def _encode_transfer(load: Load, routing_key: str, frame_max: int) -> tuple[bytes, int]:
    """Return the frames of a transfer on channel 0, and the offset of its body.

    The body must fit into a frame.
    """
    assert STAMP_SIZE <= load.size <= frame_max - FRAME_HEAD_0_10
    command = MessageTransfer(destination=load.exchange_name, accept_mode=1, acquire_mode=0)
    properties = DeliveryProperties(
        routing_key=routing_key, delivery_mode=2 if load.persistent else None
    )
    frames = b"".join(
        bytes((flags, kind))
        + (len(payload) + FRAME_HEAD_0_10).to_bytes(2, "big")
        + b"\0\1\0\0\0\0\0\0"
        + payload
        for flags, kind, payload in (
            (11, 1, encode_command(command)),
            (3, 2, encode_headers([properties])),
            (7, 3, b"x" * load.size),
        )
    )
    return frames, len(frames) - load.size
