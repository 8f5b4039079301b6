# SPDX-License-Identifier: Apache-2.0
"""The test class of 0-8: a peer shows that it reads integers, strings, tables and contents right.

The standard names the operations but gives them no numbers; they are counted from 1 in the order in
which it names them, and 0, which a client that fills in nothing sends, is the first.
"""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING

from headrace.protocol.codec_0_x import (
    MethodBase,
    TestContent,
    TestContentOk,
    TestInteger,
    TestIntegerOk,
    TestString,
    TestStringOk,
    TestTable,
    TestTableOk,
)
from headrace.protocol.errors import AmqpError
from headrace.spec.reply import ReplyCode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.gateway.v0_x.channel.channel import Channel
    from headrace.gateway.v0_x.connection.connection import GatewayConnection
    from headrace.gateway.v0_x.handlers import ContentHandler, Handler

ADD, MIN, MAX = 1, 2, 3
U32 = 0xFFFFFFFF
U64 = 0xFFFFFFFFFFFFFFFF


def integer(connection: GatewayConnection, channel: Channel, method: TestInteger) -> MethodBase:
    """Add four integers, or find the lowest or highest."""
    values = (method.integer_1, method.integer_2, method.integer_3, method.integer_4)
    return TestIntegerOk(result=operate_on_integers(values, method.operation))


def string(connection: GatewayConnection, channel: Channel, method: TestString) -> MethodBase:
    """Join two strings, or find the shorter or longer."""
    values = (method.string_1.encode(), as_bytes(method.string_2))
    return TestStringOk(result=operate_on_strings(values, method.operation))


def table(connection: GatewayConnection, channel: Channel, method: TestTable) -> MethodBase:
    """Apply operations to the numbers and to the strings of a table."""
    values = method.table.values()
    numbers = [int(v) for v in values if isinstance(v, int | Decimal) and not isinstance(v, bool)]
    strings = [as_bytes(v) for v in values if isinstance(v, str | bytes)]
    return TestTableOk(
        integer_result=operate_on_integers(numbers, method.integer_op),
        string_result=operate_on_strings(strings, method.string_op),
    )


def content(
    connection: GatewayConnection, channel: Channel, method: TestContent, header: bytes, body: bytes
) -> None:
    """Echo a content with the sum of its bytes."""
    connection.send_content(
        channel.number, TestContentOk(content_checksum=sum(body) & U32), header, body
    )


def refuse_answer(connection: GatewayConnection, channel: Channel, method: MethodBase) -> None:
    """Refuse an answer to a method that the broker never sends."""
    raise AmqpError(ReplyCode.COMMAND_INVALID, f"{method.NAME} answers nothing")


def refuse_content_answer(
    connection: GatewayConnection, channel: Channel, method: MethodBase, header: bytes, body: bytes
) -> None:
    """Refuse an answer with content that answers nothing."""
    refuse_answer(connection, channel, method)


def operate_on_integers(values: Sequence[int], operation: int) -> int:
    """Return the result of an operation on integers, as 64 bits."""
    if not values:
        return 0
    if check_operation(operation) == ADD:
        return sum(values) & U64
    return (min(values) if operation == MIN else max(values)) & U64


def operate_on_strings(values: Sequence[bytes], operation: int) -> bytes:
    """Return the result of an operation on strings."""
    if not values:
        return b""
    if check_operation(operation) == ADD:
        return b"".join(values)
    return min(values, key=len) if operation == MIN else max(values, key=len)


def check_operation(operation: int) -> int:
    """Refuse operations that the standard does not name."""
    if operation > MAX:
        raise AmqpError(ReplyCode.SYNTAX_ERROR, f"unknown operation {operation}")
    return operation or ADD


def as_bytes(value: bytes | str) -> bytes:
    """Return a string as bytes."""
    return value.encode() if isinstance(value, str) else value


HANDLERS: dict[str, Handler] = {
    "test.integer": integer,
    "test.integer-ok": refuse_answer,
    "test.string": string,
    "test.string-ok": refuse_answer,
    "test.table": table,
    "test.table-ok": refuse_answer,
}
CONTENT_HANDLERS: dict[str, ContentHandler] = {
    "test.content": content,
    "test.content-ok": refuse_content_answer,
}
