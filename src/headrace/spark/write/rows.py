# SPDX-License-Identifier: Apache-2.0
"""Conversion of the rows of a DataFrame to messages, and the errors of single rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from headrace.client.message import Message, encode_header
from headrace.columns.options.kinds import NAME_BYTES_MAX, OptionError
from headrace.columns.schema.columns import (
    OCTET_PROPERTIES,
    PROPERTIES,
    STRING_PROPERTIES,
    SchemaError,
)

if TYPE_CHECKING:
    import pyarrow as pa

    from headrace.columns.options.options import WriteOptions
    from headrace.untyped import Cell

BODY_COLUMNS: Final = ("body", "value")
COLUMN_TYPES: Final = {
    "body": ("binary", "string"),
    "value": ("binary", "string"),
    "exchange": ("string",),
    "routing_key": ("string",),
    "properties": (),  # A struct, checked field by field.
    "headers": ("map<string,string>",),
}
INTEGER_TYPES: Final = ("tinyint", "smallint", "int", "bigint")
EXPIRATION_DIGITS_MAX: Final = 18


@dataclass(frozen=True, slots=True)
class Row:
    """A message with its exchange and its routing key."""

    message: Message
    exchange: str
    routing_key: str


@dataclass(frozen=True, slots=True)
class RowError:
    """The reason why a row cannot be published, and the fields that identify the row."""

    reason: str
    exchange: str = ""
    routing_key: str = ""
    message_id: str | None = None


class _MalformedRow(ValueError):
    """A row cannot become a message; the text is the reason."""


def check_columns(options: WriteOptions, columns: list[tuple[str, str]]) -> None:
    """Raise SchemaError or OptionError if rows with these columns cannot become messages."""
    names = [name for name, _ in columns]
    for name, sql_type in columns:
        allowed = COLUMN_TYPES.get(name)
        if allowed is None:
            raise SchemaError(
                f"format 'amqp' cannot publish a column {name!r}; the columns of a message are "
                f"{', '.join(COLUMN_TYPES)}"
            )
        if name == "properties":
            _check_properties(sql_type)
        elif sql_type.lower() not in allowed:
            raise SchemaError(
                f"column {name!r} must be of type {' or '.join(allowed)}, not {sql_type}"
            )
    bodies = [name for name in BODY_COLUMNS if name in names]
    if len(bodies) != 1:
        raise SchemaError("a message needs one column 'body' or 'value', of type binary or string")
    if options.exchange is None and "exchange" not in names:
        raise OptionError(
            "option 'exchange' is missing, and there is no column 'exchange'; '' is the default "
            "exchange, where the routing key is the name of a queue"
        )
    if options.routing_key is None and "routing_key" not in names and not options.exchange:
        raise OptionError(
            "option 'routingKey' is missing, and there is no column 'routing_key'; the default "
            "exchange needs the name of a queue"
        )


def _check_properties(sql_type: str) -> None:
    """Raise SchemaError if a struct has a field that is no property, or of another type."""
    if not sql_type.startswith("struct<"):
        raise SchemaError(f"column 'properties' must be a struct, not {sql_type}")
    for entry in sql_type[len("struct<") : -1].split(","):
        name, _, kind = entry.partition(":")
        if name not in PROPERTIES:
            raise SchemaError(
                f"column 'properties' has a field {name!r}; the properties are "
                f"{', '.join(PROPERTIES)}"
            )
        if name == "timestamp":
            allowed: tuple[str, ...] = ("timestamp",)
        else:
            allowed = INTEGER_TYPES if name in OCTET_PROPERTIES else ("string",)
        if kind not in allowed:
            raise SchemaError(
                f"property {name!r} must be of type {' or '.join(allowed)}, not {kind}"
            )


def make_rows(
    options: WriteOptions, batch: pa.RecordBatch, header_max: int | None = None
) -> Iterator[Row | RowError]:
    """Yield the message or the error of each row of a record batch, in order.

    An encoded content header of more than `header_max` bytes is an error.
    """
    # The type of a value is not known here; each function checks the values that it uses.
    columns: dict[str, list[Cell]] = {
        name: batch.column(index).to_pylist() for index, name in enumerate(batch.schema.names)
    }
    for index in range(batch.num_rows):
        values = {name: column[index] for name, column in columns.items()}
        try:
            yield _make_row(options, values, header_max)
        except (_MalformedRow, ValueError) as error:
            yield RowError(
                str(error),
                values.get("exchange") or options.exchange or "",
                values.get("routing_key") or options.routing_key or "",
                (values.get("properties") or {}).get("message_id"),
            )


def _make_row(options: WriteOptions, values: dict[str, Cell], header_max: int | None) -> Row:
    """Return the message of one row; raise _MalformedRow if a value is invalid."""
    body = values.get("body", values.get("value"))
    if body is None:
        raise _MalformedRow("the body is null")
    fields = _message_fields(options, values.get("properties") or {})
    headers = values.get("headers")
    if headers is not None:
        fields["headers"] = dict(headers)
    message = Message(body.encode() if isinstance(body, str) else body, **fields)
    header = encode_header(message)  # Raises ValueError with the name of an invalid property.
    if header_max is not None and len(header) > header_max:
        raise _MalformedRow("the properties do not fit into a frame")
    return Row(
        message,
        _check_address(values.get("exchange"), options.exchange, "exchange"),
        _check_address(values.get("routing_key"), options.routing_key, "routing key"),
    )


def _check_address(value: str | None, default: str | None, subject: str) -> str:
    if value is None:
        if default is None and subject == "exchange":
            raise _MalformedRow("the exchange is null, and option 'exchange' is not set")
        return default or ""
    if len(value) > NAME_BYTES_MAX or len(value.encode()) > NAME_BYTES_MAX:
        raise _MalformedRow(f"the {subject} has more than {NAME_BYTES_MAX} bytes")
    return value


def _message_fields(options: WriteOptions, properties: dict[str, Cell]) -> dict[str, Cell]:
    """Return the arguments of `Message` for a struct of properties."""
    fields: dict[str, Cell] = {"persistent": options.persistent}
    for name, value in properties.items():
        if value is None:
            continue
        if name in STRING_PROPERTIES and len(value.encode()) > NAME_BYTES_MAX:
            raise _MalformedRow(f"property {name!r} has more than {NAME_BYTES_MAX} bytes")
        if name == "delivery_mode":
            if value not in (1, 2):
                raise _MalformedRow(f"property 'delivery_mode' is {value}, neither 1 nor 2")
            fields["persistent"] = value == 2
        elif name == "priority":
            if not 0 <= value <= 255:
                raise _MalformedRow(f"property 'priority' is {value}, not from 0 to 255")
            fields["priority"] = value
        elif name == "expiration":
            if not (value.isascii() and value.isdigit() and len(value) <= EXPIRATION_DIGITS_MAX):
                raise _MalformedRow("property 'expiration' is not a whole number of milliseconds")
            fields["expiration"] = timedelta(milliseconds=int(value))
        elif name == "timestamp":
            assert isinstance(value, datetime), value
            fields["timestamp"] = value.astimezone(UTC)
        else:
            fields[name] = value
    return fields
