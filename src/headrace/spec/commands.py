# SPDX-License-Identifier: Apache-2.0
"""Every control, command and struct of AMQP 0-10.

Fields are in wire order, written as "name:type". A type with a dot is a domain with choices
(`DOMAINS`). A `!` marks a field that the standard requires, and `=1` is the default of a bit. A
struct with a code is sent with a size of 32 bits, its class and its code. The xid struct is that of
the corrections to the standard, a coded struct with a size of 32 bits; the form in the standard
itself is accepted as well.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from headrace.spec.reply_0_10 import (
    AcceptMode,
    AcquireMode,
    CloseCode,
    CreditUnit,
    DeliveryMode,
    DeliveryPriority,
    DetachCode,
    ExecutionCode,
    FlowMode,
    RejectCode,
    ReturnCode,
    XaStatus,
)
from headrace.spec.tables import CLIENT, EITHER, SERVER, Receiver

Code = tuple[int, int]

FRAME_SIZE_MIN = 4096  # MIN-MAX-FRAME-SIZE, the frames that peers must accept before tune.
FRAME_SIZE_MAX = 65535

DOMAINS: dict[str, tuple[str, type[IntEnum]]] = {
    "connection.close-code": ("uint16", CloseCode),
    "session.detach-code": ("uint8", DetachCode),
    "execution.error-code": ("uint16", ExecutionCode),
    "message.accept-mode": ("uint8", AcceptMode),
    "message.acquire-mode": ("uint8", AcquireMode),
    "message.reject-code": ("uint16", RejectCode),
    "message.delivery-mode": ("uint8", DeliveryMode),
    "message.delivery-priority": ("uint8", DeliveryPriority),
    "message.flow-mode": ("uint8", FlowMode),
    "message.credit-unit": ("uint8", CreditUnit),
    "dtx.xa-status": ("uint16", XaStatus),
    "file.return-code": ("uint16", ReturnCode),
    "stream.return-code": ("uint16", ReturnCode),
}

TYPES = frozenset(
    {
        "bit",
        "uint8",
        "uint16",
        "uint32",
        "uint64",
        "sequence-no",
        "datetime",
        "uuid",
        "str8",
        "str16",
        "vbin8",
        "vbin16",
        "vbin32",
        "map",
        "struct32",
        "sequence-set",
        "byte-ranges",
        "str16-array",
        "command-fragments",
        "xid",
        "xid-array",
        "reply-to",
    }
)


@dataclass(frozen=True, slots=True)
class Field10:
    """A field of a command or struct."""

    name: str
    type: str  # The base type.
    domain: str = ""  # The field's domain, if that is one of `DOMAINS`.
    required: bool = False
    default: bool = False  # The default of a bit.

    def __post_init__(self) -> None:
        assert self.type in TYPES, self


def _parse_fields(text: str) -> tuple[Field10, ...]:
    """Parse fields written as "name:type", separated by spaces."""
    fields = []
    for word in text.split():
        name, kind = word.split(":")
        kind, _, default = kind.partition("=")
        required = kind.endswith("!")
        kind = kind.removesuffix("!")
        domain = kind if kind in DOMAINS else ""
        base = DOMAINS[kind][0] if domain else kind
        fields.append(Field10(name, base, domain, required, default == "1"))
    return tuple(fields)


@dataclass(frozen=True, slots=True)
class Struct:
    """A struct of the standard."""

    name: str
    code: Code | None
    size: int  # The bytes of its size field.
    pack: int  # The bytes of its packing flags.
    arguments: str

    @property
    def fields(self) -> tuple[Field10, ...]:
        """The fields, parsed at each call, since a broker needs those of few rows."""
        return _parse_fields(self.arguments)


@dataclass(frozen=True, slots=True)
class Command:
    """A control or command; both have 2 bytes of packing flags and no size field."""

    name: str
    code: Code
    arguments: str
    receiver: Receiver
    control: bool = False
    replies: str = ""
    result: str = ""  # The struct in execution.result.
    segments: str = ""  # The structs of its header segment, which a body segment follows.
    extension: bool = False  # True if it is not in the standard.

    @property
    def fields(self) -> tuple[Field10, ...]:
        """The fields, parsed at each call, since a broker needs those of few rows."""
        return _parse_fields(self.arguments)


# fmt: off
STRUCTS: tuple[Struct, ...] = (
    Struct("session.header", None, 1, 1,
           "sync:bit"),
    Struct("session.command-fragment", None, 0, 0,
           "command-id:sequence-no! byte-ranges:byte-ranges!"),
    Struct("message.delivery-properties", (4, 1), 4, 2,
           "discard-unroutable:bit immediate:bit redelivered:bit "
           "priority:message.delivery-priority! delivery-mode:message.delivery-mode! "
           "ttl:uint64 timestamp:datetime expiration:datetime exchange:str8 routing-key:str8 "
           "resume-id:str16 resume-ttl:uint64"),
    Struct("message.fragment-properties", (4, 2), 4, 2,
           "first:bit=1 last:bit=1 fragment-size:uint64"),
    Struct("message.reply-to", None, 2, 2,
           "exchange:str8 routing-key:str8"),
    Struct("message.message-properties", (4, 3), 4, 2,
           "content-length:uint64 message-id:uuid correlation-id:vbin16 reply-to:reply-to "
           "content-type:str8 content-encoding:str8 user-id:vbin16 app-id:vbin16 "
           "application-headers:map"),
    Struct("message.acquired", (4, 4), 4, 2,
           "transfers:sequence-set!"),
    Struct("message.message-resume-result", (4, 5), 4, 2,
           "offset:uint64"),
    Struct("dtx.xa-result", (6, 1), 4, 2,
           "status:dtx.xa-status!"),
    Struct("dtx.xid", (6, 4), 4, 2,
           "format:uint32! global-id:vbin8! branch-id:vbin8!"),
    Struct("dtx.get-timeout-result", (6, 2), 4, 2,
           "timeout:uint32!"),
    Struct("dtx.recover-result", (6, 3), 4, 2,
           "in-doubt:xid-array!"),
    Struct("exchange.exchange-query-result", (7, 1), 4, 2,
           "type:str8 durable:bit not-found:bit arguments:map"),
    Struct("exchange.exchange-bound-result", (7, 2), 4, 2,
           "exchange-not-found:bit queue-not-found:bit queue-not-matched:bit "
           "key-not-matched:bit args-not-matched:bit"),
    Struct("queue.queue-query-result", (8, 1), 4, 2,
           "queue:str8! alternate-exchange:str8 durable:bit exclusive:bit auto-delete:bit "
           "arguments:map message-count:uint32! subscriber-count:uint32!"),
    Struct("file.file-properties", (9, 1), 4, 2,
           "content-type:str8 content-encoding:str8 headers:map priority:uint8 reply-to:str8 "
           "message-id:str8 filename:str8 timestamp:datetime cluster-id:str8"),
    Struct("stream.stream-properties", (10, 1), 4, 2,
           "content-type:str8 content-encoding:str8 headers:map priority:uint8 "
           "timestamp:datetime"),
)

COMMANDS: tuple[Command, ...] = (
    # connection
    Command("connection.start", (1, 1),
            "server-properties:map mechanisms:str16-array! locales:str16-array!",
            CLIENT, control=True, replies="start-ok"),
    Command("connection.start-ok", (1, 2),
            "client-properties:map mechanism:str8! response:vbin32! locale:str8!",
            SERVER, control=True),
    Command("connection.secure", (1, 3),
            "challenge:vbin32!",
            CLIENT, control=True, replies="secure-ok"),
    Command("connection.secure-ok", (1, 4),
            "response:vbin32!",
            SERVER, control=True),
    Command("connection.tune", (1, 5),
            "channel-max:uint16 max-frame-size:uint16 heartbeat-min:uint16 "
            "heartbeat-max:uint16",
            CLIENT, control=True, replies="tune-ok"),
    Command("connection.tune-ok", (1, 6),
            "channel-max:uint16! max-frame-size:uint16 heartbeat:uint16",
            SERVER, control=True),
    Command("connection.open", (1, 7),
            "virtual-host:str8! capabilities:str16-array insist:bit",
            SERVER, control=True, replies="open-ok redirect"),
    Command("connection.open-ok", (1, 8),
            "known-hosts:str16-array",
            CLIENT, control=True),
    Command("connection.redirect", (1, 9),
            "host:str16! known-hosts:str16-array",
            CLIENT, control=True),
    Command("connection.heartbeat", (1, 10),
            "",
            EITHER, control=True),
    Command("connection.close", (1, 11),
            "reply-code:connection.close-code! reply-text:str8",
            EITHER, control=True, replies="close-ok"),
    Command("connection.close-ok", (1, 12),
            "",
            EITHER, control=True),
    Command("connection.update-secret", (1, 70),
            "new-secret:vbin32! reason:str8",
            SERVER, control=True, replies="update-secret-ok", extension=True),
    Command("connection.update-secret-ok", (1, 71),
            "",
            CLIENT, control=True, extension=True),
    # session
    Command("session.attach", (2, 1),
            "name:vbin16! force:bit",
            EITHER, control=True, replies="attached detached"),
    Command("session.attached", (2, 2),
            "name:vbin16!",
            EITHER, control=True),
    Command("session.detach", (2, 3),
            "name:vbin16!",
            EITHER, control=True, replies="detached"),
    Command("session.detached", (2, 4),
            "name:vbin16! code:session.detach-code!",
            EITHER, control=True),
    Command("session.request-timeout", (2, 5),
            "timeout:uint32",
            EITHER, control=True, replies="timeout"),
    Command("session.timeout", (2, 6),
            "timeout:uint32",
            EITHER, control=True),
    Command("session.command-point", (2, 7),
            "command-id:sequence-no! command-offset:uint64!",
            EITHER, control=True),
    Command("session.expected", (2, 8),
            "commands:sequence-set! fragments:command-fragments",
            EITHER, control=True),
    Command("session.confirmed", (2, 9),
            "commands:sequence-set fragments:command-fragments",
            EITHER, control=True),
    Command("session.completed", (2, 10),
            "commands:sequence-set timely-reply:bit",
            EITHER, control=True),
    Command("session.known-completed", (2, 11),
            "commands:sequence-set",
            EITHER, control=True),
    Command("session.flush", (2, 12),
            "expected:bit confirmed:bit completed:bit",
            EITHER, control=True),
    Command("session.gap", (2, 13),
            "commands:sequence-set",
            EITHER, control=True),
    # execution
    Command("execution.sync", (3, 1),
            "",
            EITHER),
    Command("execution.result", (3, 2),
            "command-id:sequence-no! value:struct32",
            EITHER),
    Command("execution.exception", (3, 3),
            "error-code:execution.error-code! command-id:sequence-no class-code:uint8 "
            "command-code:uint8 field-index:uint8 description:str16 error-info:map",
            EITHER),
    # message
    Command("message.transfer", (4, 1),
            "destination:str8 accept-mode:message.accept-mode! "
            "acquire-mode:message.acquire-mode!",
            EITHER, segments="message.delivery-properties message.fragment-properties "
            "message.message-properties"),
    Command("message.accept", (4, 2),
            "transfers:sequence-set!",
            EITHER),
    Command("message.reject", (4, 3),
            "transfers:sequence-set! code:message.reject-code! text:str8",
            EITHER),
    Command("message.release", (4, 4),
            "transfers:sequence-set! set-redelivered:bit",
            EITHER),
    Command("message.acquire", (4, 5),
            "transfers:sequence-set!",
            SERVER, result="message.acquired"),
    Command("message.resume", (4, 6),
            "destination:str8 resume-id:str16!",
            EITHER, result="message.message-resume-result"),
    Command("message.subscribe", (4, 7),
            "queue:str8! destination:str8 accept-mode:message.accept-mode! "
            "acquire-mode:message.acquire-mode! exclusive:bit resume-id:str16 "
            "resume-ttl:uint64 arguments:map",
            SERVER),
    Command("message.cancel", (4, 8),
            "destination:str8!",
            SERVER),
    Command("message.set-flow-mode", (4, 9),
            "destination:str8 flow-mode:message.flow-mode!",
            EITHER),
    Command("message.flow", (4, 10),
            "destination:str8 unit:message.credit-unit! value:uint32",
            EITHER),
    Command("message.flush", (4, 11),
            "destination:str8",
            SERVER),
    Command("message.stop", (4, 12),
            "destination:str8",
            EITHER),
    # tx
    Command("tx.select", (5, 1),
            "",
            SERVER),
    Command("tx.commit", (5, 2),
            "",
            SERVER),
    Command("tx.rollback", (5, 3),
            "",
            SERVER),
    # dtx
    Command("dtx.select", (6, 1),
            "",
            SERVER),
    Command("dtx.start", (6, 2),
            "xid:xid! join:bit resume:bit",
            SERVER, result="dtx.xa-result"),
    Command("dtx.end", (6, 3),
            "xid:xid! fail:bit suspend:bit",
            SERVER, result="dtx.xa-result"),
    Command("dtx.commit", (6, 4),
            "xid:xid! one-phase:bit",
            SERVER, result="dtx.xa-result"),
    Command("dtx.forget", (6, 5),
            "xid:xid!",
            SERVER),
    Command("dtx.get-timeout", (6, 6),
            "xid:xid!",
            SERVER, result="dtx.get-timeout-result"),
    Command("dtx.prepare", (6, 7),
            "xid:xid!",
            SERVER, result="dtx.xa-result"),
    Command("dtx.recover", (6, 8),
            "",
            SERVER, result="dtx.recover-result"),
    Command("dtx.rollback", (6, 9),
            "xid:xid!",
            SERVER, result="dtx.xa-result"),
    Command("dtx.set-timeout", (6, 10),
            "xid:xid! timeout:uint32!",
            SERVER),
    # exchange
    Command("exchange.declare", (7, 1),
            "exchange:str8! type:str8! alternate-exchange:str8 passive:bit durable:bit "
            "auto-delete:bit arguments:map",
            SERVER),
    Command("exchange.delete", (7, 2),
            "exchange:str8! if-unused:bit",
            SERVER),
    Command("exchange.query", (7, 3),
            "name:str8",
            SERVER, result="exchange.exchange-query-result"),
    Command("exchange.bind", (7, 4),
            "queue:str8! exchange:str8! binding-key:str8! arguments:map",
            SERVER),
    Command("exchange.unbind", (7, 5),
            "queue:str8! exchange:str8! binding-key:str8!",
            SERVER),
    Command("exchange.bound", (7, 6),
            "exchange:str8 queue:str8! binding-key:str8 arguments:map",
            SERVER, result="exchange.exchange-bound-result"),
    # queue
    Command("queue.declare", (8, 1),
            "queue:str8! alternate-exchange:str8 passive:bit durable:bit exclusive:bit "
            "auto-delete:bit arguments:map",
            SERVER),
    Command("queue.delete", (8, 2),
            "queue:str8! if-unused:bit if-empty:bit",
            SERVER),
    Command("queue.purge", (8, 3),
            "queue:str8!",
            SERVER),
    Command("queue.query", (8, 4),
            "queue:str8!",
            SERVER, result="queue.queue-query-result"),
    # file
    Command("file.qos", (9, 1),
            "prefetch-size:uint32 prefetch-count:uint16 global:bit",
            SERVER, replies="qos-ok"),
    Command("file.qos-ok", (9, 2),
            "",
            CLIENT),
    Command("file.consume", (9, 3),
            "queue:str8 consumer-tag:str8 no-local:bit no-ack:bit exclusive:bit nowait:bit "
            "arguments:map",
            SERVER, replies="consume-ok"),
    Command("file.consume-ok", (9, 4),
            "consumer-tag:str8",
            CLIENT),
    Command("file.cancel", (9, 5),
            "consumer-tag:str8",
            SERVER),
    Command("file.open", (9, 6),
            "identifier:str8 content-size:uint64",
            EITHER, replies="open-ok"),
    Command("file.open-ok", (9, 7),
            "staged-size:uint64",
            EITHER, replies="stage"),
    Command("file.stage", (9, 8),
            "",
            EITHER, segments="file.file-properties"),
    Command("file.publish", (9, 9),
            "exchange:str8 routing-key:str8 mandatory:bit immediate:bit identifier:str8",
            SERVER),
    Command("file.return", (9, 10),
            "reply-code:file.return-code reply-text:str8 exchange:str8 routing-key:str8",
            CLIENT, segments="file.file-properties"),
    Command("file.deliver", (9, 11),
            "consumer-tag:str8 delivery-tag:uint64 redelivered:bit exchange:str8 "
            "routing-key:str8 identifier:str8",
            CLIENT),
    Command("file.ack", (9, 12),
            "delivery-tag:uint64 multiple:bit",
            SERVER),
    Command("file.reject", (9, 13),
            "delivery-tag:uint64 requeue:bit",
            SERVER),
    # stream
    Command("stream.qos", (10, 1),
            "prefetch-size:uint32 prefetch-count:uint16 consume-rate:uint32 global:bit",
            SERVER, replies="qos-ok"),
    Command("stream.qos-ok", (10, 2),
            "",
            CLIENT),
    Command("stream.consume", (10, 3),
            "queue:str8 consumer-tag:str8 no-local:bit exclusive:bit nowait:bit arguments:map",
            SERVER, replies="consume-ok"),
    Command("stream.consume-ok", (10, 4),
            "consumer-tag:str8",
            CLIENT),
    Command("stream.cancel", (10, 5),
            "consumer-tag:str8",
            SERVER),
    Command("stream.publish", (10, 6),
            "exchange:str8 routing-key:str8 mandatory:bit immediate:bit",
            SERVER, segments="stream.stream-properties"),
    Command("stream.return", (10, 7),
            "reply-code:stream.return-code reply-text:str8 exchange:str8 routing-key:str8",
            CLIENT, segments="stream.stream-properties"),
    Command("stream.deliver", (10, 8),
            "consumer-tag:str8 delivery-tag:uint64 exchange:str8 queue:str8!",
            CLIENT, segments="stream.stream-properties"),
)
# fmt: on
